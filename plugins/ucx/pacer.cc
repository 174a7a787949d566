#include "pacer.h"

namespace commsched::ucx {

void Pacer::Add(Message* message, int64_t now_ns, bool is_awaited) {
  if (first_ == nullptr) last_ns_ = now_ns;
  Message* const before = is_awaited ? last_awaited_ : last_;
  Message** const place = before == nullptr ? &first_ : &before->next;
  message->next = *place;
  *place = message;
  if (message->next == nullptr) last_ = message;
  if (is_awaited) last_awaited_ = message;
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
  if (first_ == nullptr) last_ = nullptr;
  if (message == last_awaited_) last_awaited_ = nullptr;
  return message;
}

}  // namespace commsched::ucx
