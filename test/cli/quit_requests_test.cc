#include "cli/quit_requests.h"

#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

using std::chrono::milliseconds;

constexpr QuitRequests::Clock::time_point kQuitBegin{};

TEST(QuitRequestsTest, OneAsksWhatRanksWaitForAndSoDoItsCopies) {
  QuitRequests requests;
  EXPECT_FALSE(requests.MeansEnd(kQuitBegin));
  EXPECT_FALSE(requests.MeansEnd(kQuitBegin + milliseconds(999)));
}

TEST(QuitRequestsTest, AnotherOneSoonAfterMeansTheEnd) {
  QuitRequests requests;
  EXPECT_FALSE(requests.MeansEnd(kQuitBegin));
  EXPECT_TRUE(requests.MeansEnd(kQuitBegin + milliseconds(1000)));
}

TEST(QuitRequestsTest, AnotherOneMuchLaterAsksAgain) {
  QuitRequests requests;
  EXPECT_FALSE(requests.MeansEnd(kQuitBegin));
  EXPECT_FALSE(requests.MeansEnd(kQuitBegin + milliseconds(5000)));
}

}  // namespace
}  // namespace commsched::cli
