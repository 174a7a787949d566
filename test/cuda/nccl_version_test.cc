// Which NCCL is taken, and what of it.
#include <string>

#include "comm/plugin/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class NcclVersionTest : public testing::Test {
 protected:
  ~NcclVersionTest() override {
    fake_nccl_version(version_before_);
    EXPECT_OK(Load(version_before_));
  }

  // What the plugin says, or why it cannot be used.
  absl::Status Load(int version) {
    fake_nccl_version(version);
    PluginRegistry registry({});
    const absl::Status loaded = registry.Load(COMMSCHED_TEST_NCCL);
    found_ = registry.attempts().front().found;
    return loaded;
  }

  std::string found_;

 private:
  const int version_before_ = [] {
    (void)test::NcclTable();
    const int version = fake_nccl_version(0);
    fake_nccl_version(version);
    return version;
  }();
};

TEST_F(NcclVersionTest, AVersionBelow219IsRefusedByName) {
  EXPECT_THAT(Load(21806),
              StatusIs(absl::StatusCode::kUnavailable, "NCCL 2.18.6 in "));
  EXPECT_THAT(std::string(Load(21806).message()),
              HasSubstr("is older than 2.19.0"));
}

TEST_F(NcclVersionTest, AnOldVersionSaysWhatItLacks) {
  EXPECT_OK(Load(21903));
  EXPECT_THAT(found_, AllOf(HasSubstr("NCCL 2.19.3 in "),
                            HasSubstr("libcommsched_fake_gpu.so"),
                            HasSubstr(", without ncclCommRevoke, ncclAlltoAll"),
                            Not(HasSubstr("ncclCommRegister"))));
}

TEST_F(NcclVersionTest, ANewVersionLacksNothing) {
  EXPECT_OK(Load(22809));
  EXPECT_THAT(found_,
              AllOf(HasSubstr("NCCL 2.28.9 in "), Not(HasSubstr("without"))));
}

TEST_F(NcclVersionTest, WhatIsRefusedLeavesTheOneThatIsThere) {
  EXPECT_FALSE(Load(21806).ok());
  EXPECT_NE(test::NcclTable(), nullptr);
  EXPECT_OK(Load(22809));
}

}  // namespace
}  // namespace commsched
