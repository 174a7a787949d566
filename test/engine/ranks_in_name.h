#ifndef COMMSCHED_TEST_ENGINE_RANKS_IN_NAME_H_
#define COMMSCHED_TEST_ENGINE_RANKS_IN_NAME_H_

#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace commsched::engine {

// Names a case whose first parameter is a number of ranks: "7_n3" is the
// eighth, on three. test/sanitizer_filter.txt leaves out cases by that number.
struct RanksInName {
  template <typename Case>
  std::string operator()(const ::testing::TestParamInfo<Case>& info) const {
    return absl::StrCat(info.index, "_n", std::get<0>(info.param));
  }
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_RANKS_IN_NAME_H_
