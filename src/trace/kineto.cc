#include "trace/kineto.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trace/json_writer.h"
#include "trace/kineto_names.h"
#include "trace/stream_table.h"
#include "trace/trace_file.h"

namespace commsched {
namespace {

constexpr int kCallerThread = 1;  // + compute lane
constexpr int kProgressThread = 1001;
constexpr int kCudaLaunchKernelId = 211;  // CUPTI's number of the call

// ---- Process groups ---------------------------------------------------------

// The distinct groups of the launches, numbered by first use.
class ProcessGroups {
 public:
  struct Group {
    std::string axis;
    std::vector<int> ranks;
    std::string RanksText() const {
      return absl::StrCat("[", absl::StrJoin(ranks, ", "), "]");
    }
  };

  explicit ProcessGroups(const RecordNames& names) {
    std::map<std::pair<std::string, std::vector<int>>, size_t> index;
    for (const RecordNames::LaunchName& launch : names.launches) {
      const auto [found, added] =
          index.try_emplace({launch.axis, launch.ranks}, groups_.size());
      if (added) groups_.push_back({launch.axis, launch.ranks});
      group_of_launch_.push_back(found->second);
    }
  }

  const std::vector<Group>& groups() const { return groups_; }
  size_t IndexOf(uint32_t launch) const { return group_of_launch_[launch]; }

 private:
  std::vector<Group> groups_;
  std::vector<size_t> group_of_launch_;
};

// ---- The file ---------------------------------------------------------------

class KinetoWriter {
 public:
  KinetoWriter(const Recorder& recorder, TraceSink sink)
      : names_(recorder.names()),
        records_(RecordsFromFirstStep(recorder)),
        streams_(records_, 1000),
        groups_(names_),
        json_(sink) {}

  void Write();

 private:
  // The host side of this rank as a process of its own; the device's is the
  // rank. Neither may be 0 on the host side, which would make it a device.
  int host_pid() const { return names_.world_size + names_.rank; }

  void WriteDevice();
  void WriteDistributedInfo();
  void WriteThreadNames();
  void WriteSteps();
  void WriteKernel(size_t i);
  void WriteWait(const Record& record);
  void WriteLaunchArgs(const Record& record);

  void Metadata(int pid, int tid, absl::string_view what,
                absl::string_view value);
  // A complete event up to its args, left open.
  void BeginEvent(absl::string_view category, absl::string_view name, int pid,
                  int tid, int64_t begin_us, int64_t duration_us);
  void EndEvent();

  std::string OpName(uint32_t op) const { return OpNameOf(names_, op); }
  std::string KernelName(const Record& record) const;

  const RecordNames& names_;
  const std::vector<Record> records_;
  const StreamTable streams_;
  const ProcessGroups groups_;
  JsonWriter json_;
};

void KinetoWriter::Write() {
  json_.BeginObject();
  json_.NewLine();
  json_.Field("schemaVersion", 1);
  json_.NewLine();
  WriteDevice();
  json_.NewLine();
  WriteDistributedInfo();
  json_.NewLine();
  json_.Field("displayTimeUnit", "ms");
  json_.NewLine();
  json_.Key("traceEvents");
  json_.BeginArray();
  // Metadata first: an event that is the very first loses its correlation.
  WriteThreadNames();
  WriteSteps();
  for (size_t i = 0; i < records_.size(); ++i) {
    if (IsKernel(records_[i])) WriteKernel(i);
    if (records_[i].kind == RecordKind::kWait) WriteWait(records_[i]);
  }
  json_.NewLine();
  json_.EndArray();
  json_.NewLine();
  json_.EndObject();
  json_.Finish();
}

void KinetoWriter::WriteDevice() {
  json_.Key("deviceProperties");
  json_.BeginArray();
  json_.BeginObject();
  json_.Field("id", names_.rank);
  json_.Field("name", "commsched");
  json_.Field("totalGlobalMem", 0);
  json_.Field("computeMajor", 0);
  json_.Field("computeMinor", 0);
  json_.Field("numSms", 0);
  json_.EndObject();
  json_.EndArray();
}

void KinetoWriter::WriteDistributedInfo() {
  json_.Key("distributedInfo");
  json_.BeginObject();
  json_.Field("backend", "commsched");
  json_.Field("rank", names_.rank);
  json_.Field("world_size", names_.world_size);
  json_.Field("pg_count", groups_.groups().size());
  json_.Key("pg_config");
  json_.BeginArray();
  for (size_t i = 0; i < groups_.groups().size(); ++i) {
    const ProcessGroups::Group& group = groups_.groups()[i];
    json_.BeginObject();
    json_.Field("pg_name", absl::StrCat(i));
    json_.Field("pg_desc", group.axis);
    json_.Field("backend_config", "commsched");
    json_.Field("pg_size", group.ranks.size());
    json_.Key("ranks");
    json_.BeginArray();
    for (const int rank : group.ranks) json_.Number(rank);
    json_.EndArray();
    json_.EndObject();
  }
  json_.EndArray();
  json_.EndObject();
}

void KinetoWriter::Metadata(int pid, int tid, absl::string_view what,
                            absl::string_view value) {
  json_.NewLine();
  json_.BeginObject();
  json_.Field("ph", "M");
  json_.Field("name", what);
  json_.Field("pid", pid);
  json_.Field("tid", tid);
  json_.Field("ts", 0);
  json_.Key("args");
  json_.BeginObject();
  json_.Field(what == "process_labels" ? "labels" : "name", value);
  json_.EndObject();
  json_.EndObject();
}

void KinetoWriter::WriteThreadNames() {
  Metadata(host_pid(), 0, "process_name", absl::StrCat("rank ", names_.rank));
  Metadata(host_pid(), 0, "process_labels", "host");
  Metadata(names_.rank, 0, "process_name", absl::StrCat("rank ", names_.rank));
  Metadata(names_.rank, 0, "process_labels", "lanes");
  Metadata(host_pid(), kProgressThread, "thread_name", "launches");
  std::vector<bool> lane_seen(256, false);
  lane_seen[0] = true;  // where the steps are
  for (const Record& record : records_) {
    if (record.kind != RecordKind::kLaunch) lane_seen[record.lane] = true;
  }
  for (int lane = 0; lane < 256; ++lane) {
    if (!lane_seen[lane]) continue;
    Metadata(host_pid(), kCallerThread + lane, "thread_name",
             absl::StrCat("caller of compute lane ", lane));
  }
  for (const StreamTable::Row& row : streams_.rows()) {
    Metadata(names_.rank, row.stream, "thread_name", row.title);
  }
}

void KinetoWriter::BeginEvent(absl::string_view category,
                              absl::string_view name, int pid, int tid,
                              int64_t begin_us, int64_t duration_us) {
  json_.NewLine();
  json_.BeginObject();
  json_.Field("ph", "X");
  json_.Field("cat", category);
  json_.Field("name", name);
  json_.Field("pid", pid);
  json_.Field("tid", tid);
  json_.Field("ts", begin_us);
  json_.Field("dur", duration_us);
  json_.Key("args");
  json_.BeginObject();
}

void KinetoWriter::EndEvent() {
  json_.EndObject();
  json_.EndObject();
}

// Each step lasts until the next begin. The last one held has no end: it lasts
// until the last record, and the analysis leaves it out by default.
void KinetoWriter::WriteSteps() {
  int64_t last_us = 0;
  std::vector<const Record*> begins;
  for (const Record& record : records_) {
    last_us = std::max(last_us, Microseconds(record.end_ns));
    if (record.kind == RecordKind::kStepBegin) begins.push_back(&record);
  }
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t begin_us = Microseconds(begins[i]->begin_ns);
    const int64_t end_us = i + 1 < begins.size()
                               ? Microseconds(begins[i + 1]->begin_ns)
                               : last_us + 1;
    BeginEvent("user_annotation",
               absl::StrCat("ProfilerStep#", begins[i]->step), host_pid(),
               kCallerThread, begin_us, end_us - begin_us);
    EndEvent();
  }
}

std::string KinetoWriter::KernelName(const Record& record) const {
  if (record.kind == RecordKind::kCompute) {
    return ComputeKernelName(OpName(record.index));
  }
  if (record.index < names_.launches.size()) {
    return LaunchKernelName(names_.launches[record.index]);
  }
  return absl::StrCat("ncclDevKernel_launch#", record.index, "(commsched)");
}

// A kernel and the call that launched it. The call is at the kernel's begin:
// that decides the step that the kernel is counted in, as in metrics.h. It
// lasts 1 us, so that on the grid of microseconds it nests in what is around.
void KinetoWriter::WriteKernel(size_t i) {
  const Record& record = records_[i];
  const bool compute = record.kind == RecordKind::kCompute;
  const int64_t begin_us = Microseconds(record.begin_ns);
  const int64_t duration_us = Microseconds(record.end_ns) - begin_us;
  const int stream = streams_.StreamOf(i);
  const size_t correlation = i + 1;

  BeginEvent("cuda_runtime", "cudaLaunchKernel", host_pid(),
             compute ? kCallerThread + record.lane : kProgressThread, begin_us,
             1);
  json_.Field("External id", correlation);
  json_.Field("cbid", kCudaLaunchKernelId);
  json_.Field("correlation", correlation);
  EndEvent();

  BeginEvent("kernel", KernelName(record), names_.rank, stream, begin_us,
             duration_us);
  json_.Field("External id", correlation);
  json_.Field("queued", 0);
  json_.Field("device", names_.rank);
  json_.Field("context", 1);
  json_.Field("stream", stream);
  json_.Field("correlation", correlation);
  json_.Field("commsched step", record.step);
  json_.Field("commsched lane", int{record.lane});
  if (compute) {
    json_.Field("commsched op", OpName(record.index));
  } else {
    WriteLaunchArgs(record);
  }
  EndEvent();
}

void KinetoWriter::WriteLaunchArgs(const Record& record) {
  json_.Field("commsched launch", record.index);
  json_.Field("commsched bytes in flight", record.value);
  if (record.index >= names_.launches.size()) return;
  const RecordNames::LaunchName& launch = names_.launches[record.index];
  const size_t group = groups_.IndexOf(record.index);
  json_.Field("commsched name", launch.name);
  json_.Field("commsched bytes", launch.bytes);
  json_.Field("commsched members", launch.num_members);
  json_.Field("Collective name", launch.collective);
  json_.Field("dtype", launch.dtype);
  json_.Field("In msg nelems", launch.input_count);
  json_.Field("Out msg nelems", launch.output_count);
  json_.Field("Group size", launch.ranks.size());
  json_.Field("In split size", "[]");
  json_.Field("Out split size", "[]");
  json_.Field("Process Group Name", absl::StrCat(group));
  json_.Field("Process Group Description", launch.axis);
  json_.Field("Process Group Ranks", groups_.groups()[group].RanksText());
  json_.Field("Rank", names_.rank);
}

void KinetoWriter::WriteWait(const Record& record) {
  const std::string op = OpName(record.index);
  const int64_t begin_us = Microseconds(record.begin_ns);
  BeginEvent("cpu_op", absl::StrCat("wait before ", ComputeKernelName(op)),
             host_pid(), kCallerThread + record.lane, begin_us,
             Microseconds(record.end_ns) - begin_us);
  json_.Field("commsched step", record.step);
  json_.Field("commsched op", op);
  EndEvent();
}

}  // namespace

std::string KinetoJson(const Recorder& recorder) {
  std::string json;
  const auto sink = [&json](absl::string_view text) {
    json.append(text.data(), text.size());
  };
  KinetoWriter(recorder, sink).Write();
  return json;
}

absl::Status WriteKineto(const Recorder& recorder, absl::string_view path) {
  return WriteTraceFile(path, recorder.names().rank, [&](TraceSink sink) {
    KinetoWriter(recorder, sink).Write();
  });
}

}  // namespace commsched
