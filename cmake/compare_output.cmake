# Runs PROGRAM and compares what it prints with the file EXPECTED; runs it again
# where nothing can be written, which is a failure.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE actual RESULT_VARIABLE code)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${code}; it printed:\n${actual}")
endif()
file(READ ${EXPECTED} expected)
if(NOT actual STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} printed:\n${actual}\n"
                      "but ${EXPECTED} says:\n${expected}")
endif()
execute_process(COMMAND ${PROGRAM} OUTPUT_FILE /dev/full RESULT_VARIABLE code)
if(NOT code EQUAL 1)
  message(FATAL_ERROR "${PROGRAM} > /dev/full ended with ${code}, not with 1")
endif()
