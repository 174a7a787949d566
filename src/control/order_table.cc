#include "control/order_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

uint64_t BlockOf(uint64_t number) { return (number - 1) / OrderSlice::kBlock; }

// `rank` has `before` launches of B before number `number` of A, `other` has
// `others`, which is another number. Who has fewer has A before the next one.
OrderDifference Differs(uint64_t number, int rank, uint64_t before, int other,
                        uint64_t others) {
  return {.topic = "",
          .a_number = number,
          .b_number = std::min(before, others) + 1,
          .a_first = before < others ? rank : other,
          .b_first = before < others ? other : rank};
}

}  // namespace

absl::Status OrderSlice::Check() const {
  if (topic.empty() || topic.size() > kMaxTopicBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("an order's topic of ", topic.size(),
                     " bytes; it must have 1..", kMaxTopicBytes));
  }
  if (before.size() > kBlock || first == 0 || first > UINT64_MAX - kBlock ||
      base > UINT64_MAX / 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an order of ", before.size(), " launches from number ", first, " on"));
  }
  if (!before.empty() && BlockOf(first) != BlockOf(next() - 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an order of launches ", first, " to ", next() - 1,
                     ", which are not of one block of ", kBlock));
  }
  if (std::any_of(before.begin(), before.end(),
                  [](int32_t more) { return more < 0; })) {
    return absl::InvalidArgumentError("an order in which numbers fall");
  }
  return absl::OkStatus();
}

absl::optional<OrderDifference> OrderTable::Say(int rank,
                                                const OrderSlice& slice) {
  Topic* const topic = Find(slice.topic);
  if (topic->told.contains(rank)) return absl::nullopt;
  absl::optional<OrderDifference> found = Compare(*topic, rank, slice);
  if (!found.has_value()) {
    Keep(topic, rank, slice);
    return absl::nullopt;
  }
  topic->told.insert(rank);
  found->topic = slice.topic;
  return found;
}

OrderTable::Topic* OrderTable::Find(const std::string& name) {
  const auto known = topics_.find(name);
  if (known != topics_.end()) return &known->second;
  if (in_order_.size() == kMaxTopics) {
    topics_.erase(in_order_.front());
    in_order_.pop_front();
  }
  in_order_.push_back(name);
  return &topics_[name];
}

// Null: nobody has said it.
const OrderTable::Said* OrderTable::Find(const Topic& topic, uint64_t number) {
  const auto block = topic.blocks.find(BlockOf(number));
  if (block == topic.blocks.end()) return nullptr;
  const Said& said = block->second[(number - 1) % OrderSlice::kBlock];
  return said.rank < 0 ? nullptr : &said;
}

absl::optional<OrderDifference> OrderTable::Compare(const Topic& topic,
                                                    int rank,
                                                    const OrderSlice& slice) {
  for (uint64_t number = slice.first; number < slice.next(); ++number) {
    const uint64_t before = slice.BeforeOf(number);
    const Said* const said = Find(topic, number);
    if (said != nullptr && said->before != before) {
      return Differs(number, rank, before, said->rank, said->before);
    }
    // Ranks that are yet to come to it.
    for (const auto& [other, open] : topic.open) {
      if (other != rank && number >= open.next && before < open.then) {
        return Differs(number, rank, before, other, open.then);
      }
    }
  }
  // What this rank is yet to come to. Numbers only grow: the first is enough,
  // unless it is not known.
  const uint64_t end = (BlockOf(slice.next()) + 1) * OrderSlice::kBlock;
  for (uint64_t number = slice.next(); number <= end; ++number) {
    const Said* const said = Find(topic, number);
    if (said == nullptr) continue;
    if (said->before >= slice.then) break;
    return Differs(number, rank, slice.then, said->rank, said->before);
  }
  return absl::nullopt;
}

void OrderTable::Keep(Topic* topic, int rank, const OrderSlice& slice) {
  Open& open = topic->open[rank];
  if (slice.next() >= open.next) {
    open = {slice.next(), std::max(slice.then, open.then)};
  }
  if (slice.before.empty()) return;
  Block& block = topic->blocks[BlockOf(slice.first)];
  for (uint64_t number = slice.first; number < slice.next(); ++number) {
    Said& said = block[(number - 1) % OrderSlice::kBlock];
    if (said.rank < 0) said = {rank, slice.BeforeOf(number)};
  }
  if (topic->blocks.size() > kMaxBlocks) {
    topic->blocks.erase(topic->blocks.begin());
  }
}

}  // namespace commsched
