#include "trace/stream_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

const char* TitleOf(RecordKind kind) {
  if (kind == RecordKind::kCompute) return "compute lane ";
  return kind == RecordKind::kLaunch ? "communication lane " : "channel ";
}

constexpr int kFirstComputeStream = 7;  // PyTorch's default stream
constexpr int kFirstCommStream = 20;    // later if compute lanes need the room

}  // namespace

int64_t RoundedDown(int64_t ns, int64_t unit_ns) {
  return ns >= 0 ? ns / unit_ns : -((-ns + unit_ns - 1) / unit_ns);
}

bool IsKernel(const Record& record) {
  return record.kind == RecordKind::kCompute ||
         record.kind == RecordKind::kLaunch ||
         record.kind == RecordKind::kChannel;
}

StreamTable::StreamTable(const std::vector<Record>& records, int64_t unit_ns)
    : row_of_record_(records.size(), 0) {
  std::map<Key, size_t> row_of_key;
  std::map<std::pair<RecordKind, int>, std::vector<int64_t>> busy_until;
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    if (!IsKernel(record)) continue;
    std::vector<int64_t>& ends = busy_until[{record.kind, record.lane}];
    const int64_t begin = RoundedDown(record.begin_ns, unit_ns);
    size_t depth = 0;
    while (depth < ends.size() && ends[depth] > begin) ++depth;
    if (depth == ends.size()) ends.push_back(0);
    ends[depth] = RoundedDown(record.end_ns, unit_ns);
    const Key key = {record.kind, record.lane, static_cast<int>(depth)};
    row_of_record_[i] =
        row_of_key.try_emplace(key, row_of_key.size()).first->second;
  }
  rows_.resize(row_of_key.size());
  NumberRows(row_of_key);
}

void StreamTable::NumberRows(const std::map<Key, size_t>& row_of_key) {
  int first_comm = kFirstCommStream;
  int next_free = kFirstCommStream;
  for (const auto& [key, row] : row_of_key) {
    const auto& [kind, lane, depth] = key;
    if (kind == RecordKind::kCompute) {
      first_comm = std::max(first_comm, kFirstComputeStream + lane + 1);
    }
    if (kind == RecordKind::kChannel) continue;
    next_free = std::max(next_free, first_comm + lane + 1);
  }
  for (const auto& [key, row] : row_of_key) {
    const auto& [kind, lane, depth] = key;
    const bool compute = kind == RecordKind::kCompute;
    const bool has_own = depth == 0 && kind != RecordKind::kChannel;
    rows_[row].stream =
        has_own ? (compute ? kFirstComputeStream : first_comm) + lane
                : next_free++;
    rows_[row].title =
        absl::StrCat("stream ", rows_[row].stream, ": ", TitleOf(kind), lane,
                     depth > 0 ? ", concurrent" : "");
  }
}

}  // namespace commsched
