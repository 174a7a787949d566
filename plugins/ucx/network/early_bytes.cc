#include "ucx/network/early_bytes.h"

namespace commsched::ucx {

void EarlyBytes::Sent(int peer, uint64_t number, uint64_t bytes) {
  Peer& to = peers_[Index(peer)];
  to.sent_bytes += bytes;
  to.last = number;
  if (to.awaited == number) to.awaited_bytes = to.sent_bytes;
  Update(&to);
}

void EarlyBytes::Posted(int peer, uint64_t number) {
  Peer& to = peers_[Index(peer)];
  if (to.awaited == 0 || number < to.awaited) return;
  to.posted_bytes = to.awaited_bytes;
  to.awaited = 0;
  if (!to.is_asked) --num_questions_;
  Update(&to);
}

void EarlyBytes::Update(Peer* peer) {
  const uint64_t early_bytes = peer->sent_bytes - peer->posted_bytes;
  if (peer->awaited == 0 && early_bytes > most_bytes_ / 2) {
    peer->awaited = peer->last;
    peer->awaited_bytes = peer->sent_bytes;
    peer->is_asked = false;
    ++num_questions_;
  }
  const bool is_behind = early_bytes >= most_bytes_;
  if (is_behind != peer->is_behind) num_behind_ += is_behind ? 1 : -1;
  peer->is_behind = is_behind;
}

uint64_t EarlyBytes::TakeQuestion(int peer) {
  Peer& to = peers_[Index(peer)];
  if (to.awaited == 0 || to.is_asked) return 0;
  to.is_asked = true;
  --num_questions_;
  return to.awaited;
}

}  // namespace commsched::ucx
