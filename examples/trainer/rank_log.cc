#include "examples/trainer/rank_log.h"

#include "examples/trainer/c_status.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {

void RankLog::Begin() {
  if (log_ != nullptr) begun_ = std::chrono::steady_clock::now();
}

absl::Status RankLog::End(int64_t step, double loss) {
  if (log_ == nullptr) return absl::OkStatus();
  const std::chrono::duration<double> passed =
      std::chrono::steady_clock::now() - begun_;
  TRAINER_RETURN_IF_ERROR(Finish());
  last_step_ = step;
  last_ = {.loss = loss,
           .lr = rank_.LearningRate(step),
           .norm = rank_.GradientNorm(),
           .step_s = passed.count(),
           .exposed_s = std::nullopt,
           .peak_bytes_in_flight = std::nullopt};
  return absl::OkStatus();
}

absl::Status RankLog::Finish() {
  if (!last_step_.has_value()) return absl::OkStatus();
  commsched_step_metrics_t metrics = commsched_step_metrics_init();
  const absl::Status status = FromCore(commsched_trace_recent_step(
      rank_.trace(), static_cast<uint64_t>(*last_step_ - first_step_),
      &metrics));
  if (status.ok()) {
    last_.exposed_s = static_cast<double>(metrics.exposed_ns) * 1e-9;
    last_.peak_bytes_in_flight = metrics.peak_bytes_in_flight;
  } else if (!absl::IsNotFound(status)) {
    return status;
  }
  log_->Add(index_, *last_step_, last_);
  last_step_.reset();
  return absl::OkStatus();
}

}  // namespace commsched::trainer
