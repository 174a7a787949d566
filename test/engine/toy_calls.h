// Calls of an engine as tests of their order make them.
#ifndef COMMSCHED_TEST_ENGINE_TOY_CALLS_H_
#define COMMSCHED_TEST_ENGINE_TOY_CALLS_H_

#include <cstdint>
#include <string>

#include "commsched/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/engine/pass_calls.h"

namespace commsched::engine {

// Of micro-batch 0.
inline void Forward(commsched_engine_t* engine, uint32_t module) {
  EXPECT_EQ(ForwardBegin(engine, module, 0), COMMSCHED_OK);
  EXPECT_EQ(ForwardEnd(engine, module, 0), COMMSCHED_OK);
}

inline void Backward(commsched_engine_t* engine, uint32_t module) {
  EXPECT_EQ(BackwardBegin(engine, module, 0), COMMSCHED_OK);
  EXPECT_EQ(BackwardEnd(engine, module, 0), COMMSCHED_OK);
}

// `code` is that of a call out of order, whose message has `expected`.
inline void ExpectRefused(commsched_status_t code,
                          const std::string& expected) {
  EXPECT_EQ(code, COMMSCHED_FAILED_PRECONDITION);
  EXPECT_THAT(commsched_engine_last_error(), ::testing::HasSubstr(expected));
}

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_TOY_CALLS_H_
