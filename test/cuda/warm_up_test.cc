// What the launches of a plan connect is connected before the first step: the
// first launch of a kind, size and type waits for the other members in the
// thread that makes it, where neither a deadline nor an abort finds it.
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/fakes/gpu/fake_gpu.h"
#include "test/support/await.h"
#include "test/support/graph_builder.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::GpuRig;
using test::GraphBuilder;
using test::Read;
using test::Shard;
using test::Write;

constexpr int kRanks = 3;

// Every kind, of several sizes and types, each written by an op before it.
// Without all-to-alls sums in the order of the tree are all that members send
// each other messages for.
Graph AllKinds(bool all_to_all = true) {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", kRanks);
  const auto written = [&](const std::string& name, uint64_t count,
                           DType dtype) {
    Buffer desc;
    desc.name = name;
    desc.count = count;
    desc.dtype = dtype;
    desc.ownership = Ownership::kBound;
    const BufferId buffer = builder.Buffer(desc);
    builder.Compute(absl::StrCat("write ", name), {Write(buffer)});
    return buffer;
  };
  for (const uint64_t count : {uint64_t{60}, uint64_t{60'000}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const std::string of = absl::StrCat(count, DTypeName(dtype));
      builder.AllReduce(absl::StrCat("all_reduce", of), dp,
                        written(absl::StrCat("a", of), count, dtype));
      const BufferId whole = written(absl::StrCat("b", of), count, dtype);
      builder.ReduceScatter(absl::StrCat("reduce_scatter", of), dp, Read(whole),
                            Write(whole, Shard(dp)));
      builder.AllGather(absl::StrCat("all_gather", of), dp,
                        written(absl::StrCat("c", of), count, dtype));
      for (const CollectiveKind kind :
           {CollectiveKind::kBroadcast, CollectiveKind::kReduce,
            CollectiveKind::kAllToAll}) {
        if (kind == CollectiveKind::kAllToAll && !all_to_all) continue;
        const std::string name = absl::StrCat(static_cast<int>(kind), of);
        const BufferId from = written(absl::StrCat("from", name), count, dtype);
        const BufferId to = written(absl::StrCat("to", name), count, dtype);
        builder.Collective(absl::StrCat("kind", name),
                           test::Spec(kind, dp, Read(from), Write(to)));
      }
    }
  }
  return builder.graph();
}

absl::Status EnqueueStep(Session* session, const GpuRig& rig, Stream* lane) {
  RETURN_IF_ERROR(session->StepBegin());
  for (const ComputeNode& node : rig.plan().nodes) {
    RETURN_IF_ERROR(session->Before(node.op, lane));
    RETURN_IF_ERROR(session->After(node.op, lane));
  }
  return session->StepEnd();
}

struct Sums {
  std::string name;
  bool in_order;
  bool beside_all_to_alls;
};

class CudaWarmUpTest : public testing::TestWithParam<Sums> {};

TEST_P(CudaWarmUpTest, TheHostOfARankWaitsForNoOtherInAStep) {
  PlanOptions options;
  options.deterministic = GetParam().in_order;
  GpuRig rig(kRanks, AllKinds(GetParam().beside_all_to_alls), options);
  std::atomic<bool> is_enqueued{false};
  test::ExpectAllOk(
      rig.RunSessions([&](Session& session, int rank) -> absl::Status {
        if (rank != 0) {
          EXPECT_TRUE(test::Await([&] { return is_enqueued.load(); }))
              << "rank 0 waits for the others in a call of its first step";
        }
        RETURN_IF_ERROR(EnqueueStep(&session, rig, rig.lane(rank, 0)));
        if (rank == 0) is_enqueued = true;
        return session.Drain();
      }));
}

INSTANTIATE_TEST_SUITE_P(All, CudaWarmUpTest,
                         testing::Values(Sums{"OfNccl", false, true},
                                         Sums{"InTheTreesOrder", true, true},
                                         Sums{"InTheTreesOrderAlone", true,
                                              false}),
                         [](const auto& info) { return info.param.name; });

// The caller's memory is as it was, and the scratch is given back.
TEST(CudaWarmUpMemoryTest, BoundMemoryIsNotTouched) {
  GpuRig rig(kRanks, AllKinds(), {});
  const size_t num_buffers = AllKinds().buffers().size();
  for (int rank = 0; rank < kRanks; ++rank) {
    for (size_t b = 0; b < num_buffers; ++b) {
      *test::Peek(rig.Memory(rank, BufferId(static_cast<uint32_t>(b)))) = 7;
    }
  }
  test::ExpectAllOk(
      rig.RunSessions([&](Session&, int) { return absl::OkStatus(); }));
  for (int rank = 0; rank < kRanks; ++rank) {
    for (size_t b = 0; b < num_buffers; ++b) {
      EXPECT_EQ(
          *test::Peek(rig.Memory(rank, BufferId(static_cast<uint32_t>(b)))),
          7.0f);
    }
  }
}

}  // namespace
}  // namespace commsched
