#include "ucx/network/pacer.h"

namespace commsched::ucx {

void Pacer::Add(Message* message, int64_t now_ns) {
  message->next = nullptr;
  if (first_ == nullptr) {
    first_ = message;
    last_ns_ = now_ns;
  } else {
    last_->next = message;
  }
  last_ = message;
}

bool Pacer::IsDue() const {
  return first_ != nullptr &&
         (stalls_ || bytes_ == 0 || bytes_ + first_->bytes <= room_bytes_);
}

Message* Pacer::Next(int64_t now_ns) {
  if (first_ != nullptr && bytes_ != 0 && now_ns >= StallsAtNs()) {
    stalls_ = true;
  }
  if (!IsDue()) return nullptr;
  Message* const message = Drop();
  message->is_paced = true;
  bytes_ += message->bytes;
  return message;
}

void Pacer::Done(const Message& message, int64_t now_ns) {
  bytes_ -= message.bytes;
  if (bytes_ == 0) stalls_ = false;
  last_ns_ = now_ns;
}

Message* Pacer::Drop() {
  Message* const message = first_;
  if (message == nullptr) return nullptr;
  first_ = message->next;
  message->next = nullptr;
  return message;
}

}  // namespace commsched::ucx
