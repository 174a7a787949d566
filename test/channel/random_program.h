// Random programs of channels over groups of several worlds, and what they must
// give.
#ifndef COMMSCHED_TEST_CHANNEL_RANDOM_PROGRAM_H_
#define COMMSCHED_TEST_CHANNEL_RANDOM_PROGRAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "channel/channel_spec.h"

namespace commsched::test {

// A collective, or a message. Ranks are those of the group.
struct RandomOp {
  commsched_collective_t kind = COMMSCHED_BARRIER;
  int root = 0;  // of rooted kinds; of kSend the sender
  int to = 0;    // of kSend the receiver
  uint64_t tag = 0;
  uint64_t count = 0;            // of a part
  std::vector<uint64_t> counts;  // n, or n x n of an all-to-all; empty: equal
  uint32_t id = 0;               // what its values are made of
};

struct RandomGroup {
  size_t world = 0;        // RandomProgram::worlds
  std::vector<int> ranks;  // of its world
  std::vector<RandomOp> ops;

  int size() const { return static_cast<int>(ranks.size()); }
};

struct RandomProgram {
  int size = 0;
  // The ranks of each in their order: first all of them, then those of worlds
  // that are split from it.
  std::vector<std::vector<int>> worlds;
  std::vector<RandomGroup> groups;
};

// The place of `rank` in `ranks`, or -1.
inline int PlaceOf(int rank, const std::vector<int>& ranks) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

// Element `i` of what `rank` of the group brings to `op`.
inline int32_t ValueOf(const RandomOp& op, int rank, uint64_t i) {
  return static_cast<int32_t>(
      (op.id * 131 + static_cast<uint32_t>(rank) * 31 + i * 7) % 1009);
}

inline uint64_t PartOf(const RandomOp& op, int rank) {
  return op.counts.empty() ? op.count : op.counts[static_cast<size_t>(rank)];
}

// What `from` sends to `to` in an all-to-all among `n` ranks.
inline uint64_t SentTo(const RandomOp& op, int from, int to, int n) {
  return op.counts.empty() ? op.count
                           : op.counts[static_cast<size_t>(from * n + to)];
}

// Elements in front of the part of `rank`.
inline uint64_t Before(const RandomOp& op, int rank) {
  uint64_t sum = 0;
  for (int r = 0; r < rank; ++r) sum += PartOf(op, r);
  return sum;
}

inline RandomOp RandomOpOf(std::mt19937_64* random, int n, uint32_t id) {
  const auto pick = [&](uint64_t below) { return (*random)() % below; };
  constexpr commsched_collective_t kKinds[] = {COMMSCHED_ALL_REDUCE,
                                               COMMSCHED_REDUCE_SCATTER,
                                               COMMSCHED_ALL_GATHER,
                                               COMMSCHED_ALL_TO_ALL,
                                               COMMSCHED_BROADCAST,
                                               COMMSCHED_REDUCE,
                                               COMMSCHED_BARRIER,
                                               kGather,
                                               kScatter,
                                               COMMSCHED_SEND,
                                               COMMSCHED_SEND};
  RandomOp op;
  op.id = id;
  op.kind = kKinds[pick(n == 1 ? 9 : std::size(kKinds))];
  op.root = static_cast<int>(pick(static_cast<uint64_t>(n)));
  op.to = n == 1 ? 0
                 : static_cast<int>((static_cast<uint64_t>(op.root) + 1 +
                                     pick(static_cast<uint64_t>(n) - 1)) %
                                    static_cast<uint64_t>(n));
  op.tag = pick(3);
  op.count = pick(4) == 0 ? 1 + pick(20'000) : 1 + pick(40);
  const auto uneven = [&](uint64_t num) {
    for (uint64_t i = 0; i < num; ++i) op.counts.push_back(pick(50));
  };
  const auto parts = static_cast<uint64_t>(n);
  if (pick(2) == 0) return op;
  if (op.kind == COMMSCHED_REDUCE_SCATTER || op.kind == COMMSCHED_ALL_GATHER ||
      op.kind == kGather || op.kind == kScatter) {
    uneven(parts);
  } else if (op.kind == COMMSCHED_ALL_TO_ALL) {
    uneven(parts * parts);
  }
  return op;
}

// At least `least` of 0..size - 1, in any order.
inline std::vector<int> RandomRanks(std::mt19937_64* random, size_t size,
                                    size_t least) {
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), *random);
  ranks.resize(least + (*random)() % (size - least + 1));
  return ranks;
}

inline RandomProgram ProgramOf(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](uint64_t below) { return random() % below; };
  RandomProgram program;
  program.size = static_cast<int>(2 + pick(3));
  const auto size = static_cast<size_t>(program.size);
  program.worlds.emplace_back(size);
  std::iota(program.worlds[0].begin(), program.worlds[0].end(), 0);
  const uint64_t num_splits = pick(3);
  for (uint64_t i = 0; i < num_splits; ++i) {
    program.worlds.push_back(RandomRanks(&random, size, 1));
  }
  const uint64_t num_groups = 1 + pick(4);
  uint32_t id = 0;
  for (uint64_t g = 0; g < num_groups; ++g) {
    RandomGroup group;
    group.world = pick(program.worlds.size());
    group.ranks = RandomRanks(&random, program.worlds[group.world].size(), 1);
    const uint64_t num_ops = pick(20);
    for (uint64_t i = 0; i < num_ops; ++i) {
      group.ops.push_back(RandomOpOf(&random, group.size(), id++));
    }
    program.groups.push_back(std::move(group));
  }
  return program;
}

// All ranks submit what a pair of them sends and receives in one order, so that
// it needs no tags.
inline void DropTags(RandomProgram* program) {
  for (RandomGroup& group : program->groups) {
    for (RandomOp& op : group.ops) op.tag = 0;
  }
}

// An op as `rank` of `n` submits it, with its memory.
struct RankOp {
  bool takes_part = true;  // not of messages between others
  ChannelOp op;
  std::vector<uint64_t> counts;
  std::vector<int32_t> input, output, expected;
  // Brings the output from where it is written; empty: that is `output`.
  std::function<void(std::vector<int32_t>* output)> fetch;
  std::string what;
};

inline void FillRankOp(const RandomOp& from, int rank, int n, RankOp* made) {
  uint64_t num_in = from.count;
  std::vector<int32_t>& expected = made->expected;
  const auto part = [&](int source, uint64_t begin, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
      expected.push_back(ValueOf(from, source, begin + i));
    }
  };
  const auto sum = [&](uint64_t begin, uint64_t count) {
    for (uint64_t i = begin; i < begin + count; ++i) {
      int32_t total = 0;
      for (int r = 0; r < n; ++r) total += ValueOf(from, r, i);
      expected.push_back(total);
    }
  };
  const uint64_t own = PartOf(from, rank);
  const uint64_t before = Before(from, rank);
  const uint64_t all = Before(from, n);
  switch (from.kind) {
    case COMMSCHED_ALL_REDUCE:
      sum(0, from.count);
      break;
    case COMMSCHED_REDUCE:
      if (rank == from.root) sum(0, from.count);
      break;
    case COMMSCHED_BROADCAST:
      if (rank != from.root) num_in = 0;
      part(from.root, 0, from.count);
      break;
    case COMMSCHED_REDUCE_SCATTER:
      num_in = all;
      sum(before, own);
      break;
    case COMMSCHED_ALL_GATHER:
    case kGather:
      num_in = own;
      if (from.kind == kGather && rank != from.root) break;
      for (int r = 0; r < n; ++r) part(r, 0, PartOf(from, r));
      break;
    case kScatter:
      num_in = rank == from.root ? all : 0;
      part(from.root, before, own);
      break;
    case COMMSCHED_ALL_TO_ALL: {
      num_in = 0;
      for (int r = 0; r < n; ++r) num_in += SentTo(from, rank, r, n);
      for (int r = 0; r < n; ++r) {
        uint64_t begin = 0;
        for (int to = 0; to < rank; ++to) begin += SentTo(from, r, to, n);
        part(r, begin, SentTo(from, r, rank, n));
      }
      if (from.counts.empty()) break;
      for (int r = 0; r < n; ++r) {
        made->counts.push_back(SentTo(from, rank, r, n));
      }
      for (int r = 0; r < n; ++r) {
        made->counts.push_back(SentTo(from, r, rank, n));
      }
      break;
    }
    case COMMSCHED_SEND:
      made->takes_part = rank == from.root || rank == from.to;
      if (rank != from.root) num_in = 0;
      if (rank == from.to) part(from.root, 0, from.count);
      break;
    default:
      num_in = 0;
  }
  if (from.kind != COMMSCHED_ALL_TO_ALL) made->counts = from.counts;
  for (uint64_t i = 0; i < num_in; ++i) {
    made->input.push_back(ValueOf(from, rank, i));
  }
}

inline RankOp RankOpOf(const RandomOp& from, int rank, int n) {
  RankOp made;
  FillRankOp(from, rank, n, &made);
  made.output.assign(made.expected.size(), -1);
  ChannelOp& op = made.op;
  op.kind = from.kind;
  op.dtype = COMMSCHED_I32;
  op.peer = from.root;
  op.count = from.count;
  if (from.kind == COMMSCHED_SEND) {
    op.tag = from.tag;
    op.peer = rank == from.root ? from.to : from.root;
    if (rank != from.root) op.kind = COMMSCHED_RECV;
  }
  made.what = absl::StrCat("op ", from.id, " of kind ", from.kind, " on rank ",
                           rank, " of ", n);
  return made;
}

// Its vectors do not move any more.
inline void Point(RankOp* made) {
  made->op.input = made->input.empty() ? nullptr : made->input.data();
  made->op.output = made->output.empty() ? nullptr : made->output.data();
  made->op.counts = made->counts;
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CHANNEL_RANDOM_PROGRAM_H_
