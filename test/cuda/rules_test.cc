// What the vendor says holds on the stand-ins; gpu_check runs the same programs
// on the real libraries.
#include "test/fakes/rules/rules.h"

#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::rules {

// For messages: not its bytes, among them addresses.
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }

namespace {

std::vector<Rule> AllRules() {
  std::vector<Rule> all;
  for (const auto& rules : {CudaRules(), CudaKernelRules(), CudaErrorRules(),
                            CudaDriverRules(), NcclRules(), NcclCommRules()}) {
    all.insert(all.end(), rules.begin(), rules.end());
  }
  return all;
}

class VendorRuleTest : public ::testing::TestWithParam<Rule> {};

TEST_P(VendorRuleTest, HoldsOnStandIns) {
  EXPECT_EQ(GetParam().check(), "")
      << GetParam().source << ": " << GetParam().sentence;
}

INSTANTIATE_TEST_SUITE_P(Rules, VendorRuleTest, ::testing::ValuesIn(AllRules()),
                         [](const ::testing::TestParamInfo<Rule>& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace commsched::rules
