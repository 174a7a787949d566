#include "channel/shape_table.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "xxhash.h"

namespace commsched {
namespace {

// Sizes below are not worth telling apart.
constexpr uint64_t kLeastCount = 64;
// Of a power of two: so much more than is needed is expected at most.
constexpr uint64_t kSteps = 8;

// 0 stays 0: who has no part of a launch gets none.
uint64_t RoundedUp(uint64_t count) {
  if (count == 0) return 0;
  if (count <= kLeastCount) return kLeastCount;
  const uint64_t step = std::bit_floor(count) / kSteps;
  if (count > UINT64_MAX - step) return count;
  return (count + step - 1) / step * step;
}

// Of a launch that is hashed: a member without what it may grow in.
struct Message {
  uint32_t direction = 0;
  int32_t peer = 0;
};

}  // namespace

size_t ShapeTable::NumCounts(const commsched_launch_t& call) const {
  if (call.num_members == 0 || call.members[0].counts == nullptr) return 0;
  const auto n = static_cast<size_t>(size_);
  return (call.flags & COMMSCHED_LAUNCH_OWN_COUNTS) != 0 ? 2 * n : n;
}

uint64_t ShapeTable::KeyOf(const commsched_launch_t& call) const {
  const uint64_t head[] = {call.kind,          call.dtype,
                           call.reduce_op,     static_cast<uint64_t>(call.root),
                           call.deterministic, call.flags,
                           call.num_members,   NumCounts(call)};
  uint64_t key = XXH3_64bits(head, sizeof(head));
  if (call.kind != COMMSCHED_SEND) return key;
  for (uint32_t m = 0; m < call.num_members; ++m) {
    const Message message = {call.members[m].direction, call.members[m].peer};
    key = XXH3_64bits_withSeed(&message, sizeof(message), key);
  }
  return key;
}

bool ShapeTable::Fits(const commsched_launch_t& call,
                      const Shape& shape) const {
  for (uint32_t m = 0; m < call.num_members; ++m) {
    if (call.members[m].count > shape.members[m].count) return false;
  }
  for (size_t i = 0; i < shape.counts.size(); ++i) {
    if (call.members[0].counts[i] > shape.counts[i]) return false;
  }
  return true;
}

uint32_t ShapeTable::SlotOf(const commsched_launch_t& call) const {
  const auto found = shapes_.find(KeyOf(call));
  if (found == shapes_.end() || !Fits(call, found->second)) return UINT32_MAX;
  return found->second.slot;
}

const commsched_launch_t* ShapeTable::Grow(const commsched_launch_t& call) {
  grown_key_ = KeyOf(call);
  const auto known = shapes_.find(grown_key_);
  if (known == shapes_.end() && shapes_.size() == kMostShapes) return nullptr;
  const Shape* const before = known == shapes_.end() ? nullptr : &known->second;
  grown_.call = call;
  grown_.members.assign(call.members, call.members + call.num_members);
  grown_.counts.clear();
  const size_t num_counts = NumCounts(call);
  for (size_t i = 0; i < num_counts; ++i) {
    const uint64_t had = before == nullptr ? 0 : before->counts[i];
    grown_.counts.push_back(
        std::max(had, RoundedUp(call.members[0].counts[i])));
  }
  for (uint32_t m = 0; m < call.num_members; ++m) {
    commsched_member_t& member = grown_.members[m];
    const uint64_t had = before == nullptr ? 0 : before->members[m].count;
    member.count = std::max(had, RoundedUp(member.count));
    member.input = nullptr;
    member.output = nullptr;
    member.counts = num_counts == 0 ? nullptr : grown_.counts.data();
  }
  grown_.call.members = grown_.members.data();
  return &grown_.call;
}

void ShapeTable::Keep(uint32_t slot) {
  grown_.slot = slot;
  Shape& kept = shapes_[grown_key_];
  kept = std::move(grown_);
  kept.call.members = kept.members.data();
  grown_ = {};
}

}  // namespace commsched
