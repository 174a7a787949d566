#include "ucx/times/issue_times.h"

#include <algorithm>

namespace commsched::ucx {

// A binary tree of hosts, in their order, and one of the ranks of each host.
IssueTimes::IssueTimes(const Layout& layout, int rank)
    : rank_(rank), batches_(kNumBatches) {
  const int host = layout.HostOf(rank);
  const std::vector<int>& ranks = layout.RanksOf(host);
  const int index = layout.IndexOf(rank);
  const auto rank_at = [&](int i) { return ranks[static_cast<size_t>(i)]; };
  const auto first_of = [&](int h) { return layout.RanksOf(h).front(); };
  if (index != 0) {
    parent_ = rank_at((index - 1) / 2);
  } else if (host != 0) {
    parent_ = first_of((host - 1) / 2);
  }
  for (const int below : {2 * index + 1, 2 * index + 2}) {
    if (below < static_cast<int>(ranks.size())) {
      AddChild(layout, rank_at(below));
    }
  }
  for (const int below : {2 * host + 1, 2 * host + 2}) {
    if (index == 0 && below < layout.num_hosts()) {
      AddChild(layout, first_of(below));
    }
  }
}

void IssueTimes::AddChild(const Layout& layout, int rank) {
  Child child;
  child.rank = rank;
  if (layout.ShareHost(rank, rank_)) {
    child.clock = ClockOffset::None();
  } else {
    child.num_pings_left = kNumPings;
    child.is_ping_due = true;
  }
  children_.push_back(child);
}

std::vector<int> IssueTimes::Neighbors() const {
  std::vector<int> neighbors;
  if (parent_ >= 0) neighbors.push_back(parent_);
  for (const Child& child : children_) neighbors.push_back(child.rank);
  return neighbors;
}

// ---- Batches ----

IssueTimes::Batch* IssueTimes::Open(uint64_t number) {
  Batch& batch = batches_[number % kNumBatches];
  if (batch.state != Batch::kFree) {
    if (batch.number == number) return &batch;
    if (batch.number > number) return nullptr;
    if (batch.state == Batch::kKnown) {
      num_known_ -= batch.count - batch.num_taken;
    }
  }
  batch = Batch();
  batch.state = Batch::kGathers;
  batch.number = number;
  return &batch;
}

void IssueTimes::Keep(Batch* batch, size_t index, int64_t issued_ns,
                      int32_t rank) {
  Launch& launch = batch->launches[index];
  if (launch.last_rank >= 0 && launch.issued_ns >= issued_ns) return;
  launch.issued_ns = issued_ns;
  launch.last_rank = rank;
}

void IssueTimes::Issued(uint64_t step, uint64_t key, int64_t now_ns) {
  if (num_filled_ == kMost || (num_filled_ != 0 && step != filled_step_)) {
    Close();
  }
  filled_step_ = step;
  const uint32_t index = num_filled_++;
  Batch* const batch = Open(filling_);
  if (batch == nullptr) return;
  batch->launches[index].step = step;
  batch->launches[index].key = key;
  batch->count = num_filled_;
  Keep(batch, index, now_ns, rank_);
}

void IssueTimes::Close() {
  Batch* const batch = Open(filling_);
  ++filling_;
  num_filled_ = 0;
  if (batch == nullptr) return;
  batch->is_closed = true;
  GoOnWith(batch);
}

void IssueTimes::GoOnWith(Batch* batch) {
  const uint32_t all = (uint32_t{1} << children_.size()) - 1;
  if (batch->state != Batch::kGathers || !batch->is_closed ||
      batch->children != all) {
    return;
  }
  if (parent_ >= 0) {
    batch->state = Batch::kUpDue;
  } else {
    Finish(batch);
  }
}

void IssueTimes::Finish(Batch* batch) {
  batch->state = Batch::kKnown;
  batch->downs_due = (uint32_t{1} << children_.size()) - 1;
  num_known_ += batch->count;
}

// ---- What comes ----

void IssueTimes::Hear(const TimesMessage& message, int64_t now_ns) {
  if (message.count > kMost) return;
  if (message.rank == parent_) {
    if (message.kind != TimesMessage::kPing &&
        message.kind != TimesMessage::kDown) {
      return;
    }
    ping_ns_ = message.ping_ns;
    ping_heard_ns_ = now_ns;
    pong_due_ |= message.kind == TimesMessage::kPing;
    if (message.kind == TimesMessage::kDown) HearDown(message);
    return;
  }
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (message.rank != child.rank) continue;
    if (message.ping_ns != 0) {
      child.clock.Add({.asked_ns = message.ping_ns,
                       .heard_ns = message.heard_ns,
                       .answered_ns = message.sent_ns,
                       .back_ns = now_ns});
    }
    if (message.kind == TimesMessage::kPong) {
      child.is_ping_due = --child.num_pings_left > 0;
    } else if (message.kind == TimesMessage::kUp) {
      HearUp(i, message);
    }
    return;
  }
}

void IssueTimes::HearUp(size_t i, const TimesMessage& message) {
  const ClockOffset& clock = children_[i].clock;
  const uint32_t bit = uint32_t{1} << i;
  Batch* const batch = clock.is_known() ? Open(message.batch) : nullptr;
  if (batch == nullptr || (batch->children & bit) != 0) return;
  batch->children |= bit;
  for (size_t k = 0; k < message.count; ++k) {
    const int64_t issued_ns = clock.Here(message.issued_ns[k]);
    batch->error_ns =
        std::max(batch->error_ns, message.error_ns + clock.ErrorNs(issued_ns));
    Keep(batch, k, issued_ns, message.last_rank[k]);
  }
  GoOnWith(batch);
}

void IssueTimes::HearDown(const TimesMessage& message) {
  Batch* const batch = Open(message.batch);
  if (batch == nullptr || batch->state != Batch::kIsUp ||
      batch->count != message.count) {
    return;
  }
  for (size_t k = 0; k < message.count; ++k) {
    batch->launches[k].issued_ns = message.issued_ns[k];
    batch->launches[k].last_rank = message.last_rank[k];
  }
  batch->error_ns = message.error_ns;
  Finish(batch);
}

// ---- What goes ----

int IssueTimes::Next(int64_t now_ns, TimesMessage* out) {
  *out = {};
  out->rank = rank_;
  out->sent_ns = now_ns;
  for (size_t i = 0; i < children_.size(); ++i) {
    Child& child = children_[i];
    if (child.is_ping_due) {
      child.is_ping_due = false;
      out->kind = TimesMessage::kPing;
      out->ping_ns = now_ns;
      return child.rank;
    }
    if (NextDown(i, now_ns, out)) return child.rank;
  }
  if (pong_due_) {
    pong_due_ = false;
    out->kind = TimesMessage::kPong;
  } else if (!NextUp(out)) {
    return -1;
  }
  out->ping_ns = ping_ns_;
  out->heard_ns = ping_heard_ns_;
  ping_ns_ = 0;
  return parent_;
}

void IssueTimes::WriteTimes(const Batch& batch, TimesMessage* out) const {
  out->batch = batch.number;
  out->count = batch.count;
  out->error_ns = batch.error_ns;
  for (size_t k = 0; k < batch.count; ++k) {
    out->issued_ns[k] = batch.launches[k].issued_ns;
    out->last_rank[k] = batch.launches[k].last_rank;
  }
}

bool IssueTimes::NextUp(TimesMessage* out) {
  for (Batch& batch : batches_) {
    if (batch.state != Batch::kUpDue) continue;
    batch.state = Batch::kIsUp;
    out->kind = TimesMessage::kUp;
    WriteTimes(batch, out);
    return true;
  }
  return false;
}

bool IssueTimes::NextDown(size_t i, int64_t now_ns, TimesMessage* out) {
  const ClockOffset& clock = children_[i].clock;
  const uint32_t bit = uint32_t{1} << i;
  for (Batch& batch : batches_) {
    if ((batch.downs_due & bit) == 0) continue;
    batch.downs_due &= ~bit;
    out->kind = TimesMessage::kDown;
    out->ping_ns = now_ns;
    WriteTimes(batch, out);
    int64_t error_ns = 0;
    for (size_t k = 0; k < batch.count; ++k) {
      error_ns = std::max(error_ns, clock.ErrorNs(out->issued_ns[k]));
      out->issued_ns[k] = clock.There(out->issued_ns[k]);
    }
    out->error_ns += error_ns;
    return true;
  }
  return false;
}

// ---- What is known ----

uint32_t IssueTimes::Take(commsched_launch_start_t* out_starts,
                          uint32_t capacity) {
  uint32_t num_taken = 0;
  while (num_known_ != 0 && num_taken < capacity) {
    Batch* oldest = nullptr;
    for (Batch& batch : batches_) {
      if (batch.state != Batch::kKnown || batch.num_taken == batch.count) {
        continue;
      }
      if (oldest == nullptr || batch.number < oldest->number) oldest = &batch;
    }
    const Launch& launch = oldest->launches[oldest->num_taken++];
    out_starts[num_taken++] = {.step = launch.step,
                               .key = launch.key,
                               .started_ns = launch.issued_ns,
                               .error_ns = oldest->error_ns,
                               .last_rank = launch.last_rank,
                               .reserved = 0};
    --num_known_;
  }
  return num_taken;
}

}  // namespace commsched::ucx
