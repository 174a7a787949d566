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

absl::optional<OrderDifference> OrderTable::Compare(const Topic& topic,
                                                    int rank,
                                                    const OrderSlice& slice) {
  // Launches of A that both have.
  for (size_t i = 0; i < slice.before.size(); ++i) {
    const uint64_t number = slice.first + i;
    const uint64_t before = slice.base + static_cast<uint64_t>(slice.before[i]);
    const auto block = topic.blocks.find(BlockOf(number));
    if (block != topic.blocks.end()) {
      const Block& said = block->second;
      const uint64_t at = number - said.first;
      if (number >= said.first && at < said.before.size() &&
          said.before[at] != before) {
        return Differs(number, rank, before, said.rank, said.before[at]);
      }
    }
    // Launches of A that another rank is yet to come to.
    for (const auto& [other, open] : topic.open) {
      if (other != rank && number >= open.next && before < open.then) {
        return Differs(number, rank, before, other, open.then);
      }
    }
  }
  const auto block = topic.blocks.find(BlockOf(slice.next()));
  if (block == topic.blocks.end()) return absl::nullopt;
  const Block& said = block->second;
  const uint64_t number = std::max(slice.next(), said.first);
  const uint64_t at = number - said.first;
  if (at < said.before.size() && said.before[at] < slice.then) {
    return Differs(number, rank, slice.then, said.rank, said.before[at]);
  }
  return absl::nullopt;
}

// Of a block what one rank says, so that who is named has launched so: whoever
// says the most.
void OrderTable::Keep(Topic* topic, int rank, const OrderSlice& slice) {
  Open& open = topic->open[rank];
  if (slice.next() >= open.next) {
    open = {slice.next(), std::max(slice.then, open.then)};
  }
  if (slice.before.empty()) return;
  Block& block = topic->blocks[BlockOf(slice.first)];
  if (slice.before.size() > block.before.size()) {
    block = {rank, slice.first, {}};
    for (const int32_t more : slice.before) {
      block.before.push_back(slice.base + static_cast<uint64_t>(more));
    }
  }
  if (topic->blocks.size() > kMaxBlocks) {
    topic->blocks.erase(topic->blocks.begin());
  }
}

}  // namespace commsched
