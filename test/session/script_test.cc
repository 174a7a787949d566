// The script of a step whose calls always come in one order.
#include "exec/script.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using Kind = ScriptedCall::Kind;

// MAKE0, SUM0, MAKE1, SUM1, USE: the sums are submitted, USE reads both.
class ScriptTest : public testing::Test {
 protected:
  ScriptTest() {
    test::GraphBuilder b;
    const GroupId dp = b.Group("dp", 1);
    const BufferId x0 = b.Buffer("x0", 16), x1 = b.Buffer("x1", 16);
    make_[0] = b.Compute("MAKE0", {test::ReadWrite(x0)});
    sum_[0] = b.AllReduce("SUM0", dp, x0);
    make_[1] = b.Compute("MAKE1", {test::ReadWrite(x1)});
    sum_[1] = b.AllReduce("SUM1", dp, x1);
    use_ = b.Compute("USE", {test::Read(x0), test::Read(x1)});
    WorldSpec world;
    world.size = 1;
    world.backend = "null";
    rig_ = std::make_unique<test::SessionRig>(world, b.graph(), PlanOptions{});
    SessionSpec spec = rig_->Spec(0);
    spec.submitted = {sum_[0], sum_[1]};
    session_ = Session::Create(spec).value();
  }

  static ScriptedCall Before(OpId op) { return {.op = op}; }
  static ScriptedCall After(OpId op) {
    return {.kind = Kind::kAfter, .op = op};
  }
  static ScriptedCall Submit(OpId op) {
    return {.kind = Kind::kSubmit, .opens_gates = true, .op = op};
  }
  std::vector<ScriptedCall> WholeStep() const {
    return {Before(make_[0]), After(make_[0]), Submit(sum_[0]),
            Before(make_[1]), After(make_[1]), Submit(sum_[1]),
            Before(use_),     After(use_)};
  }
  absl::Status Written(std::vector<ScriptedCall> calls) const {
    return WriteScript(session_->program(), absl::MakeSpan(calls));
  }

  OpId make_[2], sum_[2], use_;
  std::unique_ptr<test::SessionRig> rig_;
  std::unique_ptr<Session> session_;
};

TEST_F(ScriptTest, SaysWhatIsDueAfterEachCall) {
  std::vector<ScriptedCall> calls = WholeStep();
  ASSERT_OK(WriteScript(session_->program(), absl::MakeSpan(calls)));
  const std::vector<uint32_t> due = {0, 0, 1, 1, 1, 2, 2, 2};
  for (size_t i = 0; i < calls.size(); ++i) EXPECT_EQ(calls[i].due, due[i]);
}

TEST_F(ScriptTest, ALaunchWaitsForTheKeysBeforeIt) {
  std::vector<ScriptedCall> calls = {
      Before(make_[1]), After(make_[1]), Submit(sum_[1]), Before(make_[0]),
      After(make_[0]),  Submit(sum_[0]), Before(use_),    After(use_)};
  ASSERT_OK(WriteScript(session_->program(), absl::MakeSpan(calls)));
  EXPECT_EQ(calls[4].due, 0u);
  EXPECT_EQ(calls[5].due, 2u);
}

TEST_F(ScriptTest, ACollectiveThatNobodyWaitsToBeSubmittedChangesNothing) {
  std::vector<ScriptedCall> calls = WholeStep();
  calls.insert(calls.begin(), {.kind = Kind::kSubmit, .op = sum_[1]});
  EXPECT_OK(Written(calls));
}

TEST_F(ScriptTest, WhatTheDispatcherWouldRefuseIsRefusedByName) {
  std::vector<ScriptedCall> calls = WholeStep();
  std::swap(calls[5], calls[6]);
  EXPECT_THAT(Written(calls), StatusIs(absl::StatusCode::kInternal,
                                       "before of op 'USE' needs"));
  calls = WholeStep();
  std::swap(calls[3], calls[4]);
  EXPECT_THAT(Written(calls), StatusIs(absl::StatusCode::kInternal,
                                       "after of op 'MAKE1' has no before"));
  calls = WholeStep();
  std::swap(calls[1], calls[3]);
  EXPECT_THAT(Written(calls), StatusIs(absl::StatusCode::kInternal,
                                       "before of op 'MAKE1' is inside one"));
  calls = WholeStep();
  calls.insert(calls.begin() + 2, calls[0]);
  EXPECT_THAT(Written(calls), StatusIs(absl::StatusCode::kInternal,
                                       "before of op 'MAKE0' is its second"));
  calls = WholeStep();
  calls.insert(calls.begin() + 3, calls[2]);
  EXPECT_THAT(Written(calls),
              StatusIs(absl::StatusCode::kInternal, "submit of 'SUM0'"));
}

TEST_F(ScriptTest, AStepThatIsNotWholeIsRefusedByName) {
  std::vector<ScriptedCall> calls = WholeStep();
  calls.pop_back();
  EXPECT_THAT(Written(calls), StatusIs(absl::StatusCode::kInternal,
                                       "after of op 'USE' is missing"));
  calls.pop_back();
  EXPECT_THAT(Written(calls), StatusIs(absl::StatusCode::kInternal,
                                       "before of op 'USE' is missing"));
}

}  // namespace
}  // namespace commsched
