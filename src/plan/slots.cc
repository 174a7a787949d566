#include "plan/slots.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace commsched {
namespace {

void Add(const Lifetime& lifetime, Slot* slot) {
  slot->bytes = std::max(slot->bytes, lifetime.bytes);
  slot->for_ever = slot->for_ever || lifetime.for_ever;
  if (!lifetime.IsNeverAlive()) {
    slot->stays.push_back({lifetime.begin, lifetime.end});
  }
}

// Slots in which nobody is ever alive keep their memory, as a buffer does that
// nobody uses.
Slots Finished(Slots slots) {
  for (Slot& slot : slots.slots) {
    slot.for_ever = slot.for_ever || slot.stays.empty();
    if (slot.stays.size() < 2) continue;
    std::sort(slot.stays.begin(), slot.stays.end(),
              [](const Stay& a, const Stay& b) { return a.begin < b.begin; });
  }
  return slots;
}

}  // namespace

Slots SlotsOf(const std::vector<Lifetime>& lifetimes) {
  Slots slots;
  slots.slots.reserve(lifetimes.size());
  slots.of_lifetime.reserve(lifetimes.size());
  absl::flat_hash_map<uint32_t, uint32_t> of_group;
  for (const Lifetime& lifetime : lifetimes) {
    uint32_t index = static_cast<uint32_t>(slots.slots.size());
    if (lifetime.place_group != 0) {
      index = of_group.try_emplace(lifetime.place_group, index).first->second;
    }
    if (index == slots.slots.size()) slots.slots.emplace_back();
    Add(lifetime, &slots.slots[index]);
    slots.of_lifetime.push_back(index);
  }
  slots.num_groups = static_cast<uint32_t>(of_group.size());
  return Finished(std::move(slots));
}

Slots SlotsApart(const std::vector<Lifetime>& lifetimes) {
  Slots slots;
  for (const Lifetime& lifetime : lifetimes) {
    slots.of_lifetime.push_back(static_cast<uint32_t>(slots.slots.size()));
    Add(lifetime, &slots.slots.emplace_back());
  }
  return Finished(std::move(slots));
}

}  // namespace commsched
