#include "trace/trace_file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace commsched {
namespace {

// Returns 0 or the errno of the first call that failed.
int WriteFile(const std::string& path,
              absl::FunctionRef<void(TraceSink)> write) {
  std::FILE* file = std::fopen(path.c_str(), "we");
  if (file == nullptr) return errno;
  int error = 0;
  write([file, &error](absl::string_view text) {
    if (error == 0 &&
        std::fwrite(text.data(), 1, text.size(), file) != text.size()) {
      error = errno;
    }
  });
  if (std::fclose(file) != 0 && error == 0) error = errno;
  return error;
}

}  // namespace

std::vector<Record> RecordsFromFirstStep(const Recorder& recorder) {
  std::vector<Record> records = recorder.Snapshot();
  const auto first =
      std::find_if(records.begin(), records.end(), [](const Record& record) {
        return record.kind == RecordKind::kStepBegin;
      });
  if (first == records.end()) return records;
  const int64_t begin_ns = first->begin_ns;
  std::vector<Record> kept;
  kept.reserve(records.size());
  for (Record& record : records) {
    if (record.end_ns < begin_ns) continue;
    record.begin_ns = std::max(record.begin_ns, begin_ns);
    kept.push_back(record);
  }
  return kept;
}

std::vector<Record> DrawnRecords(const Recorder& recorder) {
  std::vector<Record> records = RecordsFromFirstStep(recorder);
  const bool has_steps =
      std::any_of(records.begin(), records.end(), [](const Record& record) {
        return record.kind == RecordKind::kStepBegin;
      });
  const int64_t begin_ns = has_steps ? records.front().begin_ns : INT64_MIN;
  for (Record& record : recorder.SnapshotOfChannels()) {
    if (record.end_ns < std::max(begin_ns, record.begin_ns)) continue;
    record.begin_ns = std::max(record.begin_ns, begin_ns);
    records.push_back(record);
  }
  std::stable_sort(
      records.begin(), records.end(),
      [](const Record& a, const Record& b) { return a.begin_ns < b.begin_ns; });
  return records;
}

std::string OpNameOf(const RecordNames& names, uint32_t op) {
  const bool named = op < names.ops.size() && !names.ops[op].empty();
  return named ? names.ops[op] : absl::StrCat("op#", op);
}

absl::Status WriteTraceFile(absl::string_view path, int rank,
                            absl::FunctionRef<void(TraceSink)> write,
                            absl::string_view what) {
  // Beside the target, so that the rename stays on one file system, and by a
  // name that no other process or rank uses.
  const std::string target(path);
  const std::string unfinished =
      absl::StrCat(path, ".", getpid(), ".", rank, ".unfinished");
  int error = WriteFile(unfinished, write);
  if (error == 0 && std::rename(unfinished.c_str(), target.c_str()) != 0) {
    error = errno;
  }
  if (error == 0) return absl::OkStatus();
  std::remove(unfinished.c_str());
  return absl::UnavailableError(absl::StrCat("cannot write ", what, " '", path,
                                             "': ", std::strerror(error)));
}

}  // namespace commsched
