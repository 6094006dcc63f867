# find_package(rondo) defines rondo::rondo, the shared library, and rondo::rondo_static. All paths follow from the folder of
# this file; REALPATH, since CMake may have reached it through Debian's link /lib. The file does not use FindThreads, which
# needs C: a project in CUDA or Fortran may not have C.
get_filename_component(_rondo_libraries "${CMAKE_CURRENT_LIST_DIR}/../.." REALPATH)
string(REGEX REPLACE "/@LIBDIR@$" "" _rondo_prefix "${_rondo_libraries}")
if(_rondo_prefix STREQUAL _rondo_libraries) # the libraries are outside of PREFIX
  set(_rondo_prefix "@PREFIX@")
endif()

if(NOT TARGET rondo::rondo)
  add_library(rondo::rondo SHARED IMPORTED)
  set_target_properties(rondo::rondo PROPERTIES
    IMPORTED_LOCATION "${_rondo_libraries}/librondo.so.@VERSION@"
    IMPORTED_SONAME librondo.so.@ABI@
    INTERFACE_INCLUDE_DIRECTORIES "${_rondo_prefix}/include")

  add_library(rondo::rondo_static STATIC IMPORTED)
  set_target_properties(rondo::rondo_static PROPERTIES
    IMPORTED_LOCATION "${_rondo_libraries}/librondo.a"
    INTERFACE_LINK_LIBRARIES "mimalloc;m;dl;pthread"
    INTERFACE_LINK_OPTIONS "LINKER:-z,nodelete" # a plugin with threads of Rondo and mimalloc must not be unloaded
    INTERFACE_INCLUDE_DIRECTORIES "${_rondo_prefix}/include")
endif()

unset(_rondo_libraries)
unset(_rondo_prefix)
