#include "clique.h"

#include <algorithm>
#include <cstring>

#include "memory.h"

namespace fake_gpu {

bool Collective::IsBeingRead() const {
  const auto at = clique_->meetings.find(number_);
  return at != clique_->meetings.end() && at->second.num_reading != 0;
}

Progress Collective::TryRun(std::unique_lock<std::mutex>* lock) {
  const std::vector<bool>& gone = clique_->gone;
  if (gone[static_cast<size_t>(rank_)]) {
    return IsBeingRead() ? Progress::kNone : Progress::kDone;
  }
  Meeting& meeting = clique_->meetings[number_];
  switch (state_) {
    case State::kComes:
      meeting.calls.resize(static_cast<size_t>(clique_->size));
      meeting.calls[static_cast<size_t>(rank_)] = call_;
      ++meeting.num_come;
      state_ = State::kMeets;
      return Progress::kSome;
    case State::kMeets: {
      if (meeting.num_come < clique_->size) return Progress::kNone;
      for (const Call& other : meeting.calls) {
        if (!call_.Matches(other)) return Progress::kNone;  // For ever.
      }
      if (std::find(gone.begin(), gone.end(), true) != gone.end()) {
        return Progress::kNone;  // Until it is aborted itself.
      }
      const std::vector<Call> calls = meeting.calls;
      ++meeting.num_reading;
      lock->unlock();
      result_ = Result(calls, rank_);
      lock->lock();
      --meeting.num_reading;
      ++meeting.num_done;
      state_ = State::kHasRead;
      return Progress::kSome;
    }
    case State::kHasRead:
      // Nobody writes before all have read.
      if (meeting.num_done < clique_->size) return Progress::kNone;
      lock->unlock();
      if (!result_.empty()) {
        std::memcpy(Twin(call_.receive), result_.data(), result_.size());
      }
      lock->lock();
      if (++meeting.num_done == 2 * clique_->size) {
        clique_->meetings.erase(number_);
      }
      return Progress::kDone;
  }
  return Progress::kDone;
}

Message& Transfers::MessageOf(const Transfer& transfer) {
  const int peer = transfer.call.peer;
  return transfer.call.kind == Kind::kSend
             ? clique_->messages[{rank_, peer, transfer.number}]
             : clique_->messages[{peer, rank_, transfer.number}];
}

Progress Transfers::TryRun(std::unique_lock<std::mutex>* /*lock*/) {
  if (clique_->gone[static_cast<size_t>(rank_)]) return Progress::kDone;
  Progress progress = Progress::kNone;
  for (const Transfer& each : posted_ ? std::vector<Transfer>() : transfers_) {
    if (each.call.kind != Kind::kSend) continue;
    Message& message = MessageOf(each);
    message.send = each.call;
    message.posted = true;
    progress = Progress::kSome;
  }
  posted_ = true;
  std::vector<Transfer> rest;
  for (const Transfer& each : transfers_) {
    Message& message = MessageOf(each);
    if (each.call.kind == Kind::kSend) {
      if (!message.taken) {
        rest.push_back(each);
        continue;
      }
      clique_->messages.erase({rank_, each.call.peer, each.number});
    } else {
      if (!message.posted || message.send.count != each.call.count ||
          clique_->gone[static_cast<size_t>(each.call.peer)]) {
        rest.push_back(each);
        continue;
      }
      if (each.call.count != 0) {
        std::memcpy(Twin(each.call.receive), Twin(message.send.send),
                    each.call.count * SizeOf(each.call.dtype));
      }
      message.taken = true;
    }
    progress = Progress::kSome;
  }
  transfers_ = std::move(rest);
  return transfers_.empty() ? Progress::kDone : progress;
}

}  // namespace fake_gpu
