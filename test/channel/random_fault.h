// What one rank of a random program does otherwise than the others of a group,
// and who may be blamed for it.
#ifndef COMMSCHED_TEST_CHANNEL_RANDOM_FAULT_H_
#define COMMSCHED_TEST_CHANNEL_RANDOM_FAULT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "test/channel/random_program.h"

namespace commsched::test {

enum class FaultKind {
  // Found when ranks compare what they launch.
  kSwapped,         // two collectives in another order
  kOtherCount,      // of a collective
  kOtherParts,      // of uneven ones
  kOtherType,       //
  kOtherReduction,  //
  kOtherRoot,       //
  kOtherLength,     // of a send than of its receive
  // Found at the deadline.
  kMissing,    // stops before a collective
  kNoSend,     // of a receive
  kNoReceive,  // of a send
  kOtherTag,   // of a send
  kOtherPeer,  // of a send
};
constexpr int kNumFaults = 12;

// Of what programs run on.
struct FaultRules {
  bool has_tags = true;
  // Else all that differs is found at the deadline.
  bool compares = true;
  // What else is under way in the world ends with it.
  bool ends_world = false;
};

struct RandomFault {
  FaultKind kind = FaultKind::kSwapped;
  size_t group = 0;
  size_t at = 0;    // of its ops: what the culprit does otherwise
  int culprit = 0;  // rank of the group
  // Ranks of the group that may be blamed: those that others wait for in vain.
  // Sends and receives that do not meet are matter of both.
  std::vector<int> guilty;
  bool compares = true;     // FaultRules
  bool ends_world = false;  //

  bool waits_for_deadline() const {
    return !compares || kind >= FaultKind::kMissing;
  }
  bool is_of_message() const {
    return kind == FaultKind::kOtherLength || kind > FaultKind::kMissing;
  }
};

inline std::string FaultName(FaultKind kind) {
  constexpr const char* kNames[kNumFaults] = {
      "swapped",         "other count", "other parts",  "other type",
      "other reduction", "other root",  "other length", "missing",
      "no send",         "no receive",  "other tag",    "other peer"};
  return kNames[static_cast<size_t>(kind)];
}

// Tags that no random op has.
constexpr uint64_t kFaultTag = 100;
// Collectives that follow.
constexpr uint32_t kMoreOps = 40;

// One of `kinds`, of equal parts.
inline RandomOp PlainOpOf(std::mt19937_64* random, int n,
                          std::vector<commsched_collective_t> kinds,
                          uint32_t id) {
  RandomOp op;
  op.id = id;
  op.kind = kinds[(*random)() % kinds.size()];
  op.root = static_cast<int>((*random)() % static_cast<uint64_t>(n));
  op.count = 1 + (*random)() % ((*random)() % 4 == 0 ? 20'000 : 40);
  return op;
}

// What all ranks of the group have at RandomFault::at, and the culprit alters.
inline std::vector<RandomOp> OpsOfFault(std::mt19937_64* random, int n,
                                        RandomFault* fault, uint32_t id) {
  const auto op = [&](std::vector<commsched_collective_t> kinds) {
    return PlainOpOf(random, n, std::move(kinds), id++);
  };
  // Of these everybody waits for everybody.
  const std::vector<commsched_collective_t> meeting = {
      COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_ALL_GATHER,
      COMMSCHED_ALL_TO_ALL, COMMSCHED_BARRIER};
  switch (fault->kind) {
    case FaultKind::kSwapped:
      return {op({COMMSCHED_ALL_REDUCE, COMMSCHED_ALL_GATHER,
                  COMMSCHED_REDUCE_SCATTER}),
              op({COMMSCHED_ALL_TO_ALL, COMMSCHED_BARRIER, COMMSCHED_BROADCAST,
                  COMMSCHED_REDUCE})};
    case FaultKind::kOtherCount:
      return {op({COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER,
                  COMMSCHED_ALL_GATHER, COMMSCHED_ALL_TO_ALL,
                  COMMSCHED_BROADCAST, COMMSCHED_REDUCE})};
    case FaultKind::kOtherParts: {
      RandomOp uneven = op({COMMSCHED_REDUCE_SCATTER, COMMSCHED_ALL_GATHER,
                            COMMSCHED_ALL_TO_ALL});
      const auto size = static_cast<size_t>(n);
      const size_t num =
          uneven.kind == COMMSCHED_ALL_TO_ALL ? size * size : size;
      for (size_t i = 0; i < num; ++i) uneven.counts.push_back(1 + i % 7);
      return {uneven};
    }
    case FaultKind::kOtherType:
      return {op({COMMSCHED_ALL_REDUCE, COMMSCHED_ALL_GATHER,
                  COMMSCHED_ALL_TO_ALL, COMMSCHED_BROADCAST})};
    case FaultKind::kOtherReduction:
      return {op(
          {COMMSCHED_ALL_REDUCE, COMMSCHED_REDUCE_SCATTER, COMMSCHED_REDUCE})};
    case FaultKind::kOtherRoot:
      return {op({COMMSCHED_BROADCAST, COMMSCHED_REDUCE})};
    case FaultKind::kMissing:
      return {op(meeting)};
    case FaultKind::kOtherLength:
    case FaultKind::kNoSend:
    case FaultKind::kNoReceive:
    case FaultKind::kOtherTag:
    case FaultKind::kOtherPeer:
      break;
  }
  RandomOp message = op({COMMSCHED_SEND});
  message.tag = kFaultTag;
  message.to = fault->culprit;
  message.root = (fault->culprit + 1) % n;
  if (fault->kind != FaultKind::kNoReceive) {
    std::swap(message.to, message.root);
  }
  return {message};
}

inline std::vector<int> GuiltyOf(const RandomFault& fault, int n) {
  const int peer = (fault.culprit + 1) % n;
  switch (fault.kind) {
    case FaultKind::kOtherTag:
      return {fault.culprit, peer};
    case FaultKind::kOtherPeer:
      return {fault.culprit, peer, (fault.culprit + 2) % n};
    default:
      return {fault.culprit};
  }
}

// Puts a fault into a program. Of a group of two nobody sends to a third.
inline RandomFault InsertFault(std::mt19937_64* random, RandomProgram* program,
                               const FaultRules& rules = {}) {
  const auto pick = [&](size_t below) { return (*random)() % below; };
  RandomFault fault;
  std::vector<size_t> large;
  for (size_t g = 0; g < program->groups.size(); ++g) {
    if (program->groups[g].size() > 1) large.push_back(g);
  }
  if (large.empty()) {
    large.push_back(program->groups.size());
    RandomGroup all;
    all.ranks = program->worlds[0];
    program->groups.push_back(std::move(all));
  }
  fault.group = large[pick(large.size())];
  RandomGroup& group = program->groups[fault.group];
  fault.kind = static_cast<FaultKind>(
      pick(group.size() > 2 ? kNumFaults : kNumFaults - 1));
  fault.compares = rules.compares;
  fault.ends_world = rules.ends_world;
  if (!rules.has_tags && fault.kind == FaultKind::kOtherTag) {
    fault.kind = FaultKind::kNoSend;
  }
  fault.at = pick(group.ops.size() + 1);
  // Without tags what comes later would take its place.
  if (!rules.has_tags && fault.is_of_message()) fault.at = group.ops.size();
  fault.culprit = static_cast<int>(pick(group.ranks.size()));
  fault.guilty = GuiltyOf(fault, group.size());
  const std::vector<RandomOp> ops =
      OpsOfFault(random, group.size(), &fault, /*id=*/1000);
  group.ops.insert(group.ops.begin() + static_cast<std::ptrdiff_t>(fault.at),
                   ops.begin(), ops.end());
  if (!rules.has_tags) DropTags(program);
  // Backends may compare what all launch now and then only.
  for (uint32_t i = 0; i < kMoreOps; ++i) {
    RandomOp barrier;
    barrier.id = 2000 + i;
    group.ops.push_back(barrier);
  }
  return fault;
}

// Makes the culprit's ops from `at` on, among those that it takes part in, what
// they should not be. What is read and written fits all the same.
inline void Spoil(const RandomFault& fault, int n, size_t at,
                  std::deque<RankOp>* ops) {
  constexpr size_t kMore = 64;
  RankOp& op = (*ops)[at];
  const auto erase_from = [&](size_t begin, size_t end) {
    ops->erase(ops->begin() + static_cast<std::ptrdiff_t>(begin),
               ops->begin() + static_cast<std::ptrdiff_t>(end));
  };
  op.input.resize(op.input.size() + kMore);
  op.output.resize(op.output.size() + kMore);
  switch (fault.kind) {
    case FaultKind::kSwapped:
      std::swap((*ops)[at], (*ops)[at + 1]);
      break;
    case FaultKind::kOtherCount:
    case FaultKind::kOtherLength:
      op.op.count += 1;
      break;
    case FaultKind::kOtherParts:
      op.counts[static_cast<size_t>((fault.culprit + 1) % n)] += 1;
      break;
    case FaultKind::kOtherType:
      op.op.dtype = COMMSCHED_F32;
      break;
    case FaultKind::kOtherReduction:
      op.op.reduce_op = COMMSCHED_MAX;
      break;
    case FaultKind::kOtherRoot:
      op.input.resize(op.input.size() + op.op.count);
      op.output.resize(op.output.size() + op.op.count);
      op.op.peer = (op.op.peer + 1) % n;
      break;
    case FaultKind::kMissing:
      erase_from(at, ops->size());
      break;
    case FaultKind::kNoSend:
    case FaultKind::kNoReceive:
      erase_from(at, at + 1);
      break;
    case FaultKind::kOtherTag:
      op.op.tag += 1;
      break;
    case FaultKind::kOtherPeer:
      op.op.peer = (op.op.peer + 1) % n;
      break;
  }
}

// Ranks that a message blames, rather than says that they wait.
inline std::set<int> Blamed(const std::string& message) {
  static const std::regex kBlame(
      R"(\branks? ([0-9, -]+?) )"
      R"((is lost|left|failed|(has|have) (not|left)|(does|do) not answer)\b)");
  std::set<int> blamed;
  for (std::sregex_iterator it(message.begin(), message.end(), kBlame), end;
       it != end; ++it) {
    for (absl::string_view part : absl::StrSplit((*it)[1].str(), ", ")) {
      const std::pair<absl::string_view, absl::string_view> range =
          absl::StrSplit(part, absl::MaxSplits('-', 1));
      int first = 0, last = 0;
      if (!absl::SimpleAtoi(range.first, &first)) continue;
      if (!absl::SimpleAtoi(range.second, &last)) last = first;
      for (int rank = first; rank <= last; ++rank) blamed.insert(rank);
    }
  }
  return blamed;
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CHANNEL_RANDOM_FAULT_H_
