// What goes through a channel gives what the definition says: every kind and
// type, on every backend that has channels.
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "channel/channel.h"
#include "device/host_device.h"
#include "test/conformance/backend_fixture.h"
#include "test/conformance/collective_case.h"
#include "test/conformance/rank_memory.h"

namespace commsched {
namespace {

constexpr commsched_dtype_t kNumTypes = COMMSCHED_BOOL + 1;
constexpr commsched_dtype_t kNumComputed = COMMSCHED_U8 + 1;

bool IsFloating(commsched_dtype_t dtype) { return dtype <= COMMSCHED_BF16; }

// An operation as its caller means it, and a case of another type whose result
// is the same.
struct Meant {
  commsched_dtype_t dtype = COMMSCHED_F32;
  commsched_reduce_op_t reduce_op = COMMSCHED_SUM;
  uint64_t factor = 1;  // Elements of the case for one of the caller's.
  std::unique_ptr<CollectiveCase> as;
};

class ConformingChannelTest : public BackendTest {
 protected:
  bool Takes(commsched_dtype_t dtype, commsched_reduce_op_t op) const {
    if ((GetParam().reductions >> op & 1) == 0) return false;
    if (op == COMMSCHED_PREMUL_SUM) return IsFloating(dtype);
    const bool is_bitwise = op >= COMMSCHED_BAND && op <= COMMSCHED_BXOR;
    return !is_bitwise || !IsFloating(dtype);
  }

  // All-to-alls whose counts each rank knows its own of: sends and receives on
  // devices.
  bool CanExchange() const {
    return Can(GetParam().on_cuda ? COMMSCHED_BACKEND_P2P
                                  : COMMSCHED_BACKEND_OWN_COUNTS);
  }

  ChannelSpec SpecOf(int rank) const {
    ChannelSpec spec;
    spec.world = std::shared_ptr<World>(std::shared_ptr<void>(), WorldOf(rank));
    spec.world_rank = rank;
    spec.group.axis = "dp";
    spec.group.rank = rank;
    for (int r = 0; r < size(); ++r) spec.group.ranks.push_back(r);
    spec.launch_timeout_ns = int64_t{60} * 1000 * 1000 * 1000;
    return spec;
  }

  using ChannelBody = std::function<absl::Status(int rank, Channel& channel,
                                                 RankMemory& memory)>;
  // Runs `body` with a channel of all ranks.
  void OnChannel(const ChannelBody& body) {
    EXPECT_OK(OnRanksAll([&](int rank) -> absl::Status {
      ASSIGN_OR_RETURN(const std::unique_ptr<RankMemory> memory,
                       RankMemory::Create(WorldOf(rank)->device(rank)));
      ASSIGN_OR_RETURN(const std::unique_ptr<Channel> channel,
                       Channel::Create(SpecOf(rank)));
      return body(rank, *channel, *memory);
    }));
  }

  // Submits all of them before it waits for the first.
  void RunAll(const std::vector<Meant>& all) {
    OnChannel(
        [&](int rank, Channel& channel, RankMemory& memory) -> absl::Status {
          std::vector<uint64_t> requests;
          for (const Meant& meant : all) {
            RETURN_IF_ERROR(memory.Add(meant.as->arena(rank, 0)));
            std::vector<uint64_t> counts;
            const ChannelOp op = OpOf(meant, rank, memory, &counts);
            const absl::StatusOr<uint64_t> request =
                channel.Submit(op, CallerStream());
            if (!request.ok()) return Named(meant, request.status());
            requests.push_back(*request);
          }
          for (size_t i = 0; i < all.size(); ++i) {
            absl::Status done = channel.Wait(requests[i], kNoDeadlineNs);
            if (done.ok()) done = memory.Fetch(all[i].as->arena(rank, 0));
            if (done.ok()) done = all[i].as->Check(rank);
            if (!done.ok()) return Named(all[i], done);
          }
          return absl::OkStatus();
        });
  }

  // What the case has for `rank`, as the caller means it.
  ChannelOp OpOf(const Meant& meant, int rank, const RankMemory& memory,
                 std::vector<uint64_t>* counts) const {
    const commsched_launch_t& launch = meant.as->launch(rank);
    const commsched_member_t& member = launch.members[0];
    ChannelOp op;
    op.kind = launch.kind;
    op.dtype = meant.dtype;
    op.reduce_op = meant.reduce_op;
    op.peer = launch.root;
    op.input = memory.TwinOf(member.input);
    op.output = memory.TwinOf(member.output);
    op.count = member.count / meant.factor;
    op.deterministic = launch.deterministic != 0;
    op.scale = launch.scale;
    if (member.counts == nullptr) return op;
    const auto add = [&](int index) {
      counts->push_back(member.counts[index] / meant.factor);
    };
    const bool has_own = launch.kind == COMMSCHED_ALL_TO_ALL;
    for (int r = 0; r < size(); ++r) add(has_own ? rank * size() + r : r);
    for (int r = 0; has_own && r < size(); ++r) add(r * size() + rank);
    op.counts = *counts;
    return op;
  }

  static absl::Status Named(const Meant& meant, const absl::Status& status) {
    return absl::Status(status.code(),
                        absl::StrCat(meant.as->Describe(), " of dtype ",
                                     meant.dtype, ": ", status.message()));
  }

  Shape ShapeOf(commsched_collective_t kind, commsched_dtype_t dtype,
                commsched_reduce_op_t op) const {
    Shape shape{kind, dtype, op, size() - 1, size()};
    shape.keeps_nan = GetParam().keeps_nan;
    shape.scale = op == COMMSCHED_PREMUL_SUM ? 0.7 : 1;
    return shape;
  }

  Meant Make(const Shape& shape, MemberCase member, bool in_place) {
    Meant meant;
    meant.dtype = shape.dtype;
    meant.reduce_op = shape.reduce_op;
    // NCCL's own reductions have no order.
    const bool in_order =
        deterministic() &&
        !(GetParam().on_cuda && shape.reduce_op == COMMSCHED_PREMUL_SUM);
    meant.as = std::make_unique<CollectiveCase>(
        shape, std::vector<MemberCase>{std::move(member)}, in_place, in_order,
        random_);
    return meant;
  }

  // `factor` elements of `shape` are one of `dtype`, reduced by `op`.
  Meant MakeAs(commsched_dtype_t dtype, commsched_reduce_op_t op,
               const Shape& shape, uint64_t factor) {
    Meant meant = Make(shape, {33 * factor, {}, 0}, /*in_place=*/false);
    meant.dtype = dtype;
    meant.reduce_op = op;
    meant.factor = factor;
    return meant;
  }

  std::mt19937_64 random_{1};
};

constexpr commsched_collective_t kReducing[] = {
    COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_REDUCE};
constexpr commsched_collective_t kMoving[] = {
    COMMSCHED_ALL_GATHER, COMMSCHED_ALL_TO_ALL, COMMSCHED_BROADCAST};

TEST_P(ConformingChannelTest, EveryComputedTypeIsReducedByEveryReduction) {
  std::vector<Meant> all;
  for (const auto kind : kReducing) {
    for (commsched_dtype_t dtype = 0; dtype < kNumComputed; ++dtype) {
      for (commsched_reduce_op_t op = 0; op <= COMMSCHED_PREMUL_SUM; ++op) {
        if (!Takes(dtype, op)) continue;
        for (const bool in_place : {true, false}) {
          all.push_back(Make(ShapeOf(kind, dtype, op), {67, {}, 0}, in_place));
        }
      }
    }
  }
  RunAll(all);
}

TEST_P(ConformingChannelTest, EveryTypeIsMoved) {
  std::vector<Meant> all;
  for (const auto kind : kMoving) {
    for (commsched_dtype_t dtype = 0; dtype < kNumTypes; ++dtype) {
      const auto bytes =
          static_cast<uint64_t>(DTypeSize(static_cast<DType>(dtype)));
      all.push_back(MakeAs(dtype, 0, ShapeOf(kind, COMMSCHED_U8, 0), bytes));
    }
  }
  RunAll(all);
}

TEST_P(ConformingChannelTest, OtherTypesAreReducedAsOnesThatGiveTheSame) {
  struct Same {
    commsched_dtype_t dtype;
    commsched_reduce_op_t op;
    commsched_dtype_t as_dtype;
    commsched_reduce_op_t as_op;
    uint64_t factor;
  };
  constexpr Same kSame[] = {
      {COMMSCHED_I16, COMMSCHED_BAND, COMMSCHED_U8, COMMSCHED_BAND, 2},
      {COMMSCHED_U16, COMMSCHED_BXOR, COMMSCHED_U8, COMMSCHED_BXOR, 2},
      {COMMSCHED_U32, COMMSCHED_SUM, COMMSCHED_I32, COMMSCHED_SUM, 1},
      {COMMSCHED_U32, COMMSCHED_BOR, COMMSCHED_I32, COMMSCHED_BOR, 1},
      {COMMSCHED_U64, COMMSCHED_PROD, COMMSCHED_I64, COMMSCHED_PROD, 1},
      {COMMSCHED_C64, COMMSCHED_SUM, COMMSCHED_F32, COMMSCHED_SUM, 2},
      {COMMSCHED_C64, COMMSCHED_PREMUL_SUM, COMMSCHED_F32, COMMSCHED_PREMUL_SUM,
       2},
      {COMMSCHED_C128, COMMSCHED_AVG, COMMSCHED_F64, COMMSCHED_AVG, 2},
  };
  std::vector<Meant> all;
  for (const auto kind : kReducing) {
    for (const Same& same : kSame) {
      if (!Takes(same.as_dtype, same.as_op)) continue;
      all.push_back(MakeAs(same.dtype, same.op,
                           ShapeOf(kind, same.as_dtype, same.as_op),
                           same.factor));
    }
    // True is 1 and false is 0: by what bytes of that give.
    for (const auto op : {COMMSCHED_SUM, COMMSCHED_MAX, COMMSCHED_BOR}) {
      all.push_back(MakeAs(COMMSCHED_BOOL, op,
                           ShapeOf(kind, COMMSCHED_U8, COMMSCHED_MAX), 1));
    }
    for (const auto op : {COMMSCHED_PROD, COMMSCHED_MIN, COMMSCHED_BAND}) {
      all.push_back(MakeAs(COMMSCHED_BOOL, op,
                           ShapeOf(kind, COMMSCHED_U8, COMMSCHED_MIN), 1));
    }
  }
  RunAll(all);
}

TEST_P(ConformingChannelTest, PartsMayBeUneven) {
  std::vector<Meant> all;
  for (int i = 0; i < 12; ++i) {
    for (const auto kind : {COMMSCHED_REDUCE_SCATTER, COMMSCHED_ALL_GATHER,
                            COMMSCHED_ALL_TO_ALL}) {
      if (kind == COMMSCHED_ALL_TO_ALL && !CanExchange()) continue;
      MemberCase member;
      const int num = kind == COMMSCHED_ALL_TO_ALL ? size() * size() : size();
      for (int p = 0; p < num; ++p) {
        member.counts.push_back(random_() % 4 == 0 ? 0 : random_() % 300);
      }
      all.push_back(
          Make(ShapeOf(kind, COMMSCHED_I32, COMMSCHED_SUM), member, false));
    }
  }
  RunAll(all);
}

TEST_P(ConformingChannelTest, LaunchesMayBeLargeOrEmpty) {
  std::vector<Meant> all;
  for (const uint64_t count : {uint64_t{0}, uint64_t{40'000}}) {
    for (commsched_collective_t kind = 0; kind <= COMMSCHED_BARRIER; ++kind) {
      all.push_back(Make(ShapeOf(kind, COMMSCHED_F32, COMMSCHED_SUM),
                         {count, {}, 0}, false));
    }
  }
  RunAll(all);
}

TEST_P(ConformingChannelTest, WhatIsNotReducedByIsRefusedByName) {
  OnChannel(
      [&](int /*rank*/, Channel& channel, RankMemory& memory) -> absl::Status {
        Bytes data(64);
        RETURN_IF_ERROR(memory.Add(&data));
        ChannelOp op;
        op.kind = COMMSCHED_ALL_REDUCE;
        op.input = op.output = memory.TwinOf(data.data());
        op.count = 16;
        op.scale = 0.5;
        for (commsched_reduce_op_t by = 0; by <= COMMSCHED_PREMUL_SUM; ++by) {
          op.reduce_op = by;
          op.dtype = by == COMMSCHED_PREMUL_SUM ? COMMSCHED_F32 : COMMSCHED_I32;
          if (Takes(op.dtype, by)) continue;
          EXPECT_THAT(
              channel.Submit(op, CallerStream()).status(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       absl::StrCat("' does not reduce by ",
                                    ReduceOpName(static_cast<ReduceOp>(by)))));
        }
        // Nothing of it was submitted.
        op.reduce_op = COMMSCHED_SUM;
        ASSIGN_OR_RETURN(const uint64_t request,
                         channel.Submit(op, CallerStream()));
        return channel.Wait(request, kNoDeadlineNs);
      });
}

// ---- What is made of sends and receives ----

// By tags, or on a device in the order of the submits.
bool Sends(const BackendCase& one) {
  return (one.capabilities &
          (one.on_cuda ? COMMSCHED_BACKEND_P2P : COMMSCHED_BACKEND_TAGS)) != 0;
}

class ConformingTransferTest : public ConformingChannelTest {
 protected:
  // What a rank sends around a ring, of each type, and what it gets.
  struct Ring {
    int rank = 0, next = 0, before = 0;
    std::vector<Bytes> sent, received;  // by type
  };

  // What `from` has for `to`, of a type.
  static Bytes ValuesOf(commsched_dtype_t dtype, int from, int to) {
    Bytes bytes(kCount *
                static_cast<uint64_t>(DTypeSize(static_cast<DType>(dtype))));
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>(i * 7 + dtype * 31 +
                                        static_cast<size_t>(from * 5 + to));
    }
    return bytes;
  }

  static ChannelOp OpOf(commsched_collective_t kind, commsched_dtype_t dtype,
                        int peer) {
    ChannelOp op;
    op.kind = kind;
    op.dtype = dtype;
    op.peer = peer;
    op.count = kCount;
    return op;
  }

  absl::StatusOr<Ring> RingOf(int rank, RankMemory& memory) const {
    Ring ring;
    ring.rank = rank;
    ring.next = (rank + 1) % size();
    ring.before = (rank + size() - 1) % size();
    ring.sent.resize(kNumTypes);
    ring.received.resize(kNumTypes);
    for (commsched_dtype_t dtype = 0; dtype < kNumTypes; ++dtype) {
      ring.sent[dtype] = ValuesOf(dtype, rank, ring.next);
      ring.received[dtype].resize(ring.sent[dtype].size());
      RETURN_IF_ERROR(memory.Add(&ring.sent[dtype]));
      RETURN_IF_ERROR(memory.Add(&ring.received[dtype]));
    }
    return ring;
  }

  static ChannelOp SendOf(const Ring& ring, commsched_dtype_t dtype,
                          const RankMemory& memory) {
    ChannelOp send = OpOf(COMMSCHED_SEND, dtype, ring.next);
    send.input = memory.TwinOf(ring.sent[dtype].data());
    return send;
  }
  static ChannelOp ReceiveOf(const Ring& ring, commsched_dtype_t dtype,
                             const RankMemory& memory) {
    ChannelOp receive = OpOf(COMMSCHED_RECV, dtype, ring.before);
    receive.output = memory.TwinOf(ring.received[dtype].data());
    return receive;
  }

  // Once all requests have finished.
  static absl::Status Check(Channel& channel, RankMemory& memory,
                            const std::vector<uint64_t>& requests, Ring* ring) {
    for (const uint64_t request : requests) {
      RETURN_IF_ERROR(channel.Wait(request, kNoDeadlineNs));
    }
    for (commsched_dtype_t dtype = 0; dtype < kNumTypes; ++dtype) {
      RETURN_IF_ERROR(memory.Fetch(&ring->received[dtype]));
      EXPECT_EQ(ring->received[dtype],
                ValuesOf(dtype, ring->before, ring->rank))
          << "dtype " << dtype;
    }
    return absl::OkStatus();
  }

  static absl::Status Run(Channel& channel, const ChannelOp& op) {
    ASSIGN_OR_RETURN(const uint64_t request,
                     channel.Submit(op, CallerStream()));
    return channel.Wait(request, kNoDeadlineNs);
  }

  static void Append(const Bytes& more, Bytes* all) {
    all->insert(all->end(), more.begin(), more.end());
  }

  static constexpr uint64_t kCount = 37;
};

TEST_P(ConformingTransferTest, EveryTypeIsGatheredAndScattered) {
  OnChannel([&](int rank, Channel& channel,
                RankMemory& memory) -> absl::Status {
    for (commsched_dtype_t dtype = 0; dtype < kNumTypes; ++dtype) {
      const int root = static_cast<int>(dtype) % size();
      Bytes all, own = ValuesOf(dtype, rank, root);
      for (int r = 0; r < size(); ++r) Append(ValuesOf(dtype, r, root), &all);
      Bytes gathered(rank == root ? all.size() : 0), part(own.size());
      for (Bytes* bytes : {&all, &own, &gathered, &part}) {
        RETURN_IF_ERROR(memory.Add(bytes));
      }
      ChannelOp gather = OpOf(kGather, dtype, root);
      gather.input = memory.TwinOf(own.data());
      gather.output = memory.TwinOf(gathered.data());
      RETURN_IF_ERROR(Run(channel, gather));
      RETURN_IF_ERROR(memory.Fetch(&gathered));
      EXPECT_EQ(gathered, rank == root ? all : Bytes()) << "dtype " << dtype;
      ChannelOp scatter = OpOf(kScatter, dtype, root);
      if (rank == root) scatter.input = memory.TwinOf(all.data());
      scatter.output = memory.TwinOf(part.data());
      RETURN_IF_ERROR(Run(channel, scatter));
      RETURN_IF_ERROR(memory.Fetch(&part));
      EXPECT_EQ(part, own) << "dtype " << dtype;
      memory.ForgetAll();
    }
    return absl::OkStatus();
  });
}

// Of two ranks, one sends first and the other receives first.
TEST_P(ConformingTransferTest, EveryTypeIsSentInTheOrderOfSubmits) {
  OnChannel(
      [&](int rank, Channel& channel, RankMemory& memory) -> absl::Status {
        if (size() == 1) return absl::OkStatus();
        ASSIGN_OR_RETURN(Ring ring, RingOf(rank, memory));
        std::vector<uint64_t> requests;
        for (commsched_dtype_t dtype = 0; dtype < kNumTypes; ++dtype) {
          std::vector<ChannelOp> ops = {SendOf(ring, dtype, memory),
                                        ReceiveOf(ring, dtype, memory)};
          if (rank != 0) std::swap(ops[0], ops[1]);
          for (const ChannelOp& op : ops) {
            ASSIGN_OR_RETURN(const uint64_t request,
                             channel.Submit(op, CallerStream()));
            requests.push_back(request);
          }
        }
        return Check(channel, memory, requests, &ring);
      });
}

TEST_P(ConformingTransferTest, EveryTypeIsSentInBatches) {
  OnChannel(
      [&](int rank, Channel& channel, RankMemory& memory) -> absl::Status {
        if (size() == 1) return absl::OkStatus();
        ASSIGN_OR_RETURN(Ring ring, RingOf(rank, memory));
        std::vector<uint64_t> requests;
        for (commsched_dtype_t dtype = 0; dtype < kNumTypes; ++dtype) {
          const ChannelOp ops[] = {SendOf(ring, dtype, memory),
                                   ReceiveOf(ring, dtype, memory)};
          ASSIGN_OR_RETURN(const uint64_t request,
                           channel.SubmitBatch(ops, CallerStream()));
          requests.push_back(request);
        }
        return Check(channel, memory, requests, &ring);
      });
}

class ConformingTagsTest : public ConformingTransferTest {};

// All around a ring at once, the tags of one pair backwards.
TEST_P(ConformingTagsTest, EveryTypeIsSentAndReceived) {
  OnChannel(
      [&](int rank, Channel& channel, RankMemory& memory) -> absl::Status {
        if (size() == 1) return absl::OkStatus();
        ASSIGN_OR_RETURN(Ring ring, RingOf(rank, memory));
        std::vector<uint64_t> requests;
        for (commsched_dtype_t dtype = 0; dtype < kNumTypes; ++dtype) {
          ChannelOp send = SendOf(ring, dtype, memory);
          send.tag = dtype;
          ASSIGN_OR_RETURN(const uint64_t request,
                           channel.Submit(send, CallerStream()));
          requests.push_back(request);
        }
        for (commsched_dtype_t i = kNumTypes; i > 0; --i) {
          ChannelOp receive = ReceiveOf(ring, i - 1, memory);
          receive.tag = i - 1;
          RETURN_IF_ERROR(Run(channel, receive));
        }
        return Check(channel, memory, requests, &ring);
      });
}

class ConformingNoTagsTest : public ConformingTransferTest {};

TEST_P(ConformingNoTagsTest, TagsAreRefusedByName) {
  OnChannel([&](int rank, Channel& channel,
                RankMemory& memory) -> absl::Status {
    ASSIGN_OR_RETURN(const Ring ring, RingOf(rank, memory));
    for (ChannelOp op : {SendOf(ring, COMMSCHED_F32, memory),
                         ReceiveOf(ring, COMMSCHED_F32, memory)}) {
      op.tag = 5;
      const auto refused =
          StatusIs(absl::StatusCode::kUnimplemented,
                   absl::StrCat("the tag is 5; backend '", GetParam().backend,
                                "' matches what a pair of ranks sends"));
      EXPECT_THAT(channel.Submit(op, CallerStream()).status(), refused);
      EXPECT_THAT(channel.SubmitBatch({&op, 1}, CallerStream()).status(),
                  refused);
    }
    return absl::OkStatus();
  });
}

COMMSCHED_INSTANTIATE_CONFORMANCE(ConformingChannelTest, BackendsWith(0));
COMMSCHED_INSTANTIATE_CONFORMANCE(ConformingTransferTest,
                                  BackendsWith(0, 1, Sends));
COMMSCHED_INSTANTIATE_CONFORMANCE(ConformingTagsTest,
                                  BackendsWith(COMMSCHED_BACKEND_TAGS));
COMMSCHED_INSTANTIATE_CONFORMANCE(
    ConformingNoTagsTest, BackendsWith(0, 2, [](const BackendCase& one) {
      return one.on_cuda && Sends(one);
    }));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConformingTransferTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConformingTagsTest);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ConformingNoTagsTest);

}  // namespace
}  // namespace commsched
