#include "exec/inline_mode.h"

#include "absl/base/optimization.h"

namespace commsched {

int64_t InlineMode::MakeDue(uint64_t number, int64_t now_ns) {
  const int64_t end_ns = IssueUntil(number, now_ns);
  state_.due.store(number, std::memory_order_release);
  return end_ns;
}

int64_t InlineMode::IssueUntil(uint64_t number, int64_t now_ns) {
  const IssuerSpec& spec = state_.spec;
  LaunchInstruments& instruments = state_.instruments;
  if (issued_.index() == 0) instruments.CatchUp();
  while (issued_.number() < number && !state_.failed()) {
    const uint32_t index = issued_.index();
    const uint64_t step = issued_.step();
    const LaunchProgram& launch = state_.program.launches[index];
    if (launch.late.count != 0 && !state_.BindLate(index, step)) break;
    const LaunchMark mark =
        instruments.Issuing(index, step, launch.payload_bytes, now_ns);
    state_.window.Pass(launch.payload_bytes);
    const bool drops = state_.HasDrops(index, step);
    const commsched_status_t code = spec.backend->launch(
        launch.comm, state_.Prepare(index, step, drops), 0,
        commsched_stream_caller(), message_.Begin(), PluginMessage::size());
    if (ABSL_PREDICT_FALSE(code != COMMSCHED_OK)) {
      state_.Fail(state_.BackendError("launch", code, index, step, message_));
      break;
    }
    instruments.Issued(index, step, mark);
    state_.Finish(index, drops);
    now_ns = instruments.Retired(index, step, mark);
    state_.MarkComplete(index, step);
    instruments.Ended(index, step);
    issued_.Advance();
  }
  return now_ns;
}

}  // namespace commsched
