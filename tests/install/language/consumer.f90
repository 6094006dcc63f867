! A program in Fortran that asks the installed library for its version.
program consumer
  use iso_c_binding
  interface
    function rondo_version() bind(c)
      import c_int32_t
      integer(c_int32_t) :: rondo_version
    end function
  end interface
  if (rondo_version() <= 0) stop 1
end program
