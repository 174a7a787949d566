#include "cli/end_requests.h"

#include <signal.h>

#include "gtest/gtest.h"

namespace commsched::cli {
namespace {

using Request = EndRequests::Request;
using std::chrono::milliseconds;

constexpr EndRequests::Clock::time_point kBegin{};

TEST(EndRequestsTest, CopiesOfASignalWithinASecondAreOneRequest) {
  EndRequests requests;
  EXPECT_FALSE(requests.any());
  EXPECT_EQ(requests.Count(SIGTERM, kBegin), Request::kFirst);
  EXPECT_EQ(requests.Count(SIGTERM, kBegin), Request::kCopy);
  EXPECT_EQ(requests.Count(SIGTERM, kBegin + milliseconds(999)),
            Request::kCopy);
  EXPECT_TRUE(requests.any());
}

TEST(EndRequestsTest, TheSameSignalLaterIsASecondRequest) {
  EndRequests requests;
  requests.Count(SIGINT, kBegin);
  requests.Count(SIGINT, kBegin + milliseconds(700));
  EXPECT_EQ(requests.Count(SIGINT, kBegin + milliseconds(1000)),
            Request::kAgain);
}

TEST(EndRequestsTest, AnotherSignalIsASecondRequestAtOnce) {
  EndRequests requests;
  requests.Count(SIGTERM, kBegin);
  EXPECT_EQ(requests.Count(SIGINT, kBegin), Request::kAgain);
  EXPECT_EQ(requests.Count(SIGINT, kBegin), Request::kCopy);
}

}  // namespace
}  // namespace commsched::cli
