// What a rank tells of its plan and of the steps that it ran.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "examples/trainer/c_status.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {

absl::StatusOr<std::string> Rank::Explain() {
  char* text = nullptr;
  // What the backend does only a session knows.
  const commsched_session_t* session = commsched_engine_session(engine_.get());
  TRAINER_RETURN_IF_ERROR(FromCore(
      session != nullptr
          ? commsched_session_explain(session, COMMSCHED_TEXT, &text)
          : commsched_plan_explain(commsched_engine_plan(engine_.get()),
                                   COMMSCHED_TEXT, &text)));
  std::string explanation = text;
  commsched_string_free(text);
  return explanation;
}

absl::StatusOr<std::string> Rank::Describe() {
  std::string description;
  TRAINER_RETURN_IF_ERROR(DescribeBuckets(&description));
  const commsched_plan_t* plan = commsched_engine_plan(engine_.get());
  char* text = nullptr;
  TRAINER_RETURN_IF_ERROR(
      FromCore(commsched_plan_describe(&plan, 1, COMMSCHED_TEXT, &text)));
  description += text;
  commsched_string_free(text);
  return description;
}

absl::Status Rank::DescribeBuckets(std::string* out_text) {
  const absl::StatusOr<commsched_engine_info_t> info = Info();
  if (!info.ok()) return info.status();
  *out_text = absl::StrFormat("%-8s %10s %10s %11s %8s\n", "bucket", "bytes",
                              "parameters", "reductions", "gathers");
  const uint64_t sent = BytesOf(DTypeOf(options_.reduce_dtype));
  for (uint64_t b = 0; b < info->num_buckets; ++b) {
    commsched_engine_bucket_info_t bucket = commsched_engine_bucket_info_init();
    TRAINER_RETURN_IF_ERROR(FromEngine(
        commsched_engine_get_bucket_info(engine_.get(), b, &bucket)));
    absl::StrAppendFormat(out_text, "%-8d %10d %10d %11d %8d\n", b,
                          bucket.count * sent, bucket.num_parameters,
                          bucket.num_reductions, bucket.num_gathers);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Rank::Blame() const {
  char* text = nullptr;
  TRAINER_RETURN_IF_ERROR(
      FromCore(commsched_trace_explain(trace_.get(), COMMSCHED_TEXT, &text)));
  std::string blame = text;
  commsched_string_free(text);
  return blame;
}

absl::StatusOr<uint64_t> Rank::StateBytes() const {
  commsched_step_plan_info_t info = commsched_step_plan_info_init();
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_step_plan_get_info(step_plan_.get(), &info)));
  return info.parameter_bytes + info.gradient_bytes + info.optimizer_bytes +
         info.arena_bytes;
}

absl::StatusOr<commsched_engine_info_t> Rank::Info() {
  commsched_engine_info_t info = commsched_engine_info_init();
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_get_info(engine_.get(), &info)));
  return info;
}

absl::StatusOr<commsched_plan_info_t> Rank::PlanInfo() {
  commsched_plan_info_t info = commsched_plan_info_init();
  TRAINER_RETURN_IF_ERROR(FromCore(
      commsched_plan_get_info(commsched_engine_plan(engine_.get()), &info)));
  return info;
}

absl::StatusOr<std::vector<StepRecord>> Rank::StepRecords() const {
  std::vector<StepRecord> records;
  const uint64_t count = commsched_trace_num_steps(trace_.get());
  for (uint64_t i = 0; i < count; ++i) {
    commsched_step_metrics_t metrics = {};
    metrics.struct_size = sizeof(metrics);
    TRAINER_RETURN_IF_ERROR(
        FromCore(commsched_trace_step_metrics(trace_.get(), i, &metrics)));
    StepRecord record;
    record.step = metrics.step;
    record.step_s = static_cast<double>(metrics.step_ns) * 1e-9;
    record.compute_s = static_cast<double>(metrics.compute_ns) * 1e-9;
    record.comm_s = static_cast<double>(metrics.comm_ns) * 1e-9;
    record.exposed_s = static_cast<double>(metrics.exposed_ns) * 1e-9;
    record.launches = static_cast<double>(metrics.num_launches);
    record.collectives = static_cast<double>(metrics.num_collectives);
    commsched_blame_t blame = commsched_blame_init();
    TRAINER_RETURN_IF_ERROR(
        FromCore(commsched_trace_step_blame(trace_.get(), i, &blame)));
    record.blame.cap_s = static_cast<double>(blame.cap_ns) * 1e-9;
    record.blame.dependency_s = static_cast<double>(blame.dependency_ns) * 1e-9;
    record.blame.order_s = static_cast<double>(blame.order_ns) * 1e-9;
    record.blame.link_s = static_cast<double>(blame.link_ns) * 1e-9;
    record.blame.straggler_s = static_cast<double>(blame.straggler_ns) * 1e-9;
    records.push_back(record);
  }
  return records;
}

absl::StatusOr<std::vector<int64_t>> Rank::OpCostsNs() {
  const absl::StatusOr<commsched_engine_info_t> info = Info();
  if (!info.ok()) return info.status();
  std::vector<int64_t> costs(info->num_ops);
  TRAINER_RETURN_IF_ERROR(FromEngine(
      commsched_engine_op_costs(engine_.get(), costs.data(), costs.size())));
  return costs;
}

absl::StatusOr<commsched_prediction_t> Rank::Predict(
    const commsched_cost_profile_t& profile) {
  commsched_prediction_t prediction = commsched_prediction_init();
  TRAINER_RETURN_IF_ERROR(FromCore(commsched_plan_predict(
      commsched_engine_plan(engine_.get()), &profile, &prediction)));
  return prediction;
}

absl::StatusOr<uint64_t> Rank::PeakBytesInFlight() {
  commsched_session_counters_t counters = commsched_session_counters_init();
  TRAINER_RETURN_IF_ERROR(FromCore(commsched_session_get_counters(
      commsched_engine_session(engine_.get()), &counters)));
  return counters.peak_bytes_in_flight;
}

absl::StatusOr<commsched_engine_loss_scale_info_t> Rank::LossScale() const {
  commsched_engine_loss_scale_info_t info =
      commsched_engine_loss_scale_info_init();
  TRAINER_RETURN_IF_ERROR(
      FromEngine(commsched_engine_get_loss_scale(engine_.get(), &info)));
  return info;
}

}  // namespace commsched::trainer
