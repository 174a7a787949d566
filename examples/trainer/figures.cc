#include "examples/trainer/figures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/job.h"

namespace commsched::trainer {

absl::StatusOr<std::string> ExplainPlan(const Rank& rank) {
  // What the backend does only a session knows.
  const commsched_session_t* session = commsched_engine_session(rank.engine());
  if (session != nullptr) {
    return TextOf(commsched_session_explain, session, COMMSCHED_TEXT);
  }
  return TextOf(commsched_plan_explain, commsched_engine_plan(rank.engine()),
                COMMSCHED_TEXT);
}

absl::StatusOr<std::string> DescribePlan(const Rank& rank,
                                         const Options& options) {
  std::string description =
      absl::StrFormat("%-8s %10s %10s %11s %8s\n", "bucket", "bytes",
                      "parameters", "reductions", "gathers");
  TRAINER_ASSIGN_OR_RETURN(const commsched_engine_info_t info, rank.Info());
  const uint64_t sent = BytesOf(DTypeOf(options.reduce_dtype));
  for (uint64_t b = 0; b < info.num_buckets; ++b) {
    commsched_engine_bucket_info_t bucket = commsched_engine_bucket_info_init();
    TRAINER_CALL(commsched_engine_get_bucket_info(rank.engine(), b, &bucket));
    absl::StrAppendFormat(&description, "%-8d %10d %10d %11d %8d\n", b,
                          bucket.count * sent, bucket.num_parameters,
                          bucket.num_reductions, bucket.num_gathers);
  }
  const commsched_plan_t* plan = commsched_engine_plan(rank.engine());
  TRAINER_ASSIGN_OR_RETURN(
      const std::string steps,
      TextOf(commsched_plan_describe, &plan, 1u, COMMSCHED_TEXT));
  return description + steps;
}

absl::StatusOr<RankFigures> FiguresOf(const Rank& rank, const RankSaver* saver,
                                      const RankFigures::Totals& totals) {
  RankFigures figures;
  figures.totals = totals;
  figures.steps.resize(commsched_trace_num_steps(rank.trace()));
  for (uint64_t i = 0; i < figures.steps.size(); ++i) {
    StepRecord& step = figures.steps[i];
    TRAINER_CALL(commsched_trace_step_metrics(rank.trace(), i, &step.metrics));
    TRAINER_CALL(commsched_trace_step_blame(rank.trace(), i, &step.blame));
  }
  TRAINER_ASSIGN_OR_RETURN(const commsched_engine_info_t info, rank.Info());
  figures.op_costs_ns.resize(info.num_ops);
  TRAINER_CALL(commsched_engine_op_costs(
      rank.engine(), figures.op_costs_ns.data(), info.num_ops));
  TRAINER_ASSIGN_OR_RETURN(
      const commsched_session_counters_t counters,
      Filled(commsched_session_counters_init(), commsched_session_get_counters,
             commsched_engine_session(rank.engine())));
  figures.totals.peak_bytes_in_flight = counters.peak_bytes_in_flight;
  figures.totals.peak_live_bytes = rank.PeakLiveBytes();
  figures.totals.copy_ns = info.copy_ns;
  figures.totals.copy_exposed_ns = info.copy_exposed_ns;
  if (saver != nullptr) figures.stalls = saver->stalls();
  return figures;
}

absl::StatusOr<std::vector<RankFigures>> GatherFigures(
    commsched_context_t* context, const RankFigures& mine,
    std::chrono::nanoseconds timeout) {
  const auto gather = [&](const char* name, const auto& list) {
    return GatherLists(context, name, absl::MakeConstSpan(list), timeout);
  };
  TRAINER_ASSIGN_OR_RETURN(
      const auto totals, GatherValues(context, "totals", mine.totals, timeout));
  TRAINER_ASSIGN_OR_RETURN(auto steps, gather("steps", mine.steps));
  TRAINER_ASSIGN_OR_RETURN(auto costs, gather("op costs", mine.op_costs_ns));
  TRAINER_ASSIGN_OR_RETURN(auto stalls, gather("stalls", mine.stalls));
  std::vector<RankFigures> all;
  for (size_t rank = 0; rank < totals.size(); ++rank) {
    all.push_back({totals[rank], std::move(steps[rank]), std::move(costs[rank]),
                   std::move(stalls[rank])});
  }
  return all;
}

void FillFigures(const std::vector<RankFigures>& ranks, int64_t steps,
                 Report* report) {
  const auto keep_most = [](auto value, auto* most) {
    *most = std::max(*most, value);
  };
  const auto per_step = [steps](int64_t ns) {
    return SecondsOf(ns) / static_cast<double>(steps);
  };
  const size_t num_saves = ranks[0].stalls.size();  // As many on each.
  std::vector<double> copies(num_saves);
  std::vector<double> waits(num_saves);
  for (const RankFigures& rank : ranks) {
    const RankFigures::Totals& totals = rank.totals;
    report->loss += totals.last_loss / static_cast<double>(ranks.size());
    keep_most(totals.peak_bytes_in_flight, &report->peak_bytes_in_flight);
    keep_most(totals.peak_live_bytes, &report->peak_live_bytes);
    keep_most(per_step(totals.copy_ns), &report->copy_s);
    keep_most(per_step(totals.copy_exposed_ns), &report->copy_exposed_s);
    if (totals.process_peak_bytes > report->process_peak_bytes) {
      report->process_peak_bytes = totals.process_peak_bytes;
      report->save_bytes = totals.save_bytes;
    }
    for (size_t i = 0; i < num_saves && i < rank.stalls.size(); ++i) {
      keep_most(rank.stalls[i].copy_s, &copies[i]);
      keep_most(rank.stalls[i].wait_s, &waits[i]);
    }
  }
  report->num_saves = static_cast<int64_t>(num_saves);
  report->save_copy_s = Median(std::move(copies));
  report->save_wait_s = Median(std::move(waits));
}

absl::Status FillBound(const std::vector<RankFigures>& ranks,
                       const Options& options, const Rank& rank,
                       Report* report) {
  std::vector<int64_t> costs;
  for (const RankFigures& one : ranks) {
    costs.resize(one.op_costs_ns.size());
    for (size_t op = 0; op < costs.size(); ++op) {
      costs[op] += one.op_costs_ns[op] / options.ranks;
    }
  }
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  // Without emulation the links are memory: their cost is the CPU time of the
  // copies. Of a launch, only what was measured counts.
  TRAINER_ASSIGN_OR_RETURN(const bool known,
                           SetLinks(options, rank.context(), &profile));
  if (!known) profile.link_bytes_per_s = 1e18;
  profile.launch_ns = 1;
  SetCores(options, rank.context(), &profile);
  profile.op_cost_ns = costs.data();
  profile.num_ops = costs.size();
  return FromC(commsched_plan_predict(commsched_engine_plan(rank.engine()),
                                      &profile, &report->bound));
}

}  // namespace commsched::trainer
