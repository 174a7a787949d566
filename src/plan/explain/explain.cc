#include "plan/explain/explain.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "plan/explain/launch_reason_text.h"
#include "plan/explain/merge_report_text.h"
#include "plan/explain/names.h"
#include "plan/explain/priority_report_text.h"
#include "plan/explain/table.h"
#include "plan/predict/predict.h"

namespace commsched {
namespace {

std::string Hex(const std::array<uint8_t, 16>& bytes) {
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

std::string Limit(uint64_t limit) {
  return limit == 0 ? "no limit" : absl::StrCat(limit);
}

std::string MergeLimit(const PlanOptions& options) {
  if (options.coalesce_bytes == kCoalesceAuto) return "by cost";
  if (options.coalesce_bytes == 0) return "up to nothing";
  return absl::StrCat("up to ", options.coalesce_bytes, " bytes");
}

std::string WaitNames(const Plan& plan, absl::Span<const Wait> waits) {
  if (waits.empty()) return "-";
  return absl::StrJoin(waits, " ", [&](std::string* out, const Wait& wait) {
    absl::StrAppend(out, WaitName(plan, wait));
  });
}

// The op whose `after` makes the launch due; empty if it is due from the start.
std::string DueOp(const Plan& plan, size_t key) {
  const uint32_t due = plan.due_after[key];
  return due == 0 ? "" : plan.graph->op(plan.nodes[due - 1].op).name;
}

size_t CountWaits(const Plan& plan) {
  size_t count = 0;
  for (const ComputeNode& node : plan.nodes) count += node.waits.size();
  for (const Launch& launch : plan.launches) count += launch.waits.size();
  return count;
}

size_t CountCollectives(const Plan& plan) {
  size_t count = 0;
  for (const Launch& launch : plan.launches) {
    if (launch.piece.index == 0) count += launch.members.size();
  }
  return count;
}

std::string LaunchTable(const Plan& plan) {
  std::vector<Row> rows = {{"key", "kind", "group", "lane", "bytes", "way",
                            "members", "due after", "waits", "why"}};
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    const Launch& launch = plan.launches[k];
    const std::string due = DueOp(plan, k);
    rows.push_back(
        {absl::StrCat("#", k), std::string(CollectiveKindName(launch.kind)),
         plan.graph->group(launch.group).name, absl::StrCat(launch.lane),
         absl::StrCat(launch.payload_bytes), std::string(WayName(launch.way)),
         MemberNames(plan, launch), due.empty() ? "-" : due,
         WaitNames(plan, launch.waits), ReasonText(plan, launch)});
  }
  return Table(rows);
}

std::string OpTable(const Plan& plan) {
  std::vector<Row> rows = {{"op", "lane", "waits"}};
  for (const ComputeNode& node : plan.nodes) {
    rows.push_back({plan.graph->op(node.op).name, absl::StrCat(node.lane),
                    WaitNames(plan, node.waits)});
  }
  return Table(rows);
}

// What lies where in the arena.
struct ArenaEntry {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  std::string name;
  uint32_t place_group = 0;
};

std::vector<ArenaEntry> ArenaMap(const Plan& plan) {
  std::vector<ArenaEntry> entries;
  for (const Placement& place : plan.placements) {
    const Buffer& buffer = plan.graph->buffer(place.buffer);
    entries.push_back(
        {place.offset, place.bytes, buffer.name, buffer.place_group});
  }
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    const Launch& launch = plan.launches[k];
    if (launch.way != Way::kPack) continue;
    entries.push_back({launch.staging_offset, launch.staging_bytes,
                       absl::StrCat("packing of #", k)});
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const ArenaEntry& a, const ArenaEntry& b) {
                     return a.offset < b.offset;
                   });
  return entries;
}

std::string ArenaTable(const Plan& plan) {
  std::vector<Row> rows = {{"offset", "bytes", "what"}};
  for (const ArenaEntry& entry : ArenaMap(plan)) {
    const std::string group =
        entry.place_group == 0
            ? ""
            : absl::StrCat(" (place group ", entry.place_group, ")");
    rows.push_back({absl::StrCat(entry.offset), absl::StrCat(entry.bytes),
                    entry.name + group});
  }
  return Table(rows);
}

std::string PlaceGroupText(const PlaceGroupReport& report) {
  if (report.num_groups == 0) return "";
  return absl::StrCat("place groups: ", report.num_groups,
                      "; the smallest arena found for this order has ",
                      report.bytes, " bytes, ", report.more(),
                      " more than with every buffer placed alone\n");
}

std::string PredictionText(const Plan& plan, const Prediction& prediction) {
  std::string text = absl::StrCat(
      "prediction: step ", Micros(prediction.step_ns), ", compute ",
      Micros(prediction.compute_ns), ", communication ",
      Micros(prediction.comm_ns), ", exposed ", Micros(prediction.exposed_ns),
      ", at most ", prediction.peak_bytes_in_flight, " bytes in flight\n");
  absl::StrAppend(&text, "lower bound: ", Micros(prediction.lower_bound_ns),
                  " (compute ", Micros(prediction.bound_compute_ns), ", link ",
                  Micros(prediction.bound_link_ns), ", cycle ",
                  Micros(prediction.bound_cycle_ns), ", phases ",
                  Micros(prediction.bound_phases_ns), ")\n");
  std::vector<Row> rows = {
      {"key", "ready", "begin", "end", "exposed", "owed to"}};
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    const LaunchPrediction& launch = prediction.launches[k];
    if (launch.exposed_ns <= 0) continue;
    rows.push_back({absl::StrCat("#", k), Micros(launch.ready_ns),
                    Micros(launch.begin_ns), Micros(launch.end_ns),
                    Micros(launch.exposed_ns), BlameText(launch.exposed_by)});
  }
  if (rows.size() > 1) {
    absl::StrAppend(&text, "exposed: ", BlameText(prediction.exposed_by), "\n",
                    Table(rows));
  }
  return text;
}

Json WaitsJson(const Plan& plan, absl::Span<const Wait> waits) {
  Json json = Json::array();
  for (const Wait& wait : waits) {
    const bool launch = wait.producer.kind == NodeRef::Kind::kLaunch;
    Json entry;
    if (launch) {
      entry["launch"] = wait.producer.index;
    } else {
      entry["op"] = plan.graph->op(OpId(wait.producer.index)).name;
    }
    entry["distance"] = wait.distance;
    entry["cause"] = std::string(WaitCauseName(wait.cause));
    json.push_back(std::move(entry));
  }
  return json;
}

Json LaunchJson(const Plan& plan, size_t key, const Prediction* prediction) {
  const Launch& launch = plan.launches[key];
  Json json;
  json["key"] = key;
  json["kind"] = std::string(CollectiveKindName(launch.kind));
  json["group"] = plan.graph->group(launch.group).name;
  json["dtype"] = std::string(DTypeName(launch.dtype));
  json["lane"] = launch.lane;
  json["bytes"] = launch.payload_bytes;
  json["way"] = std::string(WayName(launch.way));
  json["reason"] = ReasonText(plan, launch);
  json["members"] = MembersJson(plan, launch);
  if (launch.piece.of > 1) {
    json["piece"] = {{"index", launch.piece.index},
                     {"of", launch.piece.of},
                     {"offset", launch.piece.offset},
                     {"count", launch.piece.count}};
  }
  json["due_after"] = DueOp(plan, key);
  json["waits"] = WaitsJson(plan, launch.waits);
  if (prediction == nullptr) return json;
  const LaunchPrediction& times = prediction->launches[key];
  json["ready_ns"] = times.ready_ns;
  json["begin_ns"] = times.begin_ns;
  json["end_ns"] = times.end_ns;
  json["exposed_ns"] = times.exposed_ns;
  json["exposed_by"] = BlameJson(times.exposed_by);
  json["cause"] = std::string(CauseName(times.cause));
  return json;
}

Json PredictionJson(const Prediction& prediction) {
  return {{"step_ns", prediction.step_ns},
          {"compute_ns", prediction.compute_ns},
          {"comm_ns", prediction.comm_ns},
          {"exposed_ns", prediction.exposed_ns},
          {"exposed_by", BlameJson(prediction.exposed_by)},
          {"lower_bound_ns", prediction.lower_bound_ns},
          {"bound_compute_ns", prediction.bound_compute_ns},
          {"bound_link_ns", prediction.bound_link_ns},
          {"bound_cycle_ns", prediction.bound_cycle_ns},
          {"bound_phases_ns", prediction.bound_phases_ns},
          {"peak_bytes_in_flight", prediction.peak_bytes_in_flight}};
}

// No order of these launches makes a step shorter.
int64_t OrderBoundNs(const absl::StatusOr<Prediction>& prediction) {
  return prediction.ok() ? prediction->lower_bound_ns : 0;
}

Json OrderJson(const PriorityReport& report) {
  return {{"choice", std::string(ChoiceName(report.choice))},
          {"as_ready_ns", report.as_ready_ns},
          {"by_need_ns", report.by_need_ns},
          {"chosen_ns", report.chosen_ns},
          {"bound_ns", report.bound_ns}};
}

Json OptionsJson(const PlanOptions& options) {
  return {{"schedule", std::string(ScheduleName(options.schedule))},
          {"deterministic", options.deterministic},
          {"max_launches_in_flight", options.max_launches_in_flight},
          {"max_bytes_in_flight", options.max_bytes_in_flight},
          {"num_comm_lanes", options.num_comm_lanes},
          {"coalesce_bytes", options.coalesce_bytes},
          {"coalesce_auto", options.coalesce_bytes == kCoalesceAuto},
          {"arena_bytes", options.arena_bytes},
          {"partition_bytes", options.partition_bytes},
          {"priority", std::string(PriorityName(options.priority))},
          {"codec", options.codec.name}};
}

Json OpJson(const Plan& plan, size_t i, const Prediction* times) {
  const ComputeNode& node = plan.nodes[i];
  Json json = {{"name", plan.graph->op(node.op).name},
               {"lane", node.lane},
               {"waits", WaitsJson(plan, node.waits)}};
  if (times != nullptr) {
    json["begin_ns"] = times->ops[i].begin_ns;
    json["end_ns"] = times->ops[i].end_ns;
  }
  return json;
}

}  // namespace

std::string ExplainText(const Plan& plan, const BackendReport& report) {
  const PlanOptions& options = plan.options;
  std::string text =
      absl::StrCat("plan ", Hex(plan.fingerprint), ": ", plan.nodes.size(),
                   " ops, ", CountCollectives(plan), " collectives in ",
                   plan.launches.size(), " launches, ", CountWaits(plan),
                   " waits (", plan.num_waits_implied, " implied)\n");
  absl::StrAppend(&text, "schedule: ", ScheduleName(options.schedule),
                  options.deterministic ? ", deterministic" : "", "; merge ",
                  MergeLimit(options), "; split above ",
                  options.partition_bytes == 0
                      ? "nothing"
                      : absl::StrCat(options.partition_bytes, " bytes"),
                  "; priority ", PriorityName(options.priority), "\n");
  if (plan.merging.choice != MergeReport::Choice::kNotAsked) {
    absl::StrAppend(&text, "merging: ", MergeText(plan.merging), "\n");
  }
  // A plan's own profile was checked when it was built.
  const absl::StatusOr<Prediction> prediction = Predict(plan, plan.profile);
  absl::StrAppend(
      &text,
      "order: ", PriorityText(Bounded(plan.priority, OrderBoundNs(prediction))),
      "\n");
  absl::StrAppend(&text, "window: launches ",
                  Limit(options.max_launches_in_flight), ", bytes ",
                  Limit(options.max_bytes_in_flight), "\n");
  absl::StrAppend(&text, "launches, in key order:\n", LaunchTable(plan));
  absl::StrAppend(&text, BackendText(plan, report));
  absl::StrAppend(&text, "ops, in host order:\n", OpTable(plan));
  absl::StrAppend(&text, "arena: ", plan.arena_bytes, " bytes, limit ",
                  Limit(options.arena_bytes), "\n");
  absl::StrAppend(&text, PlaceGroupText(plan.place_groups));
  if (plan.arena_bytes != 0) absl::StrAppend(&text, ArenaTable(plan));
  absl::StrAppend(&text, prediction.ok()
                             ? PredictionText(plan, *prediction)
                             : absl::StrCat("no prediction: ",
                                            prediction.status().message()));
  return text;
}

std::string ExplainJson(const Plan& plan, const BackendReport& report) {
  const absl::StatusOr<Prediction> prediction = Predict(plan, plan.profile);
  const Prediction* times = prediction.ok() ? &*prediction : nullptr;
  Json json;
  json["format"] = "commsched-plan/1";
  json["fingerprint"] = Hex(plan.fingerprint);
  if (!report.backend.empty()) json["backend"] = report.backend;
  json["options"] = OptionsJson(plan.options);
  json["order"] = OrderJson(Bounded(plan.priority, OrderBoundNs(prediction)));
  json["merging"] = {{"choice", std::string(ChoiceName(plan.merging.choice))},
                     {"apart_ns", plan.merging.apart_ns},
                     {"merged_ns", plan.merging.merged_ns}};
  json["num_waits"] = CountWaits(plan);
  json["num_waits_implied"] = plan.num_waits_implied;
  json["launches"] = Json::array();
  for (size_t k = 0; k < plan.launches.size(); ++k) {
    Json launch = LaunchJson(plan, k, times);
    if (k < report.launches.size() && report.launches[k].known) {
      launch["estimate"] =
          EstimateJson(plan, plan.launches[k], report.launches[k]);
    }
    json["launches"].push_back(std::move(launch));
  }
  json["ops"] = Json::array();
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    json["ops"].push_back(OpJson(plan, i, times));
  }
  json["arena_bytes"] = plan.arena_bytes;
  json["arena"] = Json::array();
  for (const ArenaEntry& entry : ArenaMap(plan)) {
    Json item = {
        {"name", entry.name}, {"offset", entry.offset}, {"bytes", entry.bytes}};
    if (entry.place_group != 0) item["place_group"] = entry.place_group;
    json["arena"].push_back(std::move(item));
  }
  if (plan.place_groups.num_groups != 0) {
    json["place_groups"] = {{"count", plan.place_groups.num_groups},
                            {"bytes", plan.place_groups.bytes},
                            {"more_bytes", plan.place_groups.more()}};
  }
  if (times != nullptr) json["prediction"] = PredictionJson(*times);
  return Dump(json);
}

}  // namespace commsched
