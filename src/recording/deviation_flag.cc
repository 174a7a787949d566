#include "recording/deviation_flag.h"

#include <algorithm>
#include <cstddef>

#include "base/status_macros.h"
#include "device/host_device.h"
#include "plan/align.h"

namespace commsched {

absl::StatusOr<std::unique_ptr<DeviationFlag>> DeviationFlag::Create(
    Device* device, bool enqueues) {
  std::unique_ptr<DeviationFlag> flag(new DeviationFlag(device));
  if (enqueues) RETURN_IF_ERROR(flag->MakeOnDevice());
  return flag;
}

absl::Status DeviationFlag::MakeOnDevice() {
  const uint64_t apart = AlignUp(kBytes);
  ASSIGN_OR_RETURN(memory_, device_->Allocate(2 * apart));
  RETURN_IF_ERROR(device_->Fill(memory_, 0, 2 * apart));
  in_ = static_cast<int32_t*>(memory_);
  out_ = in_ + static_cast<size_t>(apart) / sizeof(*in_);
  ASSIGN_OR_RETURN(void* const told,
                   device_->AllocateOnHost(kRing * sizeof(*told_)));
  told_ = static_cast<int32_t*>(told);
  std::fill_n(told_, kRing, 0);
  ASSIGN_OR_RETURN(side_, device_->CreateSideStream());
  return absl::OkStatus();
}

DeviationFlag::~DeviationFlag() {
  side_.reset();
  if (told_ != nullptr) device_->FreeOnHost(told_);
  if (memory_ != nullptr) device_->Free(memory_);
}

void DeviationFlag::Reset() {
  if (side_ == nullptr) {
    own_in_ = own_out_ = 0;
    return;
  }
  side_->Store(out_, 0);
  std::fill_n(told_, kRing, 0);
}

Stream* DeviationFlag::stream() const {
  return side_ == nullptr ? CallerStream() : side_.get();
}

int32_t DeviationFlag::Exchange(uint64_t step, int32_t mine) {
  if (side_ == nullptr) {
    const int32_t told = *out_;
    *in_ = mine;
    return told;
  }
  side_->Copy({.to = told_ + step % kRing, .from = out_, .row_bytes = kBytes});
  side_->Store(in_, mine);
  // The slot that is written next: the copy of kRunAhead steps ago, of what
  // was told in the step before that one.
  return told_[(step + 1) % kRing];
}

}  // namespace commsched
