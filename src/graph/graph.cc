#include "graph/graph.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"
#include "graph/topological_order.h"
#include "graph/validate.h"

namespace commsched {
namespace {

template <typename Id>
using Names = absl::flat_hash_map<std::string, Id>;

template <typename Id>
absl::Status CheckNewName(absl::string_view what, absl::string_view name,
                          const Names<Id>& names) {
  RETURN_IF_ERROR(ValidateName(what, name));
  if (!names.contains(name)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat("another ", what, " is called '", name, "'"));
}

absl::Status CheckRoom(absl::string_view what, uint64_t wanted,
                       uint64_t limit) {
  if (wanted <= limit) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(wanted, " ", what, " exceed the limit of ", limit));
}

template <typename Id>
absl::StatusOr<Id> Find(absl::string_view what, absl::string_view name,
                        const Names<Id>& names) {
  const auto found = names.find(name);
  if (found != names.end()) return found->second;
  return absl::NotFoundError(absl::StrCat(
      "no ", what, " is called '", name.substr(0, Graph::kMaxNameBytes), "'"));
}

void Normalize(Region& region) {
  if (region.kind != RegionKind::kShard) region.group = GroupId();
  const bool tile = region.kind == RegionKind::kTile;
  if (!tile && region.kind != RegionKind::kRange) {
    region.offset = region.count = 0;
  }
  if (!tile) region.rows = region.stride = 0;
}

void NormalizeCollective(Op& op) {
  CollectiveSpec& spec = op.collective;
  if (!IsReducing(spec.kind)) spec.reduce_op = ReduceOp::kSum;
  if (!IsRooted(spec.kind)) spec.root = 0;
  if (!IsPointToPoint(spec.kind)) spec.peer_offset = 0;
  op.accesses.clear();
  const auto normalize = [&](bool has_side, AccessMode mode, Access& side) {
    if (!has_side) {
      side = Access{};
      return;
    }
    side.mode = mode;
    Normalize(side.region);
    op.accesses.push_back(side);
  };
  normalize(HasInput(spec.kind), AccessMode::kRead, spec.input);
  normalize(HasOutput(spec.kind), AccessMode::kWrite, spec.output);
}

// Resets what the kind does not use, so that equal ops compare and hash equal.
void Normalize(Op& op) {
  if (op.kind != OpKind::kCompute) op.compute = ComputeSpec{};
  if (op.kind != OpKind::kCollective) op.collective = CollectiveSpec{};
  if (op.kind == OpKind::kCollective) {
    NormalizeCollective(op);
  } else {
    for (Access& access : op.accesses) Normalize(access.region);
  }
}

absl::Status ValidateKind(const Graph& graph, const Op& op) {
  switch (op.kind) {
    case OpKind::kCompute:
      return ValidateCompute(graph, op);
    case OpKind::kCollective:
      return ValidateCollective(graph, op);
  }
  return absl::InvalidArgumentError(absl::StrCat("op '", op.name, "': kind ",
                                                 static_cast<int>(op.kind),
                                                 " is not in 0..1"));
}

bool IsBackward(const ExplicitEdge& edge) {
  return edge.distance == 0 && edge.from >= edge.to;
}

}  // namespace

absl::Status Graph::Reserve(uint64_t num_ops) {
  RETURN_IF_ERROR(CheckRoom("ops", num_ops, kMaxOps));
  ops_.reserve(num_ops);
  kinds_.reserve(num_ops);
  op_names_.reserve(num_ops);
  return absl::OkStatus();
}

absl::StatusOr<GroupId> Graph::AddGroup(absl::string_view name, int size) {
  RETURN_IF_ERROR(CheckNewName("group", name, group_names_));
  if (size < 1 || size > kMaxGroupSize) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group '", name, "': size ", size, " is not in 1..", kMaxGroupSize));
  }
  RETURN_IF_ERROR(CheckRoom("groups", groups_.size() + 1, kMaxBuffers));
  const GroupId id(static_cast<uint32_t>(groups_.size()));
  groups_.push_back({.name = std::string(name), .size = size});
  group_names_.emplace(name, id);
  return id;
}

absl::StatusOr<BufferId> Graph::AddBuffer(Buffer buffer) {
  RETURN_IF_ERROR(CheckNewName("buffer", buffer.name, buffer_names_));
  RETURN_IF_ERROR(ValidateBuffer(buffer));
  RETURN_IF_ERROR(CheckRoom("buffers", buffers_.size() + 1, kMaxBuffers));
  const BufferId id(static_cast<uint32_t>(buffers_.size()));
  buffer_names_.emplace(buffer.name, id);
  has_place_groups_ = has_place_groups_ || buffer.place_group != 0;
  buffers_.push_back(std::move(buffer));
  return id;
}

absl::StatusOr<OpId> Graph::AddOp(Op op) {
  RETURN_IF_ERROR(CheckNewName("op", op.name, op_names_));
  RETURN_IF_ERROR(CheckRoom("ops", ops_.size() + 1, kMaxOps));
  for (const OpId after : op.after) {
    if (after.value() < ops_.size()) continue;
    return absl::NotFoundError(
        absl::StrCat("op '", op.name, "' comes after op ", after.value(),
                     ", but the graph has ", ops_.size(), " ops"));
  }
  Normalize(op);
  RETURN_IF_ERROR(ValidateKind(*this, op));
  const OpId id(static_cast<uint32_t>(ops_.size()));
  op_names_.emplace(op.name, id);
  ops_.push_back(std::move(op));
  NoteOp(id);
  return id;
}

void Graph::NoteOp(OpId id) {
  kinds_.push_back(op(id).kind);
  has_point_to_point_ =
      has_point_to_point_ || (op(id).kind == OpKind::kCollective &&
                              IsPointToPoint(op(id).collective.kind));
  for (const Access& access : op(id).accesses) {
    has_tiles_ = has_tiles_ || access.region.kind == RegionKind::kTile;
    if (!late_at_submit() &&
        buffer(access.buffer).ownership == Ownership::kLateBound) {
      late_bound_writers_.try_emplace(access.buffer, id);  // the first writes
    }
  }
}

// What the graph has had, such as tiles, it may have still: passes only look
// for more than there is.
void Graph::ClearOp(OpId id) {
  op_names_.erase(ops_[id.value()].name);
  ops_[id.value()] = Op();
  kinds_[id.value()] = OpKind::kCompute;
}

void Graph::ClearBuffer(BufferId id) {
  buffer_names_.erase(buffers_[id.value()].name);
  buffers_[id.value()] = Buffer();
}

OpId Graph::LateBoundWriter(BufferId id) const {
  const auto found = late_bound_writers_.find(id);
  return found == late_bound_writers_.end() ? OpId() : found->second;
}

absl::Status Graph::AddEdge(ExplicitEdge edge) {
  return AddEdges(absl::MakeConstSpan(&edge, 1));
}

absl::Status Graph::AddEdges(absl::Span<const ExplicitEdge> edges) {
  for (const ExplicitEdge& edge : edges) {
    for (const OpId end : {edge.from, edge.to}) {
      if (end.value() < ops_.size()) continue;
      return absl::NotFoundError(absl::StrCat("an edge names op ", end.value(),
                                              ", but the graph has ",
                                              ops_.size(), " ops"));
    }
    if (edge.distance != 0 && edge.distance != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("edge '", op(edge.from).name, "' -> '", op(edge.to).name,
                       "': distance ", edge.distance, " is not 0 or 1"));
    }
  }
  const bool backward =
      has_backward_edge_ || std::any_of(edges.begin(), edges.end(), IsBackward);
  if (backward) RETURN_IF_ERROR(CheckExplicitOrder(edges));
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  has_backward_edge_ = backward;
  return absl::OkStatus();
}

absl::Status Graph::CheckExplicitOrder(
    absl::Span<const ExplicitEdge> more) const {
  std::vector<Precedence> precedences;
  for (uint32_t i = 0; i < ops_.size(); ++i) {
    for (const OpId after : ops_[i].after) {
      precedences.push_back({after, OpId(i)});
    }
  }
  for (const auto& edges : {absl::MakeConstSpan(edges_), more}) {
    for (const ExplicitEdge& edge : edges) {
      if (edge.distance == 0) precedences.push_back({edge.from, edge.to});
    }
  }
  return TopologicalOrder(*this, precedences).status();
}

absl::StatusOr<OpId> Graph::FindOp(absl::string_view name) const {
  return Find("op", name, op_names_);
}

absl::StatusOr<BufferId> Graph::FindBuffer(absl::string_view name) const {
  return Find("buffer", name, buffer_names_);
}

absl::StatusOr<GroupId> Graph::FindGroup(absl::string_view name) const {
  return Find("group", name, group_names_);
}

}  // namespace commsched
