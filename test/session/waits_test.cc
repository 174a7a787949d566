// What sessions say to who asks why a job does not get on.
#include <string>

#include "base/wait_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/await.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::BucketGraph;
using test::MakeBuckets;
using test::RunStep;
using test::SessionRig;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

// Rank 1 begins its step only once the text has `expected`, about rank 0, which
// waits for it, and what rank 0 has in flight. Returns the text at that time.
std::string TextWhileRank0Waits(bool by_caller, const char* expected) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(test::Ranks(2), made.graph, {});
  std::string text;
  for (const absl::Status& status : rig.RunRanks([&](int rank) -> absl::Status {
         SessionSpec spec = rig.Spec(rank);
         spec.by_caller = by_caller;
         ASSIGN_OR_RETURN(const auto session, Session::Create(spec));
         if (rank == 1) {
           EXPECT_TRUE(test::Await([&] {
             text = DescribeWaiters();
             return text.find(expected) != std::string::npos &&
                    text.find("rank 1 has not issued") != std::string::npos;
           })) << text;
         }
         RETURN_IF_ERROR(RunStep(*session, rig, made, rank));
         return session->Drain();
       })) {
    EXPECT_OK(status);
  }
  return text;
}

TEST(WaitsTest, TellWhichOpWaitsForWhichLaunchAndWhoHasNotIssuedIt) {
  for (bool by_caller : {false, true}) {
    // The other lines are of the same moment or a later one.
    const std::string text = TextWhileRank0Waits(
        by_caller,
        "rank 0: session 0: step 0: op 'USE0' waits in its before for launch "
        "#0 all_reduce 'AR0' on axis dp of step 0, for ");
    EXPECT_THAT(text, ContainsRegex("rank 0: session 0: launch #0 all_reduce "
                                    "'AR0' on axis dp of step 0 has been in "
                                    "flight for [0-9.]+ s; rank 1 has not "
                                    "issued it\n"));
    EXPECT_THAT(text, HasSubstr("rank 1: session 0: no op is between its "
                                "before and its after; 0 steps have ended\n"));
  }
}

TEST(WaitsTest, TellWhatHasFailedAndWhatIsBetweenBeforeAndAfter) {
  const BucketGraph made = MakeBuckets(1, 1, 8);
  SessionRig rig(test::Ranks(1), made.graph, {});
  ASSERT_OK_AND_ASSIGN(const auto session, Session::Create(rig.Spec(0)));
  ASSERT_OK(session->StepBegin());
  ASSERT_OK(session->Before(made.backward[0], CallerStream()));
  EXPECT_THAT(DescribeWaiters(),
              HasSubstr("rank 0: session 0: step 0: op 'BWD0' is between its "
                        "before and its after\nrank 0: session 0: all 0 "
                        "launches that were due are complete\n"));
  session->Abort("enough");
  EXPECT_EQ(DescribeWaiters(), "rank 0: session 0: has failed: enough\n");
}

TEST(WaitsTest, ARankThatWaitsForTheOthersToCreateSaysSo) {
  const BucketGraph made = MakeBuckets(2, 1, 8);
  SessionRig rig(test::Ranks(2), made.graph, {});
  for (const absl::Status& status : rig.RunRanks([&](int rank) -> absl::Status {
         if (rank == 1) {
           EXPECT_TRUE(test::Await([] {
             return DescribeWaiters().find(
                        "rank 0: creates a session with others for ") !=
                    std::string::npos;
           }));
         }
         return Session::Create(rig.Spec(rank)).status();
       })) {
    EXPECT_OK(status);
  }
  EXPECT_THAT(DescribeWaiters(), IsEmpty());
}

}  // namespace
}  // namespace commsched
