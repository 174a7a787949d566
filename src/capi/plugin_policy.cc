#include "capi/plugin_policy.h"

#include <cstdint>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/plugin/table_support.h"

namespace commsched {
namespace {

static_assert(static_cast<int>(MergeAnswer::kOurs) == COMMSCHED_MERGE_OURS);
static_assert(static_cast<int>(MergeAnswer::kJoin) == COMMSCHED_MERGE_JOIN);
static_assert(static_cast<int>(MergeAnswer::kSplit) == COMMSCHED_MERGE_SPLIT);
static_assert(PolicyItem::kNever == UINT32_MAX);

// An item with its names ending in NUL, as C has them.
struct TableItem {
  explicit TableItem(const PolicyItem& item)
      : name(item.name), axis(item.group) {
    table.struct_size = sizeof(table);
    table.op = item.op.value();
    table.kind = static_cast<commsched_collective_t>(item.kind);
    table.dtype = static_cast<commsched_dtype_t>(item.dtype);
    table.group_size = item.group_size;
    table.num_members = item.num_members;
    table.priority = item.priority;
    table.bytes = item.bytes;
    table.link_ns = item.link_ns;
    table.ready = item.ready;
    table.first_need = item.first_need;
  }

  // Once the item lies where it stays: a short string is inside of it.
  const commsched_policy_item_t* Get() {
    table.name = name.c_str();
    table.axis = axis.c_str();
    return &table;
  }

  std::string name;
  std::string axis;
  commsched_policy_item_t table = {};
};

// Runs function `name` of the plugin, and makes a Status of what it says.
template <typename Call>
absl::Status Guarded(const char* name, Call call) {
  PluginMessage message;
  try {
    const commsched_status_t code =
        call(message.Begin(), PluginMessage::size());
    if (code == COMMSCHED_OK) return absl::OkStatus();
    return PluginFailure("it", name, code, message);
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("it threw: ", e.what()));
  } catch (...) {
    return absl::InternalError("it threw an exception of unknown type");
  }
}

}  // namespace

absl::StatusOr<MergeAnswer> PluginPolicy::Merge(
    const MergeQuestion& question) const {
  if (table_->merge == nullptr) return MergeAnswer::kOurs;
  TableItem open(question.open);
  TableItem next(question.next);
  commsched_merge_question_t asked = {};
  asked.struct_size = sizeof(asked);
  asked.open = open.Get();
  asked.next = next.Get();
  asked.limit_bytes = question.limit_bytes;
  asked.legal = question.legal ? 1 : 0;
  asked.ours = question.ours ? COMMSCHED_MERGE_JOIN : COMMSCHED_MERGE_SPLIT;
  commsched_merge_answer_t answer = COMMSCHED_MERGE_OURS;
  RETURN_IF_ERROR(Guarded("merge", [&](char* message, uint64_t size) {
    return table_->merge(&asked, &answer, message, size);
  }));
  if (answer > COMMSCHED_MERGE_SPLIT) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it answers ", answer, " about '", question.open.name, "' and '",
        question.next.name, "', outside 0..", int{COMMSCHED_MERGE_SPLIT}));
  }
  return static_cast<MergeAnswer>(answer);
}

absl::StatusOr<std::vector<uint32_t>> PluginPolicy::Order(
    absl::Span<const PolicyLaunch> launches) const {
  if (table_->order == nullptr || launches.empty()) {
    return std::vector<uint32_t>();
  }
  std::vector<TableItem> items;
  items.reserve(launches.size());
  for (const PolicyLaunch& launch : launches) items.emplace_back(launch.item);
  std::vector<commsched_policy_launch_t> tables(launches.size());
  std::vector<const commsched_policy_launch_t*> pointers(launches.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    const PolicyLaunch& from = launches[i];
    tables[i] = {.struct_size = sizeof(commsched_policy_launch_t),
                 .item = items[i].Get(),
                 .role = from.role,
                 .piece = from.piece,
                 .num_pieces = from.num_pieces,
                 .num_after = static_cast<uint32_t>(from.after.size()),
                 .after = from.after.data(),
                 .earliest_ns = from.earliest_ns,
                 .need_ns = from.need_ns};
    pointers[i] = &tables[i];
  }
  std::vector<uint32_t> order(launches.size(), UINT32_MAX);
  RETURN_IF_ERROR(Guarded("order", [&](char* message, uint64_t size) {
    return table_->order(pointers.data(),
                         static_cast<uint32_t>(pointers.size()), order.data(),
                         message, size);
  }));
  if (order.front() == UINT32_MAX) return std::vector<uint32_t>();
  return order;
}

}  // namespace commsched
