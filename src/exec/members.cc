// The part of exec/flatten.h about what a backend is given: where each member
// of each launch reads and writes, and what is copied before and after.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "exec/flatten.h"
#include "graph/collective_shape.h"
#include "graph/region.h"
#include "plan/coding.h"

namespace commsched {
namespace {

// One side of a collective on this rank, in elements: dense is one row.
struct Side {
  char* base = nullptr;
  uint64_t rows = 1;
  uint64_t row_count = 0;
  uint64_t row_stride = 0;
  uint64_t count() const { return rows * row_count; }
};

// One collective of the graph on this rank.
struct Resolved {
  const CollectiveSpec* spec = nullptr;
  Side input, output;
  uint64_t count = 0;  // commsched_member_t::count
  int peer = 0;
};

class MemberFiller {
 public:
  MemberFiller(const Plan& plan, const Binding& binding, Program* program)
      : plan_(plan),
        graph_(*plan.graph),
        binding_(binding),
        program_(*program) {}

  // Members are pushed first and pointed to last, so that the vector may grow.
  void Run() {
    std::vector<Span32> spans;
    spans.reserve(plan_.launches.size());
    for (uint32_t i = 0; i < plan_.launches.size(); ++i) {
      const uint32_t begin = static_cast<uint32_t>(program_.members.size());
      AddMembers(i);
      spans.push_back(
          {begin, static_cast<uint32_t>(program_.members.size()) - begin});
    }
    for (size_t i = 0; i < spans.size(); ++i) {
      commsched_launch_t& call = program_.launches[i].call;
      call.num_members = spans[i].count;
      call.members = program_.members.data() + spans[i].begin;
    }
  }

 private:
  void AddMembers(uint32_t index) {
    const Launch& launch = plan_.launches[index];
    switch (launch.way) {
      case Way::kSingle:
      case Way::kGroup:
        for (OpId op : launch.members) {
          program_.members.push_back(MemberOf(Resolve(op), launch.piece));
        }
        return;
      case Way::kInPlace: {
        commsched_member_t merged =
            MemberOf(Resolve(launch.members.front()), launch.piece);
        for (size_t i = 1; i < launch.members.size(); ++i) {
          merged.count += Resolve(launch.members[i]).count;
        }
        program_.members.push_back(merged);
        return;
      }
      case Way::kPack:
        AddPacked(index);
        return;
    }
  }

  Resolved Resolve(OpId id) const {
    Resolved resolved;
    const CollectiveSpec& spec = graph_.op(id).collective;
    resolved.spec = &spec;
    if (spec.kind == CollectiveKind::kBarrier) return resolved;
    if (HasInput(spec.kind)) {
      resolved.input = SideOf(spec.input, spec.counts);
    }
    if (HasOutput(spec.kind)) {
      resolved.output = SideOf(spec.output, spec.counts);
    }
    resolved.count = PartCount(resolved);
    const int size = graph_.group(spec.group).size;
    const int own = binding_.group_rank[spec.group.value()];
    resolved.peer = ((own + spec.peer_offset) % size + size) % size;
    return resolved;
  }

  Side SideOf(const Access& access, const std::vector<uint64_t>& counts) const {
    const Buffer& buffer = graph_.buffer(access.buffer);
    char* address =
        static_cast<char*>(binding_.buffer_address[access.buffer.value()]);
    const Region& region = access.region;
    if (region.kind == RegionKind::kTile) {
      return {address + region.offset * DTypeSize(buffer.dtype), region.rows,
              region.count, region.stride};
    }
    // A shard is resolved in its own group, which need not be the
    // collective's.
    const int rank = region.kind == RegionKind::kShard
                         ? binding_.group_rank[region.group.value()]
                         : 0;
    const Extent extent = ResolveRegion(graph_, access, rank, counts);
    // Late-bound: the address comes later, and the region is the whole.
    if (address != nullptr) address += extent.offset * DTypeSize(buffer.dtype);
    return {address, 1, extent.count, extent.count};
  }

  // Elements of one part (commsched_member_t::count).
  uint64_t PartCount(const Resolved& resolved) const {
    const CollectiveSpec& spec = *resolved.spec;
    if (spec.kind == CollectiveKind::kReduceScatter) {
      return resolved.output.count();
    }
    if (spec.kind == CollectiveKind::kAllToAll) {
      return resolved.input.count() / graph_.group(spec.group).size;
    }
    return HasInput(spec.kind) ? resolved.input.count()
                               : resolved.output.count();
  }

  // A piece takes the same elements of every part, so that parts are no longer
  // side by side.
  commsched_member_t MemberOf(const Resolved& resolved,
                              const Piece& piece) const {
    const CollectiveSpec& spec = *resolved.spec;
    commsched_member_t member = {};
    if (spec.kind == CollectiveKind::kBarrier) return member;
    char* input = resolved.input.base;
    char* output = resolved.output.base;
    member.count = resolved.count;
    member.counts = spec.counts.empty() ? nullptr : spec.counts.data();
    if (piece.of > 1) {
      const uint64_t offset = piece.offset * ElementBytes(spec);
      input += offset;
      output += offset;
      if (SplitsInput(spec.kind)) member.input_stride = member.count;
      if (SplitsOutput(spec.kind)) member.output_stride = member.count;
      member.count = piece.count;
    }
    member.input = input;
    member.output = output;
    if (IsPointToPoint(spec.kind)) {
      member.peer = resolved.peer;
      member.direction = static_cast<uint32_t>(spec.kind);
    }
    return member;
  }

  uint64_t ElementBytes(const CollectiveSpec& spec) const {
    return DTypeSize(graph_.buffer(AnySide(spec).buffer).dtype);
  }

  void AddPacked(uint32_t index) {
    const Launch& launch = plan_.launches[index];
    std::vector<Resolved> members;
    for (OpId op : launch.members) members.push_back(Resolve(op));
    char* arena = static_cast<char*>(binding_.arena);
    char* input = arena + launch.staging_offset;
    char* output = arena + launch.staging_output;
    if (IsPointToPoint(launch.kind)) {
      AddPackedPeers(index, members, input, output);
      return;
    }
    if (launch.coded) {
      AddCoded(index, members, input, output);
      return;
    }
    commsched_member_t packed = {};
    packed.input = input;
    packed.output = output;
    for (const Resolved& member : members) packed.count += member.count;
    // Uneven parts travel alone.
    const std::vector<uint64_t>& counts = members.front().spec->counts;
    if (!counts.empty()) packed.counts = counts.data();
    program_.members.push_back(packed);

    LaunchProgram& to = program_.launches[index];
    to.staging_in.begin = NumSteps();
    AddSteps(members, &Resolved::input, input);
    to.staging_in.count = NumSteps() - to.staging_in.begin;
    to.staging_out.begin = NumSteps();
    const int rank = binding_.group_rank[launch.group.value()];
    if (launch.kind != CollectiveKind::kReduce || rank == launch.root) {
      AddSteps(members, &Resolved::output, output);
    }
    to.staging_out.count = NumSteps() - to.staging_out.begin;
  }

  // Encoded parts, rank-major as packed ones, which travel as bytes. To sum
  // them, a rank needs them all: a reduce-scatter travels as an all-to-all.
  void AddCoded(uint32_t index, const std::vector<Resolved>& members,
                char* input, char* output) {
    const Launch& launch = plan_.launches[index];
    const uint32_t n = static_cast<uint32_t>(graph_.group(launch.group).size);
    const bool sums = launch.kind == CollectiveKind::kReduceScatter;
    std::vector<uint64_t> offset;  // of a member within what a rank gets
    uint64_t part_bytes = 0;
    for (const Resolved& member : members) {
      offset.push_back(part_bytes);
      part_bytes += EncodedBytes(plan_.options.codec, member.count);
    }
    commsched_member_t coded = {};
    coded.input = input;
    coded.output = output;
    coded.count = part_bytes;
    program_.members.push_back(coded);
    LaunchProgram& to = program_.launches[index];
    to.call.dtype = COMMSCHED_U8;
    if (sums) to.call.kind = COMMSCHED_ALL_TO_ALL;

    const bool encodes =
        launch.kind != CollectiveKind::kBroadcast ||
        launch.root == binding_.group_rank[launch.group.value()];
    const uint32_t parts_in = !encodes ? 0 : SplitsInput(launch.kind) ? n : 1;
    const uint32_t parts_out = SplitsOutput(launch.kind) ? n : 1;
    to.coded_in = AddCodedSteps(members, offset, parts_in, part_bytes,
                                CodedStep::Kind::kEncode, input);
    to.coded_out = AddCodedSteps(
        members, offset, parts_out, part_bytes,
        sums ? CodedStep::Kind::kSum : CodedStep::Kind::kDecode, output);
    if (!sums) return;
    for (uint32_t i = 0; i < to.coded_out.count; ++i) {
      CodedStep& step = program_.coded[to.coded_out.begin + i];
      step.parts = n;
      step.part_stride = part_bytes;
      if (launch.reduce_op == ReduceOp::kAvg) {
        step.scale = 1.0f / static_cast<float>(n);
      }
    }
  }

  Span32 AddCodedSteps(const std::vector<Resolved>& members,
                       const std::vector<uint64_t>& offset, uint32_t parts,
                       uint64_t part_bytes, CodedStep::Kind kind,
                       char* staging) {
    const Span32 span{static_cast<uint32_t>(program_.coded.size()),
                      parts * static_cast<uint32_t>(members.size())};
    for (uint32_t part = 0; part < parts; ++part) {
      for (size_t m = 0; m < members.size(); ++m) {
        const Resolved& member = members[m];
        const bool in = kind == CodedStep::Kind::kEncode;
        const uint64_t bytes = member.count * ElementBytes(*member.spec);
        char* user =
            (in ? member.input.base : member.output.base) + part * bytes;
        char* coded = staging + part * part_bytes + offset[m];
        CodedStep step;
        step.kind = kind;
        step.dtype = graph_.buffer(member.spec->input.buffer).dtype;
        step.to = in ? coded : user;
        step.from = in ? user : coded;
        step.count = member.count;
        program_.coded.push_back(step);
      }
    }
    return span;
  }

  // Sends and receives stay members of their own, each on its piece of the
  // staging memory.
  void AddPackedPeers(uint32_t index, const std::vector<Resolved>& members,
                      char* input, char* output) {
    std::vector<std::pair<Side, char*>> sends, receives;
    for (const Resolved& from : members) {
      commsched_member_t member = MemberOf(from, Piece{});
      const uint64_t bytes = from.count * ElementBytes(*from.spec);
      if (from.spec->kind == CollectiveKind::kSend) {
        sends.push_back({from.input, input});
        member.input = input;
        input += bytes;
      } else {
        receives.push_back({from.output, output});
        member.output = output;
        output += bytes;
      }
      program_.members.push_back(member);
    }
    const uint64_t size = ElementBytes(*members.front().spec);
    LaunchProgram& to = program_.launches[index];
    to.staging_in.begin = NumSteps();
    for (const auto& [side, at] : sends) {
      AddStep(side, 0, side.row_count, size, at, /*into_staging=*/true);
    }
    to.staging_in.count = NumSteps() - to.staging_in.begin;
    to.staging_out.begin = NumSteps();
    for (const auto& [side, at] : receives) {
      AddStep(side, 0, side.row_count, size, at, /*into_staging=*/false);
    }
    to.staging_out.count = NumSteps() - to.staging_out.begin;
  }

  uint32_t NumSteps() const {
    return static_cast<uint32_t>(program_.staging.size());
  }

  // Staging is rank-major: all members' parts of rank 0, then of rank 1, ...
  void AddSteps(const std::vector<Resolved>& members, Side Resolved::*side,
                char* staging) {
    const bool is_input = side == &Resolved::input;
    const uint64_t size = ElementBytes(*members.front().spec);
    std::vector<std::vector<uint64_t>> parts;
    for (const Resolved& member : members) {
      parts.push_back(PartsOf(member, member.*side, is_input));
    }
    std::vector<uint64_t> column(members.size());  // where the part begins
    for (size_t part = 0; part < parts.front().size(); ++part) {
      for (size_t m = 0; m < members.size(); ++m) {
        const Side& from = members[m].*side;
        const uint64_t columns = parts[m][part] / from.rows;
        AddStep(from, column[m], columns, size, staging, is_input);
        column[m] += columns;
        staging += parts[m][part] * size;
      }
    }
  }

  // Elements of each part of a side; one part if the kind does not split it.
  std::vector<uint64_t> PartsOf(const Resolved& member, const Side& side,
                                bool is_input) const {
    const CollectiveSpec& spec = *member.spec;
    const size_t n = static_cast<size_t>(graph_.group(spec.group).size);
    const size_t own = binding_.group_rank[spec.group.value()];
    const std::vector<uint64_t>& counts = spec.counts;
    const bool split =
        is_input ? SplitsInput(spec.kind) : SplitsOutput(spec.kind);
    if (!split) {
      return {counts.empty() ? side.count() : counts[own]};
    }
    if (counts.empty()) {
      return std::vector<uint64_t>(n, side.count() / n);
    }
    if (spec.kind != CollectiveKind::kAllToAll) return counts;
    std::vector<uint64_t> parts(n);
    for (size_t p = 0; p < n; ++p) {
      parts[p] = is_input ? counts[own * n + p] : counts[p * n + own];
    }
    return parts;
  }

  // `columns` columns of every row of `side`, from `column` on.
  void AddStep(const Side& side, uint64_t column, uint64_t columns,
               uint64_t size, char* staging, bool into_staging) {
    StagingStep step;
    char* at = side.base + column * size;
    step.row_bytes = columns * size;
    step.rows = side.rows;
    step.to = into_staging ? staging : at;
    step.from = into_staging ? at : staging;
    step.to_stride = into_staging ? step.row_bytes : side.row_stride * size;
    step.from_stride = into_staging ? side.row_stride * size : step.row_bytes;
    program_.staging.push_back(step);
  }

  const Plan& plan_;
  const Graph& graph_;
  const Binding& binding_;
  Program& program_;
};

}  // namespace

void FillMembers(const Plan& plan, const Binding& binding, Program* program) {
  MemberFiller(plan, binding, program).Run();
}

}  // namespace commsched
