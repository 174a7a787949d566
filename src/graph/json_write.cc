#include <cstddef>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "graph/collective_shape.h"
#include "graph/json.h"
#include "graph/json_names.h"

namespace commsched {
namespace {

// Keeps the order in which fields are set, for human readers.
using Json = nlohmann::ordered_json;

Json Text(absl::string_view text) { return std::string(text); }

class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}

  std::string Write() {
    absl::StrAppend(&text_, "{\n\"format\": ", Text(kGraphFormat).dump(),
                    ",\n\"num_ops\": ", graph_.ops().size());
    List("groups", graph_.groups(), [](const Group& group) {
      return Json{{"name", group.name}, {"size", group.size}};
    });
    List("buffers", graph_.buffers(), [](const Buffer& buffer) {
      const auto ownership = static_cast<size_t>(buffer.ownership);
      Json json = {{"name", buffer.name},
                   {"dtype", Text(DTypeName(buffer.dtype))},
                   {"ownership", Text(kOwnershipNames[ownership])},
                   {"count", buffer.count}};
      if (buffer.place_group != 0) json["place_group"] = buffer.place_group;
      return json;
    });
    List("ops", graph_.ops(), [this](const Op& op) { return OpJson(op); });
    List("edges", graph_.edges(), [this](const ExplicitEdge& edge) {
      return Json{{"from", graph_.op(edge.from).name},
                  {"to", graph_.op(edge.to).name},
                  {"distance", edge.distance}};
    });
    text_ += "\n}\n";
    return std::move(text_);
  }

 private:
  template <typename T, typename ToJson>
  void List(absl::string_view name, const std::vector<T>& items,
            ToJson&& to_json) {
    absl::StrAppend(&text_, ",\n\"", name, "\": [");
    const char* separator = "\n";
    for (const T& item : items) {
      absl::StrAppend(&text_, separator, to_json(item).dump());
      separator = ",\n";
    }
    text_ += items.empty() ? "]" : "\n]";
  }

  Json AccessJson(const Access& access) const {
    Json json = {{"buffer", graph_.buffer(access.buffer).name}};
    const Region& region = access.region;
    if (region.kind == RegionKind::kWhole) return json;
    json["region"] = Text(kRegionNames[static_cast<size_t>(region.kind)]);
    if (region.kind == RegionKind::kShard) {
      json["group"] = graph_.group(region.group).name;
    } else {
      json["offset"] = region.offset;
      json["count"] = region.count;
    }
    if (region.kind == RegionKind::kTile) {
      json["rows"] = region.rows;
      json["stride"] = region.stride;
    }
    return json;
  }

  Json OpJson(const Op& op) const {
    Json json = {{"name", op.name}};
    switch (op.kind) {
      case OpKind::kCompute:
        json["kind"] = Text(kComputeName);
        AddCompute(op, json);
        break;
      case OpKind::kCollective:
        json["kind"] = Text(CollectiveKindName(op.collective.kind));
        AddCollective(op.collective, json);
        break;
    }
    if (op.priority != 0) json["priority"] = op.priority;
    for (const OpId after : op.after) {
      json["after"].push_back(graph_.op(after).name);
    }
    return json;
  }

  // Fields at their defaults are left out.
  void AddCompute(const Op& op, Json& json) const {
    const ComputeSpec& spec = op.compute;
    if (spec.lane != 0) json["lane"] = spec.lane;
    if (spec.cost_ns != 0) json["cost_ns"] = spec.cost_ns;
    if (spec.flops != 0) json["flops"] = spec.flops;
    if (spec.bytes != 0) json["bytes"] = spec.bytes;
    for (const Access& access : op.accesses) {
      Json item = AccessJson(access);
      item["mode"] = Text(kModeNames[static_cast<size_t>(access.mode)]);
      json["accesses"].push_back(std::move(item));
    }
  }

  void AddCollective(const CollectiveSpec& spec, Json& json) const {
    json["group"] = graph_.group(spec.group).name;
    if (IsReducing(spec.kind))
      json["reduce_op"] = Text(ReduceOpName(spec.reduce_op));
    if (IsRooted(spec.kind)) json["root"] = spec.root;
    if (IsPointToPoint(spec.kind)) json["peer_offset"] = spec.peer_offset;
    if (spec.lossy) json["lossy"] = true;
    if (HasInput(spec.kind)) json["input"] = AccessJson(spec.input);
    if (HasOutput(spec.kind)) json["output"] = AccessJson(spec.output);
    if (!spec.counts.empty()) json["counts"] = spec.counts;
  }

  const Graph& graph_;
  std::string text_;
};

}  // namespace

std::string GraphToJson(const Graph& graph) { return Writer(graph).Write(); }

}  // namespace commsched
