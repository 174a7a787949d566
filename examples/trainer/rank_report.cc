// What a rank tells of its plan and of the steps that it ran.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/rank.h"

namespace commsched::trainer {

absl::StatusOr<std::string> Rank::Explain() const {
  // What the backend does only a session knows.
  const commsched_session_t* session = commsched_engine_session(engine_.get());
  if (session != nullptr) {
    return TextOf(commsched_session_explain, session, COMMSCHED_TEXT);
  }
  return TextOf(commsched_plan_explain, commsched_engine_plan(engine_.get()),
                COMMSCHED_TEXT);
}

absl::StatusOr<std::string> Rank::Describe() const {
  std::string description =
      absl::StrFormat("%-8s %10s %10s %11s %8s\n", "bucket", "bytes",
                      "parameters", "reductions", "gathers");
  TRAINER_ASSIGN_OR_RETURN(const commsched_engine_info_t info, Info());
  const uint64_t sent = BytesOf(DTypeOf(options_.reduce_dtype));
  for (uint64_t b = 0; b < info.num_buckets; ++b) {
    commsched_engine_bucket_info_t bucket = commsched_engine_bucket_info_init();
    TRAINER_CALL(commsched_engine_get_bucket_info(engine_.get(), b, &bucket));
    absl::StrAppendFormat(&description, "%-8d %10d %10d %11d %8d\n", b,
                          bucket.count * sent, bucket.num_parameters,
                          bucket.num_reductions, bucket.num_gathers);
  }
  const commsched_plan_t* plan = commsched_engine_plan(engine_.get());
  TRAINER_ASSIGN_OR_RETURN(
      const std::string steps,
      TextOf(commsched_plan_describe, &plan, 1u, COMMSCHED_TEXT));
  return description + steps;
}

absl::StatusOr<std::string> Rank::Blame() const {
  return TextOf(commsched_trace_explain, trace_.get(), COMMSCHED_TEXT);
}

absl::StatusOr<uint64_t> Rank::StateBytes() const {
  TRAINER_ASSIGN_OR_RETURN(
      const commsched_step_plan_info_t info,
      Filled(commsched_step_plan_info_init(), commsched_step_plan_get_info,
             step_plan_.get()));
  return info.parameter_bytes + info.gradient_bytes + info.optimizer_bytes +
         info.arena_bytes;
}

absl::StatusOr<commsched_engine_info_t> Rank::Info() const {
  return Filled(commsched_engine_info_init(), commsched_engine_get_info,
                engine_.get());
}

absl::StatusOr<commsched_plan_info_t> Rank::PlanInfo() const {
  return Filled(commsched_plan_info_init(), commsched_plan_get_info,
                commsched_engine_plan(engine_.get()));
}

absl::StatusOr<commsched_engine_loss_scale_info_t> Rank::LossScale() const {
  return Filled(commsched_engine_loss_scale_info_init(),
                commsched_engine_get_loss_scale, engine_.get());
}

absl::StatusOr<commsched_session_counters_t> Rank::Counters() const {
  return Filled(commsched_session_counters_init(),
                commsched_session_get_counters,
                commsched_engine_session(engine_.get()));
}

absl::StatusOr<std::vector<StepRecord>> Rank::StepRecords() const {
  std::vector<StepRecord> records(commsched_trace_num_steps(trace_.get()));
  for (uint64_t i = 0; i < records.size(); ++i) {
    TRAINER_CALL(
        commsched_trace_step_metrics(trace_.get(), i, &records[i].metrics));
    TRAINER_CALL(
        commsched_trace_step_blame(trace_.get(), i, &records[i].blame));
  }
  return records;
}

absl::StatusOr<std::vector<int64_t>> Rank::OpCostsNs() const {
  TRAINER_ASSIGN_OR_RETURN(const commsched_engine_info_t info, Info());
  std::vector<int64_t> costs(info.num_ops);
  TRAINER_CALL(
      commsched_engine_op_costs(engine_.get(), costs.data(), costs.size()));
  return costs;
}

absl::StatusOr<commsched_prediction_t> Rank::Predict(
    const commsched_cost_profile_t& profile) const {
  commsched_prediction_t prediction = commsched_prediction_init();
  TRAINER_CALL(commsched_plan_predict(commsched_engine_plan(engine_.get()),
                                      &profile, &prediction));
  return prediction;
}

}  // namespace commsched::trainer
