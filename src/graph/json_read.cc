#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"
#include "graph/json.h"
#include "graph/json_fields.h"
#include "graph/json_names.h"

namespace commsched {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxUint64 = std::numeric_limits<uint64_t>::max();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr int kMinInt = std::numeric_limits<int>::min();
constexpr int kMaxInt = std::numeric_limits<int>::max();
constexpr uint32_t kMaxUint32 = std::numeric_limits<uint32_t>::max();

constexpr size_t kMaxMessageBytes = 1000;

// Says where in the text the graph refused something.
absl::Status At(absl::string_view where, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(where, ": ", status.message()));
}

// The index of the field's text in `names`, from `first`.
template <size_t N>
absl::StatusOr<size_t> IndexOf(const JsonFields& fields, const char* field,
                               absl::string_view text,
                               const absl::string_view (&names)[N],
                               size_t first = 0) {
  for (size_t i = first; i < N; ++i) {
    if (names[i] == text) return i;
  }
  return fields.Invalid(
      field, absl::StrCat("'", text, "' is not one of ",
                          absl::StrJoin(names + first, names + N, ", ")));
}

class Reader {
 public:
  absl::StatusOr<Graph> Read(const json& root) {
    ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(root, ""));
    ASSIGN_OR_RETURN(const std::string format, fields.NeedString("format"));
    if (format != kGraphFormat) {
      return fields.Invalid(
          "format", absl::StrCat("'", format, "' is not '", kGraphFormat, "'"));
    }
    RETURN_IF_ERROR(ReserveOps(fields));
    RETURN_IF_ERROR(ForEach(fields, "groups", &Reader::ReadGroup));
    RETURN_IF_ERROR(ForEach(fields, "buffers", &Reader::ReadBuffer));
    RETURN_IF_ERROR(ForEach(fields, "ops", &Reader::ReadOp));
    RETURN_IF_ERROR(ForEach(fields, "edges", &Reader::ReadEdge));
    RETURN_IF_ERROR(At("edges", graph_.AddEdges(edges_)));
    RETURN_IF_ERROR(fields.Finish());
    return std::move(graph_);
  }

 private:
  using ReadItem = absl::Status (Reader::*)(JsonFields& fields);

  absl::Status ForEach(JsonFields& fields, const char* name, ReadItem read) {
    ASSIGN_OR_RETURN(const json* const list, fields.GetArray(name));
    for (size_t i = 0; i < list->size(); ++i) {
      ASSIGN_OR_RETURN(
          JsonFields item,
          JsonFields::Of((*list)[i], absl::StrCat(name, "[", i, "]")));
      RETURN_IF_ERROR((this->*read)(item));
      RETURN_IF_ERROR(item.Finish());
    }
    return absl::OkStatus();
  }

  // `num_ops` says nothing that the list does not; where it is given it must
  // agree, so that a file that lost its end on a line boundary is noticed.
  absl::Status ReserveOps(JsonFields& fields) {
    ASSIGN_OR_RETURN(const json* const ops, fields.GetArray("ops"));
    ASSIGN_OR_RETURN(const uint64_t num_ops,
                     fields.GetUnsigned("num_ops", kMaxUint64, ops->size()));
    if (num_ops > Graph::kMaxOps) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "num_ops: ", num_ops, " ops exceed the limit of ", Graph::kMaxOps));
    }
    if (num_ops != ops->size()) {
      return fields.Invalid(
          "num_ops", absl::StrCat("is ", num_ops, ", but ops has ", ops->size(),
                                  " elements"));
    }
    return graph_.Reserve(num_ops);
  }

  absl::Status ReadGroup(JsonFields& fields) {
    ASSIGN_OR_RETURN(const std::string name, fields.NeedString("name"));
    ASSIGN_OR_RETURN(const uint64_t size, fields.NeedUnsigned("size", kMaxInt));
    return At(fields.where(),
              graph_.AddGroup(name, static_cast<int>(size)).status());
  }

  absl::Status ReadBuffer(JsonFields& fields) {
    Buffer buffer;
    ASSIGN_OR_RETURN(buffer.name, fields.NeedString("name"));
    ASSIGN_OR_RETURN(const std::string dtype, fields.NeedString("dtype"));
    const auto parsed = ParseDType(dtype);
    if (!parsed.ok()) return At(fields.PathOf("dtype"), parsed.status());
    buffer.dtype = *parsed;
    ASSIGN_OR_RETURN(const std::string ownership,
                     fields.GetString("ownership", kOwnershipNames[0]));
    ASSIGN_OR_RETURN(const size_t index,
                     IndexOf(fields, "ownership", ownership, kOwnershipNames));
    buffer.ownership = static_cast<Ownership>(index);
    ASSIGN_OR_RETURN(buffer.count, fields.NeedUnsigned("count", kMaxUint64));
    ASSIGN_OR_RETURN(const uint64_t place_group,
                     fields.GetUnsigned("place_group", kMaxUint32, 0));
    buffer.place_group = static_cast<uint32_t>(place_group);
    return At(fields.where(), graph_.AddBuffer(std::move(buffer)).status());
  }

  absl::Status ReadOp(JsonFields& fields) {
    Op op;
    ASSIGN_OR_RETURN(op.name, fields.NeedString("name"));
    ASSIGN_OR_RETURN(const int64_t priority,
                     fields.GetInt("priority", kMinInt, kMaxInt, 0));
    op.priority = static_cast<int>(priority);
    RETURN_IF_ERROR(ReadAfter(fields, op));
    ASSIGN_OR_RETURN(const std::string kind, fields.NeedString("kind"));
    if (kind == kComputeName) {
      op.kind = OpKind::kCompute;
      RETURN_IF_ERROR(ReadCompute(fields, op));
    } else {
      op.kind = OpKind::kCollective;
      RETURN_IF_ERROR(ReadCollective(fields, kind, op.collective));
    }
    return At(fields.where(), graph_.AddOp(std::move(op)).status());
  }

  absl::Status ReadAfter(JsonFields& fields, Op& op) {
    ASSIGN_OR_RETURN(const json* const names, fields.GetArray("after"));
    for (const json& name : *names) {
      if (!name.is_string()) {
        return fields.Invalid("after", "is not a list of strings");
      }
      ASSIGN_OR_RETURN(
          const OpId id,
          FindOp(fields, "after", name.get_ref<const std::string&>()));
      op.after.push_back(id);
    }
    return absl::OkStatus();
  }

  absl::Status ReadCompute(JsonFields& fields, Op& op) {
    ComputeSpec& spec = op.compute;
    ASSIGN_OR_RETURN(const uint64_t lane,
                     fields.GetUnsigned("lane", kMaxUint32, 0));
    spec.lane = static_cast<uint32_t>(lane);
    ASSIGN_OR_RETURN(spec.cost_ns, fields.GetInt("cost_ns", 0, kMaxInt64, 0));
    ASSIGN_OR_RETURN(spec.flops, fields.GetDouble("flops", 0));
    ASSIGN_OR_RETURN(spec.bytes, fields.GetDouble("bytes", 0));
    ASSIGN_OR_RETURN(const json* const accesses, fields.GetArray("accesses"));
    for (size_t i = 0; i < accesses->size(); ++i) {
      const std::string where =
          absl::StrCat(fields.PathOf("accesses"), "[", i, "]");
      ASSIGN_OR_RETURN(JsonFields item, JsonFields::Of((*accesses)[i], where));
      ASSIGN_OR_RETURN(const std::string mode, item.NeedString("mode"));
      ASSIGN_OR_RETURN(const size_t index,
                       IndexOf(item, "mode", mode, kModeNames, 1));
      ASSIGN_OR_RETURN(Access access, ReadAccess(item));
      access.mode = static_cast<AccessMode>(index);
      op.accesses.push_back(access);
    }
    return absl::OkStatus();
  }

  absl::Status ReadCollective(JsonFields& fields, const std::string& kind,
                              CollectiveSpec& spec) {
    const auto parsed = ParseCollectiveKind(kind);
    if (!parsed.ok()) {
      return At(fields.PathOf("kind"),
                absl::InvalidArgumentError(absl::StrCat(
                    "not compute, and ", parsed.status().message())));
    }
    spec.kind = *parsed;
    ASSIGN_OR_RETURN(spec.group, ReadGroupName(fields));
    if (IsReducing(spec.kind)) {
      ASSIGN_OR_RETURN(const std::string name, fields.NeedString("reduce_op"));
      const auto reduce_op = ParseReduceOp(name);
      if (!reduce_op.ok()) {
        return At(fields.PathOf("reduce_op"), reduce_op.status());
      }
      spec.reduce_op = *reduce_op;
    }
    if (IsRooted(spec.kind)) {
      ASSIGN_OR_RETURN(const int64_t root,
                       fields.GetInt("root", kMinInt, kMaxInt, 0));
      spec.root = static_cast<int>(root);
    }
    if (IsPointToPoint(spec.kind)) {
      ASSIGN_OR_RETURN(const int64_t peer_offset,
                       fields.GetInt("peer_offset", kMinInt, kMaxInt, 0));
      spec.peer_offset = static_cast<int>(peer_offset);
    }
    ASSIGN_OR_RETURN(spec.lossy, fields.GetBool("lossy", false));
    if (HasInput(spec.kind)) {
      ASSIGN_OR_RETURN(spec.input, ReadSide(fields, "input"));
    }
    if (HasOutput(spec.kind)) {
      ASSIGN_OR_RETURN(spec.output, ReadSide(fields, "output"));
    }
    if (!HasInput(spec.kind) || !HasOutput(spec.kind)) return absl::OkStatus();
    return ReadCounts(fields, spec.counts);
  }

  absl::Status ReadCounts(JsonFields& fields, std::vector<uint64_t>& counts) {
    ASSIGN_OR_RETURN(const json* const list, fields.GetArray("counts"));
    counts.reserve(list->size());
    for (const json& count : *list) {
      if (!count.is_number_unsigned()) {
        return fields.Invalid(
            "counts",
            absl::StrCat("is not a list of integers in 0..", kMaxUint64));
      }
      counts.push_back(count.get<uint64_t>());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Access> ReadSide(JsonFields& fields, const char* side) {
    ASSIGN_OR_RETURN(const json* const value, fields.Need(side));
    ASSIGN_OR_RETURN(JsonFields item,
                     JsonFields::Of(*value, fields.PathOf(side)));
    return ReadAccess(item);
  }

  // Everything but the mode; the last to ask for fields of the access.
  absl::StatusOr<Access> ReadAccess(JsonFields& fields) {
    Access access;
    ASSIGN_OR_RETURN(const std::string buffer, fields.NeedString("buffer"));
    const auto id = graph_.FindBuffer(buffer);
    if (!id.ok()) return At(fields.PathOf("buffer"), id.status());
    access.buffer = *id;
    ASSIGN_OR_RETURN(const std::string region,
                     fields.GetString("region", kRegionNames[0]));
    ASSIGN_OR_RETURN(const size_t kind,
                     IndexOf(fields, "region", region, kRegionNames));
    access.region.kind = static_cast<RegionKind>(kind);
    if (access.region.kind == RegionKind::kShard) {
      ASSIGN_OR_RETURN(access.region.group, ReadGroupName(fields));
    }
    const bool tile = access.region.kind == RegionKind::kTile;
    if (tile || access.region.kind == RegionKind::kRange) {
      ASSIGN_OR_RETURN(access.region.offset,
                       fields.NeedUnsigned("offset", kMaxUint64));
      ASSIGN_OR_RETURN(access.region.count,
                       fields.NeedUnsigned("count", kMaxUint64));
    }
    if (tile) {
      ASSIGN_OR_RETURN(access.region.rows,
                       fields.NeedUnsigned("rows", kMaxUint64));
      ASSIGN_OR_RETURN(access.region.stride,
                       fields.NeedUnsigned("stride", kMaxUint64));
    }
    RETURN_IF_ERROR(fields.Finish());
    return access;
  }

  absl::StatusOr<GroupId> ReadGroupName(JsonFields& fields) {
    ASSIGN_OR_RETURN(const std::string name, fields.NeedString("group"));
    auto id = graph_.FindGroup(name);
    if (!id.ok()) return At(fields.PathOf("group"), id.status());
    return id;
  }

  absl::Status ReadEdge(JsonFields& fields) {
    ExplicitEdge edge;
    ASSIGN_OR_RETURN(const std::string from, fields.NeedString("from"));
    ASSIGN_OR_RETURN(edge.from, FindOp(fields, "from", from));
    ASSIGN_OR_RETURN(const std::string to, fields.NeedString("to"));
    ASSIGN_OR_RETURN(edge.to, FindOp(fields, "to", to));
    ASSIGN_OR_RETURN(const uint64_t distance,
                     fields.GetUnsigned("distance", 1, 0));
    edge.distance = static_cast<int>(distance);
    edges_.push_back(edge);
    return absl::OkStatus();
  }

  absl::StatusOr<OpId> FindOp(const JsonFields& fields, const char* field,
                              const std::string& name) {
    auto id = graph_.FindOp(name);
    if (!id.ok()) return At(fields.PathOf(field), id.status());
    return id;
  }

  Graph graph_;
  std::vector<ExplicitEdge> edges_;
};

}  // namespace

absl::StatusOr<Graph> GraphFromJson(absl::string_view json) {
  const auto root = ParseJson(json);
  auto graph = root.ok() ? Reader().Read(*root) : root.status();
  if (graph.ok()) return graph;
  // Messages quote the text, which may be a wrong file of any size.
  return absl::Status(graph.status().code(),
                      graph.status().message().substr(0, kMaxMessageBytes));
}

}  // namespace commsched
