// Observers of a session: what they see, and that they cannot harm it.
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::SessionRig;

// What the observer below saw, one line per event, and how it behaves.
struct Diary {
  std::vector<std::string> lines;
  commsched_status_t answer = COMMSCHED_OK;
  bool throws = false;
  bool refuses_to_attach = false;
};
Diary* diary = nullptr;  // Of rank 0; the others are not watched.

commsched_status_t Attach(const commsched_observed_plan_t* plan, void** out,
                          char* message, uint64_t size) {
  if (diary->refuses_to_attach) {
    snprintf(message, size, "no room");
    return COMMSCHED_RESOURCE_EXHAUSTED;
  }
  *out = diary;
  diary->lines.push_back(absl::StrCat("plan of ", plan->num_launches,
                                      " launches, rank ", plan->world_rank,
                                      " of ", plan->world_size));
  for (uint64_t i = 0; i < plan->num_launches; ++i) {
    diary->lines.push_back(absl::StrCat(plan->launches[i]->name, " ",
                                        plan->launches[i]->bytes,
                                        " bytes: ", plan->launches[i]->reason));
  }
  return COMMSCHED_OK;
}

commsched_status_t OnEvent(void* observation,
                           const commsched_observer_event_t* event, char*,
                           uint64_t) {
  auto* seen = static_cast<Diary*>(observation);
  std::string line;
  switch (event->kind) {
    case COMMSCHED_OBSERVE_STEP_BEGIN:
      line = absl::StrCat("step ", event->step, " begins");
      break;
    case COMMSCHED_OBSERVE_STEP_END:
      line = absl::StrCat("step ", event->step, " ends");
      break;
    case COMMSCHED_OBSERVE_LAUNCH_BEGIN:
      line = absl::StrCat("launch ", event->launch, " begins");
      break;
    case COMMSCHED_OBSERVE_LAUNCH_END:
      line = absl::StrCat("launch ", event->launch, " ends",
                          event->time_ns >= event->begin_ns ? "" : " early");
      break;
    default:
      line = absl::StrCat("failure ", event->status, ": ", event->message);
  }
  seen->lines.push_back(std::move(line));
  if (seen->throws) throw std::runtime_error("an observer threw");
  return seen->answer;
}

void Detach(void* observation) {
  static_cast<Diary*>(observation)->lines.push_back("detached");
}

commsched_observer_t Table(uint32_t events) {
  commsched_observer_t table = {};
  table.struct_size = sizeof(table);
  table.events = events;
  table.name = "diary";
  table.version = "1";
  table.attach = &Attach;
  table.on_event = &OnEvent;
  table.detach = &Detach;
  return table;
}

constexpr uint32_t kAll = 31;

// Two ranks, an all-reduce per step, `steps` steps; rank 0 is observed.
void RunObserved(Diary* into, const char* backend, int steps,
                 uint32_t events = kAll, bool abort = false) {
  diary = into;
  const commsched_observer_t table = Table(events);
  test::GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  const BufferId grad = builder.Buffer("grad", 8);
  const OpId produce = builder.Compute("produce", {test::Write(grad)});
  builder.AllReduce("sum", dp, grad);
  WorldSpec world;
  world.size = 2;
  world.backend = backend;
  SessionRig rig(world, builder.graph(), PlanOptions());
  auto body = [&](int rank) -> absl::Status {
    SessionSpec spec = rig.Spec(rank);
    if (rank == 0) spec.observers = {&table};
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                     Session::Create(std::move(spec)));
    for (int t = 0; t < steps; ++t) {
      RETURN_IF_ERROR(session->StepBegin());
      RETURN_IF_ERROR(session->Before(produce, CallerStream()));
      RETURN_IF_ERROR(session->After(produce, CallerStream()));
      RETURN_IF_ERROR(session->StepEnd());
    }
    RETURN_IF_ERROR(session->Drain());
    if (abort && rank == 0) session->Abort("enough");
    return absl::OkStatus();
  };
  const std::vector<absl::Status> statuses = rig.RunRanks(body);
  EXPECT_OK(statuses[0]);
  // An abort by rank 0 may find rank 1 still draining.
  if (!abort) {
    EXPECT_OK(statuses[1]);
  }
}

const std::vector<std::string> kTwoSteps = {
    "plan of 1 launches, rank 0 of 2",
    "#0 all_reduce 'sum' on axis dp 32 bytes: alone: last in key order",
    "step 0 begins",
    "launch 0 begins",
    "launch 0 ends",
    "step 0 ends",
    "step 1 begins",
    "launch 0 begins",
    "launch 0 ends",
    "step 1 ends",
    "detached"};

TEST(ObserverTest, SeesDecisionsAndCompletionsInOrder) {
  Diary seen;
  RunObserved(&seen, "inproc", 2);
  EXPECT_EQ(seen.lines, kTwoSteps);
}

TEST(ObserverTest, SeesTheSameOfABackendThatCompletesAtOnce) {
  Diary seen;
  RunObserved(&seen, "null", 2);
  EXPECT_EQ(seen.lines, kTwoSteps);
}

TEST(ObserverTest, IsToldOnlyWhatItAskedFor) {
  Diary seen;
  RunObserved(&seen, "inproc", 2, COMMSCHED_OBSERVE_STEP_END);
  EXPECT_EQ(seen.lines,
            (std::vector<std::string>{kTwoSteps[0], kTwoSteps[1], "step 0 ends",
                                      "step 1 ends", "detached"}));
}

TEST(ObserverTest, ItsFailuresChangeNothing) {
  Diary seen;
  seen.answer = COMMSCHED_INTERNAL;
  RunObserved(&seen, "inproc", 2);
  EXPECT_EQ(seen.lines, kTwoSteps);
  seen = Diary();
  seen.throws = true;
  RunObserved(&seen, "inproc", 2);
  EXPECT_EQ(seen.lines, kTwoSteps);
}

TEST(ObserverTest, CancelledDetachesIt) {
  Diary seen;
  seen.answer = COMMSCHED_CANCELLED;
  RunObserved(&seen, "inproc", 2);
  EXPECT_EQ(seen.lines,
            (std::vector<std::string>{kTwoSteps[0], kTwoSteps[1],
                                      "step 0 begins", "detached"}));
}

TEST(ObserverTest, OneThatCannotAttachIsLeftOut) {
  Diary seen;
  seen.refuses_to_attach = true;
  RunObserved(&seen, "inproc", 2);
  EXPECT_TRUE(seen.lines.empty());
}

TEST(ObserverTest, SeesTheFirstFailureOnce) {
  for (const char* backend : {"inproc", "null"}) {
    Diary seen;
    RunObserved(&seen, backend, 1, COMMSCHED_OBSERVE_FAILURE, /*abort=*/true);
    EXPECT_EQ(seen.lines,
              (std::vector<std::string>{kTwoSteps[0], kTwoSteps[1],
                                        "failure 10: enough", "detached"}))
        << backend;
  }
}

}  // namespace
}  // namespace commsched
