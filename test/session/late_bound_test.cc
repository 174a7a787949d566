// Buffers whose address and count arrive with `after`.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/session/bucket_graph.h"
#include "test/support/graph_builder.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"
#include "test/support/surprises.h"
#include "test/support/virtual_job.h"

namespace commsched {
namespace {

using test::GraphBuilder;
using test::Ranks;
using test::Read;
using test::SessionRig;
using test::VirtualJob;
using test::VirtualStream;
using test::Write;

constexpr int kMembers = 2;
constexpr uint64_t kMost = 64;

// make writes late-bound `in`, take late-bound `out`; move goes from one to the
// other; check reads `out`.
struct LateGraph {
  explicit LateGraph(CollectiveKind kind, std::vector<uint64_t> counts = {}) {
    GraphBuilder builder;
    const GroupId group = builder.Group("ep", kMembers);
    in = builder.Buffer("in", kMost, Ownership::kLateBound);
    const uint64_t most_out =
        kind == CollectiveKind::kAllGather ? kMost * kMembers : kMost;
    out = builder.Buffer("out", most_out, Ownership::kLateBound);
    make = builder.Compute("make", {Write(in)});
    take = builder.Compute("take", {Write(out)});
    CollectiveSpec spec = test::Spec(kind, group, Read(in), Write(out));
    spec.counts = std::move(counts);
    builder.Collective("move", spec);
    check = builder.Compute("check", {Read(out)});
    graph = builder.graph();
  }
  BufferId in, out;
  OpId make, take, check;
  Graph graph;
};

// One step's memory of a rank, fresh in every step.
struct Tensor {
  std::vector<float> in, out;
};

class LateJob {
 public:
  LateJob(const LateGraph& made, uint64_t seed)
      : made_(made), rig_(Ranks(kMembers), made.graph, {}) {
    std::vector<SessionSpec> specs;
    for (int r = 0; r < kMembers; ++r) specs.push_back(rig_.Spec(r));
    job_ = VirtualJob::Create(specs, seed).value();
  }
  VirtualJob* operator->() { return job_.get(); }

 private:
  const LateGraph& made_;
  SessionRig rig_;
  std::unique_ptr<VirtualJob> job_;
};

// n[s][d]: what s sends to d in the step; changes every step, also to 0.
std::vector<uint64_t> CountsOf(uint64_t step) {
  return {step % 3, step % 5, 7 - step % 8, step % 2};
}

TEST(LateBoundTest, AddressesAndCountsOfAnAllToAllChangeEveryStep) {
  constexpr uint64_t kSteps = 25;
  const LateGraph made(CollectiveKind::kAllToAll, {16, 16, 16, 16});
  for (uint64_t seed = 0; seed < 20; ++seed) {
    // By rank and step: every step has memory of its own.
    std::vector<std::vector<Tensor>> memory(kMembers,
                                            std::vector<Tensor>(kSteps));
    for (int r = 0; r < kMembers; ++r) {
      for (uint64_t t = 0; t < kSteps; ++t) {
        const auto n = CountsOf(t);
        memory[r][t].in.resize(n[2 * r] + n[2 * r + 1]);
        memory[r][t].out.resize(n[r] + n[2 + r]);
      }
    }
    uint64_t wrong = 0;
    LateJob job(made, seed);
    ASSERT_OK(job->Run(
        kSteps,
        [&](int rank, OpId op, uint64_t t) {
          Tensor& tensor = memory[rank][t];
          const auto n = CountsOf(t);
          if (op == made.make) {
            for (size_t i = 0; i < tensor.in.size(); ++i) {
              tensor.in[i] = static_cast<float>(1000 * rank + 10 * t + i);
            }
          }
          if (op != made.check) return;
          for (size_t i = 0; i < tensor.out.size(); ++i) {
            const uint64_t from = i < n[rank] ? 0 : 1;
            const uint64_t begin = rank == 0 ? 0 : n[2 * from];
            const uint64_t at = begin + i - (from == 0 ? 0 : n[rank]);
            wrong +=
                tensor.out[i] != static_cast<float>(1000 * from + 10 * t + at);
          }
        },
        [&](Session& session, int rank, OpId op, uint64_t t, Stream* stream) {
          Tensor& tensor = memory[rank][t];
          const auto counts = CountsOf(t);
          if (op == made.make) {
            return session.AfterBound(op, stream,
                                      {{{.buffer = made.in,
                                         .address = tensor.in.data(),
                                         .count = tensor.in.size(),
                                         .counts = counts}}});
          }
          if (op == made.take) {
            return session.AfterBound(op, stream,
                                      {{{.buffer = made.out,
                                         .address = tensor.out.data(),
                                         .count = tensor.out.size(),
                                         .counts = {}}}});
          }
          return session.After(op, stream);
        }));
    EXPECT_EQ(wrong, 0u) << "seed " << seed;
  }
}

// One rank with calls made by the test; the stream is virtual.
class LateCallsTest : public testing::Test {
 protected:
  LateCallsTest()
      : made_(CollectiveKind::kAllGather),
        rig_(Ranks(kMembers), made_.graph, {}) {
    std::vector<SessionSpec> specs;
    for (int r = 0; r < kMembers; ++r) specs.push_back(rig_.Spec(r));
    job_ = VirtualJob::Create(specs, 0).value();
    EXPECT_OK(session().StepBegin());
  }
  Session& session() { return job_->session(0); }
  VirtualStream* stream() { return &job_->stream(0, 0); }
  absl::Status Bind(OpId op, std::vector<LateBinding> late) {
    return session().AfterBound(op, stream(), late);
  }
  LateBinding In(uint64_t count) { return {made_.in, memory_, count, {}}; }
  LateBinding Out(uint64_t count) { return {made_.out, memory_, count, {}}; }

  LateGraph made_;
  SessionRig rig_;
  std::unique_ptr<VirtualJob> job_;
  float memory_[kMost * kMembers] = {};
};

// Bound and owned buffers are compared with what comes late, and what comes
// together with each other.
TEST(LateBoundTest, MemoryOfAnotherBufferIsRefused) {
  GraphBuilder builder;
  const BufferId bound = builder.Buffer("bound", 8);
  const BufferId first = builder.Buffer("first", 8, Ownership::kLateBound);
  const BufferId second = builder.Buffer("second", 8, Ownership::kLateBound);
  const OpId make =
      builder.Compute("make", {Write(first), Write(second), Read(bound)});
  SessionRig rig(Ranks(1), builder.graph(), {});
  const auto session = Session::Create(rig.Spec(0)).value();
  ASSERT_OK(session->StepBegin());
  ASSERT_OK(session->Before(make, CallerStream()));
  float memory[16] = {};
  float* taken = rig.Memory(0, bound);
  const auto bind = [&](float* a, uint64_t a_count, float* b,
                        uint64_t b_count) {
    const LateBinding given[] = {{first, a, a_count, {}},
                                 {second, b, b_count, {}}};
    return session->AfterBound(make, CallerStream(), given);
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(bind(memory, 8, taken + 7, 1),
              StatusIs(kInvalid,
                       "late-bound buffer 'second' overlaps buffer 'bound' in "
                       "memory: bytes 0 to 3 of 'second' are bytes 28 to 31 of "
                       "'bound'"));
  EXPECT_THAT(bind(memory, 5, memory + 4, 8),
              StatusIs(kInvalid,
                       "'second' overlaps buffer 'first' in memory: "
                       "bytes 0 to 3 of 'second' are bytes 16 to 19 "
                       "of 'first'"));
  EXPECT_OK(bind(memory, 4, memory + 2, 0));
  ASSERT_OK(session->StepEnd());
  ASSERT_OK(session->StepBegin());
  ASSERT_OK(session->Before(make, CallerStream()));
  EXPECT_OK(bind(memory + 2, 0, memory, 4));
}

TEST_F(LateCallsTest, APlainAfterNamesTheBuffer) {
  ASSERT_OK(session().Before(made_.make, stream()));
  EXPECT_THAT(session().After(made_.make, stream()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "'make' writes late-bound buffer 'in'"));
  EXPECT_OK(Bind(made_.make, {In(4)}));  // nothing had changed
}

TEST_F(LateCallsTest, MoreThanTheMostIsRefused) {
  ASSERT_OK(session().Before(made_.make, stream()));
  EXPECT_THAT(Bind(made_.make, {In(kMost + 1)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'in' to 65 elements; its most is 64"));
}

TEST_F(LateCallsTest, AnotherOpsBufferIsRefused) {
  ASSERT_OK(session().Before(made_.make, stream()));
  EXPECT_THAT(
      Bind(made_.make, {In(4), Out(8)}),
      StatusIs(absl::StatusCode::kInvalidArgument, "which it does not write"));
}

TEST_F(LateCallsTest, ABufferGivenTwiceIsRefused) {
  ASSERT_OK(session().Before(made_.make, stream()));
  EXPECT_THAT(Bind(made_.make, {In(4), In(4)}),
              StatusIs(absl::StatusCode::kInvalidArgument, "2 times"));
}

TEST_F(LateCallsTest, AMisalignedAddressIsRefused) {
  ASSERT_OK(session().Before(made_.make, stream()));
  LateBinding binding = In(4);
  binding.address = reinterpret_cast<char*>(memory_) + 2;
  EXPECT_THAT(Bind(made_.make, {binding}),
              StatusIs(absl::StatusCode::kInvalidArgument, "aligned to 4"));
}

TEST_F(LateCallsTest, SidesThatDoNotFitAreRefusedByTheSecond) {
  ASSERT_OK(session().Before(made_.make, stream()));
  ASSERT_OK(Bind(made_.make, {In(4)}));
  ASSERT_OK(session().Before(made_.take, stream()));
  EXPECT_THAT(Bind(made_.take, {Out(6)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "an input of 4 elements needs an output of 8, not of "
                       "6"));
  EXPECT_OK(Bind(made_.take, {Out(8)}));
}

TEST_F(LateCallsTest, CountsWhereNoneAreTakenAreRefused) {
  ASSERT_OK(session().Before(made_.make, stream()));
  const std::vector<uint64_t> counts = {1, 2};
  EXPECT_THAT(Bind(made_.make, {{made_.in, memory_, 4, counts}}),
              StatusIs(absl::StatusCode::kInvalidArgument, "with 2 counts"));
}

TEST_F(LateCallsTest, BindingWhatIsNotLateBoundIsRefused) {
  ASSERT_OK(session().Before(made_.make, stream()));
  ASSERT_OK(Bind(made_.make, {In(4)}));
  ASSERT_OK(session().Before(made_.take, stream()));
  ASSERT_OK(Bind(made_.take, {Out(8)}));
  // check reads the result; the test lets the launch be, and asks at once.
  while (stream()->ready()) stream()->RunHead();
  ASSERT_OK(session().Before(made_.check, stream()));
  EXPECT_THAT(Bind(made_.check, {Out(8)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "'check' writes no late-bound buffer"));
}

TEST_F(LateCallsTest, TheSessionDoesNotDriveWhatOnlyTheCallerKnows) {
  SessionRig rig(Ranks(1), LateGraph(CollectiveKind::kAllReduce).graph, {});
  EXPECT_THAT(
      job_->session(1).Run(
          [](void*, OpId, Stream*) { return absl::OkStatus(); }, nullptr, 1),
      StatusIs(absl::StatusCode::kFailedPrecondition, "'in'"));
}

TEST_F(LateCallsTest, ItsAddressIsTheCallers) {
  EXPECT_THAT(session().Address(made_.make, made_.in),
              StatusIs(absl::StatusCode::kFailedPrecondition, "late-bound"));
}

// Workers run far behind the host, which waits when the ring is full.
TEST(LateBoundTest, TheHostWaitsForTheRing) {
  constexpr uint64_t kSteps = 50;
  const LateGraph made(CollectiveKind::kAllGather);
  SessionRig rig(Ranks(kMembers), made.graph, {});
  std::vector<std::vector<std::vector<float>>> out(
      kMembers, std::vector<std::vector<float>>(kSteps));
  std::vector<std::vector<std::vector<float>>> in = out;
  for (const absl::Status& status : rig.RunRanks([&](int rank) {
         auto worker = HostStream::Create("worker", 4096).value();
         SessionSpec spec = rig.Spec(rank);
         spec.lanes = {worker.get()};
         ASSIGN_OR_RETURN(auto session, Session::Create(spec));
         for (uint64_t t = 0; t < kSteps; ++t) {
           const uint64_t n = 1 + t % 7;
           in[rank][t].assign(n, static_cast<float>(10 * rank + t));
           out[rank][t].resize(n * kMembers);
           RETURN_IF_ERROR(session->StepBegin());
           RETURN_IF_ERROR(session->Before(made.make, worker.get()));
           RETURN_IF_ERROR(
               session->AfterBound(made.make, worker.get(),
                                   {{{made.in, in[rank][t].data(), n, {}}}}));
           RETURN_IF_ERROR(session->Before(made.take, worker.get()));
           RETURN_IF_ERROR(session->AfterBound(
               made.take, worker.get(),
               {{{made.out, out[rank][t].data(), n * kMembers, {}}}}));
           RETURN_IF_ERROR(session->Before(made.check, worker.get()));
           RETURN_IF_ERROR(session->After(made.check, worker.get()));
           RETURN_IF_ERROR(session->StepEnd());
         }
         return session->Drain();
       })) {
    ASSERT_OK(status);
  }
  for (int r = 0; r < kMembers; ++r) {
    for (uint64_t t = 0; t < kSteps; ++t) {
      for (size_t i = 0; i < out[r][t].size(); ++i) {
        const size_t from = i / (out[r][t].size() / kMembers);
        ASSERT_EQ(out[r][t][i], static_cast<float>(10 * from + t));
      }
    }
  }
}

TEST(LateBoundTest, BindingAllocatesNothingInASteadyStep) {
  const LateGraph made(CollectiveKind::kAllGather);
  SessionRig rig(Ranks(kMembers), made.graph, {});
  std::vector<std::vector<float>> in(kMembers, std::vector<float>(kMost));
  std::vector<std::vector<float>> out(kMembers,
                                      std::vector<float>(kMost * kMembers));
  test::Surprises begin, end;
  for (const absl::Status& status :
       rig.RunSessions([&](Session&session, int rank) -> absl::Status {
         Stream* const here = CallerStream();
         auto run = [&](uint64_t steps) -> absl::Status {
           for (uint64_t t = 0; t < steps; ++t) {
             const uint64_t n = 1 + t % 7;
             RETURN_IF_ERROR(session.StepBegin());
             RETURN_IF_ERROR(session.Before(made.make, here));
             RETURN_IF_ERROR(session.AfterBound(
                 made.make, here, {{{made.in, in[rank].data(), n, {}}}}));
             RETURN_IF_ERROR(session.Before(made.take, here));
             RETURN_IF_ERROR(session.AfterBound(
                 made.take, here,
                 {{{made.out, out[rank].data(), n * kMembers, {}}}}));
             RETURN_IF_ERROR(session.Before(made.check, here));
             RETURN_IF_ERROR(session.After(made.check, here));
             RETURN_IF_ERROR(session.StepEnd());
           }
           return absl::OkStatus();
         };
         RETURN_IF_ERROR(run(10));
         if (rank == 0) begin = test::Surprises();
         RETURN_IF_ERROR(run(70));
         if (rank == 0) end = test::Surprises();
         return run(10);
       })) {
    ASSERT_OK(status);
  }
  test::ExpectNoneBetween(begin, end);
}

}  // namespace
}  // namespace commsched
