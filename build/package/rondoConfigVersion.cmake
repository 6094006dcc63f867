# A project requests a series, 0.1 or 1: before 1.0 a new minor version may break programs, later only a new major version.
# The request 0 accepts every version before 1.0. A range, such as 0.1...<0.3, accepts the versions inside it.
set(PACKAGE_VERSION @VERSION@)
string(REGEX MATCH "^(0\\.[0-9]+|[1-9][0-9]*)" _rondo_series ${PACKAGE_VERSION})

if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(PACKAGE_FIND_VERSION_RANGE)
  if(PACKAGE_VERSION VERSION_LESS PACKAGE_FIND_VERSION_MAX
     OR (PACKAGE_VERSION VERSION_EQUAL PACKAGE_FIND_VERSION_MAX AND PACKAGE_FIND_VERSION_RANGE_MAX STREQUAL "INCLUDE"))
    set(PACKAGE_VERSION_COMPATIBLE TRUE)
  endif()
elseif("${PACKAGE_FIND_VERSION}." MATCHES "^${_rondo_series}\\." OR "${_rondo_series}." MATCHES "^${PACKAGE_FIND_VERSION}\\.")
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
if(CMAKE_SIZEOF_VOID_P AND NOT CMAKE_SIZEOF_VOID_P EQUAL 8)
  set(PACKAGE_VERSION_UNSUITABLE TRUE)
endif()
unset(_rondo_series)
