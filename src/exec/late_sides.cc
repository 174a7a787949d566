// The part of exec/flatten.h about buffers that are bound step by step.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "exec/flatten.h"
#include "graph/collective_shape.h"
#include "graph/region.h"

namespace commsched {
namespace {

class LateSideFiller {
 public:
  LateSideFiller(const Plan& plan, const Binding& binding, Program* program)
      : plan_(plan),
        graph_(*plan.graph),
        binding_(binding),
        program_(*program),
        index_of_(graph_.buffers().size(), Plan::kNone) {}

  absl::Status Run() {
    if (graph_.late_at_submit()) {
      CollectOfSubmissions();
    } else {
      RETURN_IF_ERROR(CollectBuffers());
    }
    if (program_.late_buffers.empty()) return absl::OkStatus();
    for (uint32_t i = 0; i < plan_.launches.size(); ++i) {
      RETURN_IF_ERROR(AddLaunch(i));
    }
    CollectUses();
    return absl::OkStatus();
  }

 private:
  // In order of their writers, so that those of one writer are neighbours.
  absl::Status CollectBuffers() {
    std::vector<LateBuffer> found;
    std::vector<uint32_t> writer(graph_.buffers().size(), Plan::kNone);
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      const Op& op = graph_.op(plan_.nodes[i].op);
      for (const Access& access : op.accesses) {
        const Buffer& buffer = graph_.buffer(access.buffer);
        if (buffer.ownership != Ownership::kLateBound || !Writes(access.mode)) {
          continue;
        }
        uint32_t& first = writer[access.buffer.value()];
        if (first != Plan::kNone) {
          return absl::FailedPreconditionError(absl::StrCat(
              "session: late-bound buffer '", buffer.name, "' is written by '",
              program_.OpName(first), "' and by '", op.name,
              "'; one compute op must bind it"));
        }
        first = i;
        index_of_[access.buffer.value()] =
            static_cast<uint32_t>(program_.late_buffers.size());
        program_.late_buffers.push_back(
            {.buffer = access.buffer, .writer = i, .uses = {}});
        Span32& writes = program_.nodes[i].late_writes;
        if (writes.count++ == 0) {
          writes.begin = index_of_[access.buffer.value()];
        }
      }
    }
    for (uint32_t b = 0; b < graph_.buffers().size(); ++b) {
      const Buffer& buffer = graph_.buffers()[b];
      if (buffer.ownership != Ownership::kLateBound) continue;
      if (index_of_[b] != Plan::kNone) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("session: no compute op writes late-bound buffer '",
                       buffer.name, "'"));
    }
    return absl::OkStatus();
  }

  // In order of the ops, so that those of one submission are neighbours.
  void CollectOfSubmissions() {
    std::vector<OpId> ops = binding_.submitted;
    std::sort(ops.begin(), ops.end());
    program_.late_of_op.resize(graph_.ops().size());
    for (OpId op : ops) {
      Span32& span = program_.late_of_op[op.value()];
      span.begin = static_cast<uint32_t>(program_.late_buffers.size());
      for (const Access& access : graph_.op(op).accesses) {
        const Buffer& buffer = graph_.buffer(access.buffer);
        if (buffer.ownership != Ownership::kLateBound) continue;
        if (IndexOf(op, access.buffer) != Plan::kNone) continue;  // in place
        program_.late_buffers.push_back(
            {.buffer = access.buffer, .writer = Plan::kNone, .uses = {}});
        ++span.count;
      }
    }
  }

  // The late-bound buffer that `buffer` is for `op`, or kNone.
  uint32_t IndexOf(OpId op, BufferId buffer) const {
    if (!graph_.late_at_submit()) return index_of_[buffer.value()];
    const Span32 span = program_.late_of_op[op.value()];
    for (uint32_t b = span.begin; b < span.begin + span.count; ++b) {
      if (program_.late_buffers[b].buffer == buffer) return b;
    }
    return Plan::kNone;
  }

  absl::Status AddLaunch(uint32_t index) {
    const Launch& launch = plan_.launches[index];
    LaunchProgram& to = program_.launches[index];
    to.late.begin = static_cast<uint32_t>(program_.late_members.size());
    for (uint32_t m = 0; m < launch.members.size(); ++m) {
      const Op& op = graph_.op(launch.members[m]);
      if (op.collective.kind == CollectiveKind::kBarrier) continue;
      LateMember late;
      late.op = launch.members[m];
      late.launch = index;
      late.member =
          static_cast<uint32_t>(to.call.members - program_.members.data()) + m;
      const bool reads = HasInput(op.collective.kind);
      const bool writes = HasOutput(op.collective.kind);
      if (reads) late.input = IndexOf(late.op, op.collective.input.buffer);
      if (writes) late.output = IndexOf(late.op, op.collective.output.buffer);
      if (graph_.late_at_submit()) {
        RETURN_IF_ERROR(CheckSubmitted(op, late));
      }
      if (late.input == Plan::kNone && late.output == Plan::kNone) continue;
      if (launch.way != Way::kSingle && launch.way != Way::kGroup) {
        return absl::InternalError(absl::StrCat(
            "session: '", op.name, "' has a late-bound side but is packed"));
      }
      RETURN_IF_ERROR(CheckWrittenBefore(late.op, late.input));
      RETURN_IF_ERROR(CheckWrittenBefore(late.op, late.output));
      FillMember(op.collective, &late);
      program_.late_members.push_back(late);
    }
    to.late.count =
        static_cast<uint32_t>(program_.late_members.size()) - to.late.begin;
    return absl::OkStatus();
  }

  absl::Status CheckSubmitted(const Op& op, const LateMember& late) const {
    for (const Access& access : op.accesses) {
      const Buffer& buffer = graph_.buffer(access.buffer);
      if (buffer.ownership != Ownership::kLateBound) continue;
      if (late.input != Plan::kNone || late.output != Plan::kNone) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          "session: '", op.name, "' uses late-bound buffer '", buffer.name,
          "', but nobody submits it, which would bind it"));
    }
    return absl::OkStatus();
  }

  // In a launch's own step its address must be known.
  absl::Status CheckWrittenBefore(OpId op, uint32_t late_buffer) const {
    if (late_buffer == Plan::kNone || graph_.late_at_submit()) {
      return absl::OkStatus();
    }
    const LateBuffer& late = program_.late_buffers[late_buffer];
    const OpId writer = program_.nodes[late.writer].op;
    const auto& position = plan_.dependencies.position;
    if (position[writer.value()] < position[op.value()]) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "session: '", graph_.op(op).name, "' uses late-bound buffer '",
        graph_.buffer(late.buffer).name, "' before '", graph_.op(writer).name,
        "' binds it in the step"));
  }

  void FillMember(const CollectiveSpec& spec, LateMember* late) {
    late->group_size = graph_.group(spec.group).size;
    late->group_rank = binding_.group_rank[spec.group.value()];
    if (HasInput(spec.kind)) {
      late->input_count = CountOf(spec.input, spec.counts);
    }
    if (HasOutput(spec.kind)) {
      late->output_count = CountOf(spec.output, spec.counts);
    }
    if (spec.counts.empty()) return;
    late->num_counts = static_cast<uint32_t>(spec.counts.size());
    late->counts_at = static_cast<uint32_t>(program_.late_counts.size());
    program_.late_counts.insert(program_.late_counts.end(), spec.counts.begin(),
                                spec.counts.end());
    for (uint32_t side : {late->input, late->output}) {
      if (side == Plan::kNone) continue;
      uint32_t& longest = program_.late_buffers[side].max_counts;
      longest = std::max(longest, late->num_counts);
    }
  }

  uint64_t CountOf(const Access& access,
                   const std::vector<uint64_t>& counts) const {
    const int rank = access.region.kind == RegionKind::kShard
                         ? binding_.group_rank[access.region.group.value()]
                         : 0;
    return ResolveRegion(graph_, access, rank, counts).count;
  }

  void CollectUses() {
    std::vector<std::vector<uint32_t>> uses(program_.late_buffers.size());
    for (uint32_t i = 0; i < program_.late_members.size(); ++i) {
      const LateMember& late = program_.late_members[i];
      if (late.input != Plan::kNone) uses[late.input].push_back(i);
      if (late.output != Plan::kNone && late.output != late.input) {
        uses[late.output].push_back(i);
      }
    }
    for (size_t b = 0; b < uses.size(); ++b) {
      program_.late_buffers[b].uses = {
          static_cast<uint32_t>(program_.late_uses.size()),
          static_cast<uint32_t>(uses[b].size())};
      program_.late_uses.insert(program_.late_uses.end(), uses[b].begin(),
                                uses[b].end());
    }
  }

  const Plan& plan_;
  const Graph& graph_;
  const Binding& binding_;
  Program& program_;
  std::vector<uint32_t> index_of_;  // by BufferId: in late_buffers, or kNone
};

}  // namespace

absl::Status FillLateSides(const Plan& plan, const Binding& binding,
                           Program* program) {
  return LateSideFiller(plan, binding, program).Run();
}

}  // namespace commsched
