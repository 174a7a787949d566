#include "clocks.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <utility>

#include "fake_gpu.h"
#include "memory.h"

namespace fake_gpu {
namespace {

thread_local Clock host_clock;

}  // namespace

void Clocks::Start() {
  const std::lock_guard<std::mutex> lock(mu_);
  ++run_;
  num_streams_ = 0;
  share_ = false;
  all_hosts_ = {run_, {}};
  cells_.clear();
  names_.clear();
  num_races_ = 0;
  first_race_.clear();
  on_ = true;
}

// What threads knew of an earlier run says nothing.
Clock& Clocks::HostLocked() {
  if (share_) return all_hosts_;
  if (host_clock.run != run_) host_clock = all_hosts_;
  return host_clock;
}

void Clocks::JoinLocked(Clock* into, const Clock& from) {
  if (from.run != run_) return;
  if (into->known.size() < from.known.size()) {
    into->known.resize(from.known.size());
  }
  for (size_t i = 0; i < from.known.size(); ++i) {
    into->known[i] = std::max(into->known[i], from.known[i]);
  }
}

// What a stream gets next comes after all that its host knows.
void Clocks::RefreshLocked(StreamClock* stream) {
  if (stream->clock.run != run_) {
    stream->clock = {run_, {}};
    stream->number = num_streams_++;
  }
  if (stream->clock.known.size() <= stream->number) {
    stream->clock.known.resize(stream->number + 1);
  }
  JoinLocked(&stream->clock, HostLocked());
}

void Clocks::Access(StreamClock* stream, const char* name, const Range* ranges,
                    size_t num_ranges) {
  if (!on()) return;
  const std::lock_guard<std::mutex> lock(mu_);
  RefreshLocked(stream);
  Use use;
  use.stream = stream->number;
  use.number = ++stream->clock.known[stream->number];
  use.name = names_.insert(name).first->c_str();
  for (size_t i = 0; i < num_ranges; ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(ranges[i].address);
    // What else the host has is not the device's to touch.
    if (ranges[i].bytes == 0 || IsPageable(ranges[i].address)) continue;
    if (ranges[i].writes) {
      WriteLocked(*stream, use, begin, begin + ranges[i].bytes);
    } else {
      ReadLocked(*stream, use, begin, begin + ranges[i].bytes);
    }
  }
}

void Clocks::Record(StreamClock* stream, Clock* out_event) {
  if (!on()) return;
  const std::lock_guard<std::mutex> lock(mu_);
  RefreshLocked(stream);
  *out_event = stream->clock;
}

void Clocks::Wait(StreamClock* stream, const Clock& event) {
  if (!on()) return;
  const std::lock_guard<std::mutex> lock(mu_);
  RefreshLocked(stream);
  JoinLocked(&stream->clock, event);
}

void Clocks::Learn(const Clock& clock) {
  if (!on()) return;
  const std::lock_guard<std::mutex> lock(mu_);
  JoinLocked(&HostLocked(), clock);
  JoinLocked(&all_hosts_, clock);
}

void Clocks::Share(bool on) {
  const std::lock_guard<std::mutex> lock(mu_);
  share_ = on;
}

bool Clocks::KnowsLocked(const Clock& clock, const Use& use) const {
  return use.stream < clock.known.size() &&
         clock.known[use.stream] >= use.number;
}

// The cell that begins at `at`, or the first one behind it.
Clocks::Cells::iterator Clocks::SplitLocked(uintptr_t at) {
  const auto after = cells_.lower_bound(at);
  if (after == cells_.begin()) return after;
  const auto before = std::prev(after);
  if (before->first == at || before->second.end <= at) return after;
  Cell rest = before->second;
  before->second.end = at;
  return cells_.emplace_hint(after, at, std::move(rest));
}

void Clocks::CheckLocked(const Clock& clock, const Use& earlier,
                         const char* did, const Use& later, const char* does,
                         uintptr_t begin, uintptr_t end) {
  if (earlier.number == 0 || KnowsLocked(clock, earlier)) return;
  if (num_races_++ != 0) return;
  char text[512];
  std::snprintf(text, sizeof(text),
                "'%s' (#%u of stream %u) %s [%#zx, %#zx), which '%s' (#%u of "
                "stream %u) %s, and nothing orders them",
                later.name, later.number, later.stream, does,
                static_cast<size_t>(begin), static_cast<size_t>(end),
                earlier.name, earlier.number, earlier.stream, did);
  first_race_ = text;
}

void Clocks::ReadLocked(const StreamClock& stream, const Use& use,
                        uintptr_t begin, uintptr_t end) {
  auto cell = SplitLocked(begin);
  SplitLocked(end);
  while (begin < end) {
    if (cell == cells_.end() || cell->first > begin) {
      // Nobody has used what is before the next cell.
      const uintptr_t gap_end =
          cell == cells_.end() ? end : std::min(end, cell->first);
      cell = cells_.emplace_hint(cell, begin, Cell{gap_end, {}, {}});
    }
    CheckLocked(stream.clock, cell->second.write, "writes", use, "reads", begin,
                cell->second.end);
    std::vector<Use>& reads = cell->second.reads;
    const auto mine = std::find_if(
        reads.begin(), reads.end(),
        [&](const Use& each) { return each.stream == use.stream; });
    if (mine != reads.end()) {
      *mine = use;
    } else {
      reads.push_back(use);
    }
    begin = cell->second.end;
    ++cell;
  }
}

void Clocks::WriteLocked(const StreamClock& stream, const Use& use,
                         uintptr_t begin, uintptr_t end) {
  const auto first = SplitLocked(begin);
  const auto last = SplitLocked(end);
  // SplitLocked(end) may have split `first`, which stays the first.
  for (auto cell = first; cell != last; ++cell) {
    CheckLocked(stream.clock, cell->second.write, "writes", use, "writes",
                cell->first, cell->second.end);
    for (const Use& read : cell->second.reads) {
      CheckLocked(stream.clock, read, "reads", use, "writes", cell->first,
                  cell->second.end);
    }
  }
  cells_.erase(first, last);
  cells_.emplace(begin, Cell{end, use, {}});
}

void Clocks::Free(const void* address, size_t bytes) {
  if (!on() || bytes == 0) return;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const Use free{0, 0, "a call that frees memory"};
  const auto first = SplitLocked(begin);
  const auto last = SplitLocked(begin + bytes);
  for (auto cell = first; cell != last; ++cell) {
    CheckLocked(all_hosts_, cell->second.write, "writes", free, "gives back",
                cell->first, cell->second.end);
    for (const Use& read : cell->second.reads) {
      CheckLocked(all_hosts_, read, "reads", free, "gives back", cell->first,
                  cell->second.end);
    }
  }
  cells_.erase(first, last);
}

uint64_t Clocks::num_races() {
  const std::lock_guard<std::mutex> lock(mu_);
  return num_races_;
}

const char* Clocks::first_race() {
  const std::lock_guard<std::mutex> lock(mu_);
  return first_race_.c_str();
}

Clocks& AllClocks() {
  static auto* const clocks = new Clocks;
  return *clocks;
}

}  // namespace fake_gpu

using fake_gpu::AllClocks;

uint64_t fake_gpu_races(void) { return AllClocks().num_races(); }
const char* fake_gpu_first_race(void) { return AllClocks().first_race(); }
void fake_gpu_hosts_share(int on) { AllClocks().Share(on != 0); }
