#ifndef COMMSCHED_TEST_ENGINE_EXPECT_ERROR_H_
#define COMMSCHED_TEST_ENGINE_EXPECT_ERROR_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "commsched/engine.h"

// The call returns `code`, and leaves a message that matches.
#define EXPECT_ENGINE_ERROR(call, code, matcher)                      \
  do {                                                                \
    EXPECT_EQ(call, code);                                            \
    EXPECT_THAT(std::string(commsched_engine_last_error()), matcher); \
  } while (false)

#endif  // COMMSCHED_TEST_ENGINE_EXPECT_ERROR_H_
