// The sequential reference of test/support/random_step.h, from the definitions
// of the collectives.
#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "graph/collective_shape.h"
#include "graph/region.h"
#include "test/support/random_step.h"

namespace commsched::test {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x7f4a7c15u;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9u;
  return x ^ (x >> 32);
}

// A late-bound buffer has 1 to this many of as many equal pieces.
constexpr uint64_t kLatePieces = 6;

// The indices that an access covers on a rank in a step, in the order in which
// a dense array has them.
std::vector<uint64_t> IndicesOf(const RandomStep& step, const Access& access,
                                const std::vector<uint64_t>& counts, int rank,
                                uint64_t t) {
  const Region& region = access.region;
  const int position = region.kind == RegionKind::kShard
                           ? step.PositionOf(region.group, rank)
                           : 0;
  Extent extent = ResolveRegion(step.graph, access, position, counts);
  extent.count = std::min(extent.count, CountInStep(step, access.buffer, t));
  std::vector<uint64_t> indices;
  for (uint64_t row = 0; row < extent.rows; ++row) {
    for (uint64_t i = 0; i < extent.count; ++i) {
      indices.push_back(extent.offset + row * extent.stride + i);
    }
  }
  return indices;
}

using Values = std::vector<int64_t>;
using Parts = std::vector<Values>;

// The state of the whole job: memory by world rank, and what was sent and not
// yet received, or is expected and not yet sent.
struct Job {
  using Route = std::tuple<GroupId, int, int>;  // from one rank to another
  std::vector<RankMemory> memory;
  std::map<Route, std::deque<Values>> sent;
  std::map<Route, std::deque<const Access*>> expected;
};

// One collective over the memory of the ranks of one communicator, by its
// definition: from parts to parts.
class CollectiveReference {
 public:
  CollectiveReference(const RandomStep& step, OpId op,
                      const std::vector<int>& ranks, uint64_t t, Job* job)
      : step_(step),
        op_(op),
        spec_(step.graph.op(op).collective),
        ranks_(ranks),
        t_(t),
        job_(*job) {}

  void Run() {
    const int n = static_cast<int>(ranks_.size());
    if (spec_.kind == CollectiveKind::kBarrier) return;
    if (HasInput(spec_.kind)) {
      for (int p = 0; p < n; ++p) inputs_.push_back(Take(p));
    }
    for (int p = 0; p < n; ++p) {
      if (!step_.Has(ranks_[p], op_)) continue;
      if (IsPointToPoint(spec_.kind)) {
        Meet(p);
      } else {
        Put(p, OutputOf(p));
      }
    }
  }

  // Where the input, or the output, of a rank lies.
  std::vector<uint64_t> Elements(int position, bool is_input) const {
    std::vector<uint64_t> all;
    const Access& side = is_input ? spec_.input : spec_.output;
    for (const auto& part : Layout(side, position, is_input)) {
      all.insert(all.end(), part.begin(), part.end());
    }
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  bool InputIsSplit() const {
    return spec_.kind == CollectiveKind::kReduceScatter ||
           spec_.kind == CollectiveKind::kAllToAll;
  }
  bool OutputIsSplit() const {
    return spec_.kind == CollectiveKind::kAllGather ||
           spec_.kind == CollectiveKind::kAllToAll;
  }
  bool IsLate(const Access& side) const {
    return side.buffer.valid() &&
           step_.graph.buffer(side.buffer).ownership == Ownership::kLateBound;
  }

  // Elements of a part in this step: a late-bound side says how many, and of
  // the other the beginning is used.
  uint64_t EqualPart(int position) const {
    const bool by_output = IsLate(spec_.output) && !IsLate(spec_.input);
    const bool is_input = HasInput(spec_.kind) && !by_output;
    const Access& side = is_input ? spec_.input : spec_.output;
    const bool split = is_input ? InputIsSplit() : OutputIsSplit();
    const uint64_t all =
        IndicesOf(step_, side, spec_.counts, ranks_[position], t_).size();
    return split ? all / ranks_.size() : all;
  }

  uint64_t PartCount(int position, size_t part, bool is_input) const {
    const size_t n = ranks_.size();
    const std::vector<uint64_t>& counts = spec_.counts;
    if (counts.empty()) return EqualPart(position);
    if (spec_.kind == CollectiveKind::kAllToAll) {
      return is_input ? counts[position * n + part]
                      : counts[part * n + position];
    }
    const bool split = is_input ? InputIsSplit() : OutputIsSplit();
    return counts[split ? part : position];
  }

  // Where the parts of a side lie: of a tile, columns of all its rows.
  std::vector<std::vector<uint64_t>> Layout(const Access& side, int position,
                                            bool is_input) const {
    const std::vector<uint64_t> all =
        IndicesOf(step_, side, spec_.counts, ranks_[position], t_);
    const bool split = is_input ? InputIsSplit() : OutputIsSplit();
    const size_t rows =
        side.region.kind == RegionKind::kTile ? side.region.rows : 1;
    std::vector<std::vector<uint64_t>> parts(split ? ranks_.size() : 1);
    size_t column = 0;
    for (size_t part = 0; part < parts.size(); ++part) {
      const size_t columns = PartCount(position, part, is_input) / rows;
      for (size_t row = 0; row < rows; ++row) {
        for (size_t i = 0; i < columns; ++i) {
          parts[part].push_back(all[row * (all.size() / rows) + column + i]);
        }
      }
      column += columns;
    }
    return parts;
  }

  Values& Memory(int rank, const Access& side) const {
    return job_.memory[rank][side.buffer.value()];
  }

  Parts Take(int position) const {
    const Values& buffer = Memory(ranks_[position], spec_.input);
    Parts parts;
    for (const auto& indices : Layout(spec_.input, position, true)) {
      parts.emplace_back();
      for (const uint64_t i : indices) parts.back().push_back(buffer[i]);
    }
    return parts;
  }

  void Put(int position, const Parts& parts) {
    if (parts.empty()) return;
    Values& buffer = Memory(ranks_[position], spec_.output);
    const auto layout = Layout(spec_.output, position, false);
    for (size_t part = 0; part < parts.size(); ++part) {
      for (size_t i = 0; i < parts[part].size(); ++i) {
        buffer[layout[part].at(i)] = parts[part][i];
      }
    }
  }

  // Sends and receives meet in declared order, whichever comes first.
  void Meet(int position) {
    const int n = static_cast<int>(ranks_.size());
    const int peer = ((position + spec_.peer_offset) % n + n) % n;
    const bool sends = spec_.kind == CollectiveKind::kSend;
    const int from = sends ? position : peer;
    const int to = sends ? peer : position;
    const Job::Route route = {spec_.group, ranks_[from], ranks_[to]};
    auto& sent = job_.sent[route];
    auto& expected = job_.expected[route];
    if (sends) {
      sent.push_back(inputs_[position][0]);
    } else {
      expected.push_back(&spec_.output);
    }
    if (sent.empty() || expected.empty()) return;
    const auto indices =
        IndicesOf(step_, *expected.front(), {}, ranks_[to], t_);
    Values& buffer = Memory(ranks_[to], *expected.front());
    for (size_t i = 0; i < indices.size(); ++i) {
      buffer[indices[i]] = sent.front().at(i);
    }
    sent.pop_front();
    expected.pop_front();
  }

  Parts OutputOf(int position) const {
    Parts parts;
    switch (spec_.kind) {
      case CollectiveKind::kAllReduce:
        return {Reduced(0)};
      case CollectiveKind::kReduce:
        if (position == spec_.root) parts = {Reduced(0)};
        break;
      case CollectiveKind::kReduceScatter:
        return {Reduced(position)};
      case CollectiveKind::kAllGather:
        for (const Parts& input : inputs_) parts.push_back(input[0]);
        break;
      case CollectiveKind::kAllToAll:
        for (const Parts& input : inputs_) parts.push_back(input[position]);
        break;
      case CollectiveKind::kBroadcast:
        return inputs_[spec_.root];
      case CollectiveKind::kBarrier:
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv:
        break;
    }
    return parts;
  }

  Values Reduced(size_t part) const {
    Values result = inputs_[0][part];
    for (size_t r = 1; r < inputs_.size(); ++r) {
      for (size_t i = 0; i < result.size(); ++i) {
        result[i] = Combine(result[i], inputs_[r][part][i]);
      }
    }
    return result;
  }

  int64_t Combine(int64_t a, int64_t b) const {
    if (spec_.reduce_op == ReduceOp::kMin) return std::min(a, b);
    if (spec_.reduce_op == ReduceOp::kMax) return std::max(a, b);
    return static_cast<int64_t>(static_cast<uint64_t>(a) +
                                static_cast<uint64_t>(b));
  }

  const RandomStep& step_;
  const OpId op_;
  const CollectiveSpec& spec_;
  const std::vector<int>& ranks_;
  const uint64_t t_;
  Job& job_;
  std::vector<Parts> inputs_;  // by position
};

}  // namespace

uint64_t CountInStep(const RandomStep& step, BufferId buffer, uint64_t t) {
  const Buffer& desc = step.graph.buffer(buffer);
  if (desc.ownership != Ownership::kLateBound) return desc.count;
  const uint64_t pieces = 1 + Mix(step.graph.ops().size(), t) % kLatePieces;
  return desc.count / kLatePieces * pieces;
}

RankMemory InitialMemory(const RandomStep& step, int rank) {
  RankMemory memory;
  for (const Buffer& buffer : step.graph.buffers()) {
    Values values(buffer.count);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int64_t>(Mix(Mix(memory.size(), rank), i));
    }
    memory.push_back(std::move(values));
  }
  return memory;
}

void RunCompute(const RandomStep& step, OpId id, uint64_t t, int rank,
                const std::vector<int64_t*>& address) {
  const Op& op = step.graph.op(id);
  uint64_t hash = Mix(Mix(id.value(), t), rank);
  for (const Access& access : op.accesses) {
    if (!Reads(access.mode)) continue;
    const int64_t* from = address[access.buffer.value()];
    for (const uint64_t i : IndicesOf(step, access, {}, rank, t)) {
      hash = Mix(hash, from[i]);
    }
  }
  for (const Access& access : op.accesses) {
    if (!Writes(access.mode)) continue;
    int64_t* to = address[access.buffer.value()];
    uint64_t written = 0;
    for (const uint64_t i : IndicesOf(step, access, {}, rank, t)) {
      to[i] = static_cast<int64_t>(Mix(hash, written++));
    }
  }
}

namespace {

void AddRuns(BufferId buffer, bool writes, const std::vector<uint64_t>& indices,
             std::vector<ElementRun>* runs) {
  const size_t first = runs->size();
  for (const uint64_t i : indices) {
    if (runs->size() > first && runs->back().begin + runs->back().count == i) {
      ++runs->back().count;
    } else {
      runs->push_back({buffer, i, 1, writes});
    }
  }
}

}  // namespace

std::vector<ElementRun> ElementsOfCompute(const RandomStep& step, OpId id,
                                          uint64_t t, int rank) {
  std::vector<ElementRun> runs;
  for (const Access& access : step.graph.op(id).accesses) {
    const std::vector<uint64_t> indices = IndicesOf(step, access, {}, rank, t);
    if (Reads(access.mode)) AddRuns(access.buffer, false, indices, &runs);
    if (Writes(access.mode)) AddRuns(access.buffer, true, indices, &runs);
  }
  return runs;
}

std::vector<ElementRun> ElementsOfCollective(const RandomStep& step, OpId id,
                                             uint64_t t, int rank) {
  const CollectiveSpec& spec = step.graph.op(id).collective;
  std::vector<ElementRun> runs;
  if (spec.kind == CollectiveKind::kBarrier) return runs;
  const int position = step.PositionOf(spec.group, rank);
  const bool is_root = position == spec.root;
  Job job;
  const CollectiveReference reference(step, id, step.RanksOf(spec.group, rank),
                                      t, &job);
  const auto add = [&](const Access& side, bool writes) {
    AddRuns(side.buffer, writes, reference.Elements(position, !writes), &runs);
  };
  if (spec.kind != CollectiveKind::kRecv &&
      (spec.kind != CollectiveKind::kBroadcast || is_root)) {
    add(spec.input, false);
  }
  if (spec.kind != CollectiveKind::kSend &&
      (spec.kind != CollectiveKind::kReduce || is_root)) {
    add(spec.output, true);
  }
  return runs;
}

namespace {

void RunStep(const RandomStep& step, uint64_t t, Job* job) {
  for (uint32_t i = 0; i < step.graph.ops().size(); ++i) {
    const Op& op = step.graph.ops()[i];
    if (op.kind == OpKind::kCollective) {
      for (const auto& ranks :
           step.communicators[op.collective.group.value()]) {
        CollectiveReference(step, OpId(i), ranks, t, job).Run();
      }
      continue;
    }
    for (int r = 0; r < step.num_ranks; ++r) {
      if (!step.Has(r, OpId(i))) continue;
      std::vector<int64_t*> address;
      for (auto& buffer : job->memory[r]) address.push_back(buffer.data());
      RunCompute(step, OpId(i), t, r, address);
    }
  }
}

}  // namespace

std::vector<std::vector<RankMemory>> RunStepByStep(const RandomStep& step,
                                                   uint64_t num_steps) {
  Job job;
  for (int r = 0; r < step.num_ranks; ++r) {
    job.memory.push_back(InitialMemory(step, r));
  }
  std::vector<std::vector<RankMemory>> after = {job.memory};
  for (uint64_t t = 0; t < num_steps; ++t) {
    RunStep(step, t, &job);
    after.push_back(job.memory);
  }
  return after;
}

std::vector<RankMemory> RunSequentially(const RandomStep& step,
                                        uint64_t num_steps) {
  return std::move(RunStepByStep(step, num_steps).back());
}

}  // namespace commsched::test
