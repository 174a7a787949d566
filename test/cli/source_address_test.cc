#include "cli/source_address.h"

#include <string>

#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

TEST(SourceAddressTest, AHostIsReachedFromTheAddressThatItSees) {
  std::string why;
  EXPECT_EQ(SourceAddress({"127.0.0.1", "127.0.0.1"}, &why), "127.0.0.1")
      << why;
}

TEST(SourceAddressTest, AHostWithoutAnAddressIsNamed) {
  std::string why;
  EXPECT_EQ(SourceAddress({"127.0.0.1", "no such host"}, &why), "");
  EXPECT_NE(why.find("host 'no such host' cannot be reached: "),
            std::string::npos)
      << why;
}

}  // namespace
}  // namespace commsched::cli
