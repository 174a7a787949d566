#include "comm/lane_order.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/optional.h"
#include "base/log.h"
#include "xxhash.h"

namespace commsched {
namespace {

constexpr uint64_t kNumberMask = (uint64_t{1} << 40) - 1;
// How often a reader that is overtaken begins anew within one look.
constexpr int kMostTries = 16;

// Equal on all ranks that have both, whatever the ids' lengths.
std::string TopicOf(const std::string& a, const std::string& b) {
  const std::string both = absl::StrCat(a.size(), "\n", a, "\n", b);
  const XXH128_hash_t hash = XXH3_128bits(both.data(), both.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

int NumCommon(const std::vector<int>& one, const std::vector<int>& other) {
  return static_cast<int>(
      std::count_if(one.begin(), one.end(), [&other](int rank) {
        return std::find(other.begin(), other.end(), rank) != other.end();
      }));
}

}  // namespace

LaneQueue::~LaneQueue() { order_->Remove(slot_); }

std::unique_ptr<LaneQueue> LaneOrder::Add(LaneQueueSpec spec) {
  MutexLock lock(&mu_);
  while (queues_.contains(next_slot_)) ++next_slot_;
  const uint16_t slot = next_slot_++;
  std::unique_ptr<LaneQueue> handle(new LaneQueue(shared_from_this(), slot));
  queues_[slot] = {.spec = std::move(spec), .handle = handle.get()};
  AddPairs(slot);
  return handle;
}

void LaneOrder::Remove(uint16_t slot) {
  MutexLock lock(&mu_);
  std::erase_if(pairs_, [slot](const Pair& pair) {
    return pair.a == slot || pair.b == slot;
  });
  has_pairs_.store(!pairs_.empty(), std::memory_order_relaxed);
  queues_.erase(slot);
}

bool LaneOrder::IsCompared(const Queue& one, const Queue& other) const {
  return one.spec.board == other.spec.board &&
         one.spec.owner != other.spec.owner &&
         NumCommon(one.spec.members, other.spec.members) > 1;
}

// Where nothing was compared nobody has read either.
void LaneOrder::AddPairs(uint16_t slot) {
  if (pairs_.empty()) Skip();
  const Queue& added = queues_[slot];
  for (const auto& [other_slot, other] : queues_) {
    if (other_slot == slot || !IsCompared(added, other)) continue;
    const bool is_a = added.spec.id < other.spec.id;
    Pair pair;
    pair.a = is_a ? slot : other_slot;
    pair.b = is_a ? other_slot : slot;
    pair.slice.topic = is_a ? TopicOf(added.spec.id, other.spec.id)
                            : TopicOf(other.spec.id, added.spec.id);
    pairs_.push_back(std::move(pair));
  }
  has_pairs_.store(!pairs_.empty(), std::memory_order_relaxed);
}

void LaneOrder::Look(int64_t now_ns, int64_t every_ns) {
  if (!has_pairs_.load(std::memory_order_relaxed)) return;
  if (!mu_.TryLock()) return;
  now_ns_ = now_ns;
  Read();
  SayDue(now_ns, every_ns);
  const std::vector<std::string> found = FindDifferences();
  mu_.Unlock();
  for (const std::string& difference : found) {
    Log(LogLevel::kWarning,
        "launches that share a lane are not in one order on all ranks, and may "
        "never end: ",
        difference);
  }
}

std::string LaneOrder::Difference() {
  MutexLock lock(&mu_);
  return difference_;
}

// ---- Reading ----

void LaneOrder::Read() {
  for (int tries = 0; tries < kMostTries; ++tries) {
    const uint64_t end = num_noted_.load(std::memory_order_acquire);
    if (end - num_read_ > kRing) Skip();
    bool is_overtaken = false;
    for (; num_read_ < end && !is_overtaken; ++num_read_) {
      const uint64_t entry =
          ring_[num_read_ % kRing].load(std::memory_order_relaxed);
      const auto slot = static_cast<uint16_t>(entry >> 40);
      const uint64_t number = entry & kNumberMask;
      is_overtaken = entry != Entry(num_read_, slot, number);
      if (!is_overtaken) Launched(slot, number);
    }
    if (!is_overtaken) return;
    Skip();
  }
}

// Goes on with what is launched next. What all queues have launched until then
// is known if nobody launches meanwhile, but for a launch that is being noted:
// it counts, and its entry is then the next one.
void LaneOrder::Skip() {
  bool is_known = false;
  for (int tries = 0; tries < kMostTries && !is_known; ++tries) {
    num_read_ = num_noted_.load(std::memory_order_acquire);
    for (auto& [slot, queue] : queues_) {
      queue.num = queue.handle->num_launched_.load(std::memory_order_acquire);
    }
    is_known = num_noted_.load(std::memory_order_acquire) == num_read_;
  }
  for (auto& [slot, queue] : queues_) {
    queue.is_known = is_known || queue.num == 0;
  }
  for (Pair& pair : pairs_) pair.is_open = false;
}

void LaneOrder::Launched(uint16_t slot, uint64_t number) {
  const auto found = queues_.find(slot);
  if (found == queues_.end()) return;  // It is gone.
  Queue& queue = found->second;
  if (queue.is_known && number <= queue.num) return;  // See Skip().
  for (Pair& pair : pairs_) {
    if (pair.a != slot) continue;
    Begin(&pair);
    if (!pair.is_open) continue;
    const uint64_t before = queues_[pair.b].num - pair.slice.base;
    pair.slice.before.push_back(static_cast<int32_t>(before));
    if (number % OrderSlice::kBlock != 0) continue;
    Say(&pair, now_ns_);
    pair.is_open = false;
  }
  queue.num = number;
  queue.is_known = true;
}

// A slice begins with what is launched next.
void LaneOrder::Begin(Pair* pair) {
  if (pair->is_open) return;
  const Queue& a = queues_[pair->a];
  const Queue& b = queues_[pair->b];
  if (!a.is_known || !b.is_known) return;
  pair->is_open = true;
  pair->slice.first = a.num + 1;
  pair->slice.base = b.num;
  pair->slice.before.clear();
}

// ---- Saying ----

void LaneOrder::SayDue(int64_t now_ns, int64_t every_ns) {
  for (Pair& pair : pairs_) {
    if (now_ns - pair.said_ns < every_ns) continue;
    Begin(&pair);
    if (!pair.is_open) continue;
    const bool has_news = pair.slice.next() != pair.said_next ||
                          queues_[pair.b].num != pair.said_then;
    if (has_news) Say(&pair, now_ns);
  }
}

void LaneOrder::Say(Pair* pair, int64_t now_ns) {
  if (pair->differs) return;
  const Queue& b = queues_[pair->b];
  pair->slice.then = b.num;
  pair->said_next = pair->slice.next();
  pair->said_then = b.num;
  pair->said_ns = now_ns;
  b.spec.board->Say(b.spec.rank, pair->slice);
}

// Returns those that are new.
std::vector<std::string> LaneOrder::FindDifferences() {
  std::vector<std::string> differences;
  for (Pair& pair : pairs_) {
    const LaneQueueSpec& a = queues_[pair.a].spec;
    const LaneQueueSpec& b = queues_[pair.b].spec;
    if (pair.differs || a.board->num_found() == 0) continue;
    const absl::optional<OrderDifference> found =
        a.board->Find(pair.slice.topic);
    if (!found.has_value()) continue;
    pair.differs = true;
    const std::string of_a =
        absl::StrCat("launch ", found->a_number, " of ", a.name);
    const std::string of_b =
        absl::StrCat("launch ", found->b_number, " of ", b.name);
    differences.push_back(absl::StrCat(
        "on lane ", lane_, " of its device the job's rank ", found->a_first,
        " has ", of_a, " before ", of_b, ", the job's rank ", found->b_first,
        " has ", of_b, " before ", of_a));
  }
  if (difference_.empty() && !differences.empty()) {
    difference_ = differences.front();
  }
  return differences;
}

}  // namespace commsched
