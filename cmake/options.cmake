# commsched_option(NAME DOC [OWN]): a cache variable AUTO | ON | OFF, AUTO by
# default. OWN: a part that only this project has a use for, which is OFF by
# default where another project adds this one.
macro(commsched_option name doc)
  set(commsched_default AUTO)
  if("${ARGN}" STREQUAL "OWN" AND NOT PROJECT_IS_TOP_LEVEL)
    set(commsched_default OFF)
  endif()
  set(${name} ${commsched_default} CACHE STRING "${doc} (AUTO, ON or OFF)")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  if(NOT "${${name}}" MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "${name} is '${${name}}'; it must be AUTO, ON or OFF")
  endif()
endmacro()

# commsched_forget_missing(VARIABLE...): cache variables that name a file or folder
# that is gone, as a compiler that was replaced, are looked for again.
macro(commsched_forget_missing)
  foreach(variable ${ARGN})
    if(${variable} AND NOT EXISTS "${${variable}}")
      unset(${variable} CACHE)
    endif()
  endforeach()
endmacro()

# commsched_find_python(VARIABLE MODULE): a Python that has MODULE: the one that VARIABLE
# names, that which CMake found, the system's, or that of scripts/install-deps.
function(commsched_find_python variable module)
  foreach(python ${${variable}} ${Python3_EXECUTABLE} /usr/bin/python3
                 ${PROJECT_SOURCE_DIR}/build/torch-venv/bin/python)
    execute_process(COMMAND ${python} -c
      "import importlib.util, sys; sys.exit(not importlib.util.find_spec('${module}'))"
      RESULT_VARIABLE lacks_it OUTPUT_QUIET ERROR_QUIET)
    if(lacks_it EQUAL 0)
      set(${variable} ${python} CACHE FILEPATH "A Python that has ${module}" FORCE)
      mark_as_advanced(${variable})
      return()
    endif()
  endforeach()
  unset(${variable} CACHE)
endfunction()

# Decides COMMSCHED_WITH_<PART>: sets COMMSCHED_HAVE_<PART>. NEEDS is a list of
# alternating "description;variable" pairs; a false variable is a missing need.
function(commsched_decide part)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "NEEDS")
  set(wanted "${COMMSCHED_WITH_${part}}")
  set(missing "")
  while(arg_NEEDS)
    list(POP_FRONT arg_NEEDS description variable)
    if(NOT ${variable})
      list(APPEND missing "${description}")
    endif()
  endwhile()
  list(JOIN missing ", " missing)
  set(have ON)
  if(wanted STREQUAL "OFF")
    set(have OFF)
    message(STATUS "commsched: ${part} is off (COMMSCHED_WITH_${part}=OFF)")
  elseif(missing AND wanted STREQUAL "ON")
    message(FATAL_ERROR "COMMSCHED_WITH_${part} is ON, but missing: ${missing}")
  elseif(missing)
    set(have OFF)
    message(STATUS "commsched: ${part} is not built; missing: ${missing}")
  endif()
  set(COMMSCHED_HAVE_${part} ${have} PARENT_SCOPE)
endfunction()
