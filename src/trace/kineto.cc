#include "trace/kineto.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trace/json_writer.h"
#include "trace/kineto_names.h"
#include "trace/launch_holds.h"
#include "trace/stream_table.h"
#include "trace/trace_file.h"

namespace commsched {
namespace {

constexpr int kCallerThread = 1;  // + compute lane
constexpr int kStepsThread = 1000;
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

  explicit ProcessGroups(const Recorder& recorder) {
    for (const auto& launch : recorder.names().launches) Add(launch);
    for (const auto& launch : recorder.channel_names()) Add(launch);
  }

  const std::vector<Group>& groups() const { return groups_; }
  size_t IndexOf(const RecordNames::LaunchName& launch) const {
    return index_.at({launch.axis, launch.ranks});
  }

 private:
  void Add(const RecordNames::LaunchName& launch) {
    if (!index_.try_emplace({launch.axis, launch.ranks}, groups_.size())
             .second) {
      return;
    }
    groups_.push_back({launch.axis, launch.ranks});
  }

  std::vector<Group> groups_;
  std::map<std::pair<std::string, std::vector<int>>, size_t> index_;
};

// ---- Waits ------------------------------------------------------------------

// Which launches a wait was for.
class AwaitedLaunches {
 public:
  AwaitedLaunches(const RecordNames& names, const std::vector<Record>& records)
      : names_(names), records_(records) {
    for (size_t i = 0; i < records.size(); ++i) {
      const Record& record = records[i];
      if (record.kind != RecordKind::kLaunch) continue;
      launches_[{record.step, record.index}].push_back(i);
    }
  }

  // The records of those that were under way when `wait` began.
  std::vector<size_t> Of(const Record& wait) const {
    std::vector<size_t> awaited;
    if (wait.index >= names_.launch_waits.size()) return awaited;
    for (const RecordNames::LaunchWait& each :
         names_.launch_waits[wait.index]) {
      if (each.distance > wait.step) continue;
      const auto found =
          launches_.find({wait.step - each.distance, each.launch});
      if (found == launches_.end()) continue;
      // Of several sessions: the one that fits in time.
      for (const size_t i : found->second) {
        const Record& launch = records_[i];
        if (launch.begin_ns > wait.end_ns || launch.end_ns <= wait.begin_ns) {
          continue;
        }
        awaited.push_back(i);
      }
    }
    return awaited;
  }

 private:
  const RecordNames& names_;
  const std::vector<Record>& records_;
  absl::flat_hash_map<std::pair<uint64_t, uint32_t>, std::vector<size_t>>
      launches_;  // by step and launch
};

// ---- The file ---------------------------------------------------------------

class KinetoWriter {
 public:
  KinetoWriter(const Recorder& recorder, TraceSink sink)
      : recorder_(recorder),
        names_(recorder.names()),
        records_(DrawnRecords(recorder)),
        holds_(recorder),
        awaited_(names_, records_),
        streams_(records_, 1000),
        groups_(recorder),
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
  void WriteWait(size_t i);
  void WriteLaunchArgs(const Record& record);
  // When the call that launched a kernel began.
  int64_t CallUs(const Record& record) const;

  void Metadata(int pid, int tid, absl::string_view what,
                absl::string_view value);
  // A complete event up to its args, left open.
  void BeginEvent(absl::string_view category, absl::string_view name, int pid,
                  int tid, int64_t begin_us, int64_t duration_us);
  void EndEvent();

  // One end of an arrow between two events: the instant lies in its event.
  struct FlowEnd {
    int pid = 0;
    int tid = 0;
    int64_t at_us = 0;
  };
  void Flow(absl::string_view name, uint64_t id, const FlowEnd& from,
            const FlowEnd& to);

  std::string OpName(uint32_t op) const { return OpNameOf(names_, op); }
  std::string KernelName(const Record& record) const;

  const Recorder& recorder_;
  const RecordNames& names_;
  const std::vector<Record> records_;
  const LaunchHolds holds_;
  const AwaitedLaunches awaited_;
  const StreamTable streams_;
  const ProcessGroups groups_;
  JsonWriter json_;
  uint64_t next_wait_id_ = 1;  // of arrows; calls have their correlation
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
    if (records_[i].kind == RecordKind::kWait) WriteWait(i);
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
  Metadata(host_pid(), kStepsThread, "thread_name", "steps");
  Metadata(host_pid(), kProgressThread, "thread_name", "launches");
  std::vector<bool> lane_seen(256, false);
  for (const Record& record : records_) {
    lane_seen[record.lane] = lane_seen[record.lane] ||
                             record.kind == RecordKind::kCompute ||
                             record.kind == RecordKind::kWait;
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

void KinetoWriter::Flow(absl::string_view name, uint64_t id,
                        const FlowEnd& from, const FlowEnd& to) {
  for (const FlowEnd* end : {&from, &to}) {
    json_.NewLine();
    json_.BeginObject();
    json_.Field("ph", end == &from ? "s" : "f");
    json_.Field("id", id);
    json_.Field("cat", name);
    json_.Field("name", name);
    json_.Field("pid", end->pid);
    json_.Field("tid", end->tid);
    json_.Field("ts", end->at_us);
    if (end == &to) json_.Field("bp", "e");
    json_.EndObject();
  }
}

// Each step lasts until the next begin. The last one held has no end: it lasts
// until the last record, and the analysis leaves it out by default. Steps are
// 1 us early, as the calls within them are.
void KinetoWriter::WriteSteps() {
  int64_t last_us = 0;
  std::vector<const Record*> begins;
  for (const Record& record : records_) {
    last_us = std::max(last_us, Microseconds(record.end_ns));
    if (record.kind == RecordKind::kStepBegin) begins.push_back(&record);
  }
  for (size_t i = 0; i < begins.size(); ++i) {
    const int64_t begin_us = Microseconds(begins[i]->begin_ns) - 1;
    const int64_t end_us = i + 1 < begins.size()
                               ? Microseconds(begins[i + 1]->begin_ns) - 1
                               : last_us + 1;
    BeginEvent("user_annotation",
               absl::StrCat("ProfilerStep#", begins[i]->step), host_pid(),
               kStepsThread, begin_us, end_us - begin_us);
    EndEvent();
  }
}

std::string KinetoWriter::KernelName(const Record& record) const {
  if (record.kind == RecordKind::kCompute) {
    return ComputeKernelName(OpName(record.index));
  }
  const auto* const launch = recorder_.LaunchNameOf(record);
  if (launch != nullptr) return LaunchKernelName(*launch);
  return absl::StrCat("ncclDevKernel_launch#", record.index, "(commsched)");
}

// A compute op is launched by its `before`; a launch by the last `after` that
// it waited for. The call lasts 1 us and ends then: where the analysis sorts
// calls and kernels by time, none may be at the time of its kernel.
int64_t KinetoWriter::CallUs(const Record& record) const {
  const int64_t ready_ns = record.kind == RecordKind::kLaunch
                               ? holds_.Of(record).ready_ns
                               : record.begin_ns;
  return Microseconds(ready_ns) - 1;
}

// A kernel, the call that launched it, and the arrow from call to kernel.
void KinetoWriter::WriteKernel(size_t i) {
  const Record& record = records_[i];
  const bool compute = record.kind == RecordKind::kCompute;
  const int64_t begin_us = Microseconds(record.begin_ns);
  const int64_t duration_us = Microseconds(record.end_ns) - begin_us;
  const int stream = streams_.StreamOf(i);
  const size_t correlation = i + 1;
  const FlowEnd call = {
      .pid = host_pid(),
      .tid = compute ? kCallerThread + record.lane : kProgressThread,
      .at_us = CallUs(record)};

  BeginEvent("cuda_runtime", "cudaLaunchKernel", call.pid, call.tid, call.at_us,
             1);
  json_.Field("External id", correlation);
  json_.Field("cbid", kCudaLaunchKernelId);
  json_.Field("correlation", correlation);
  EndEvent();
  Flow("ac2g", correlation, call, {names_.rank, stream, begin_us});

  BeginEvent("kernel", KernelName(record), names_.rank, stream, begin_us,
             duration_us);
  json_.Field("External id", correlation);
  json_.Field("queued", 0);
  json_.Field("device", names_.rank);
  json_.Field("context", 1);
  json_.Field("stream", stream);
  json_.Field("correlation", correlation);
  const bool is_channel = record.kind == RecordKind::kChannel;
  json_.Field(is_channel ? "commsched request" : "commsched step", record.step);
  json_.Field(is_channel ? "commsched channel" : "commsched lane",
              int{record.lane});
  if (compute) {
    json_.Field("commsched op", OpName(record.index));
  } else {
    WriteLaunchArgs(record);
  }
  EndEvent();
}

void KinetoWriter::WriteLaunchArgs(const Record& record) {
  const bool is_channel = record.kind == RecordKind::kChannel;
  if (!is_channel) {
    json_.Field("commsched launch", record.index);
    json_.Field("commsched bytes in flight", record.value);
  }
  if (recorder_.LaunchNameOf(record) == nullptr) return;
  const RecordNames::LaunchName& launch = *recorder_.LaunchNameOf(record);
  const size_t group = groups_.IndexOf(launch);
  json_.Field("commsched name", launch.name);
  json_.Field("commsched bytes", is_channel ? record.value : launch.bytes);
  if (!is_channel) json_.Field("commsched members", launch.num_members);
  json_.Field("Collective name", launch.collective);
  if (!is_channel) {
    json_.Field("dtype", launch.dtype);
    json_.Field("In msg nelems", launch.input_count);
    json_.Field("Out msg nelems", launch.output_count);
  }
  json_.Field("Group size", launch.ranks.size());
  json_.Field("In split size", "[]");
  json_.Field("Out split size", "[]");
  json_.Field("Process Group Name", absl::StrCat(group));
  json_.Field("Process Group Description", launch.axis);
  json_.Field("Process Group Ranks", groups_.groups()[group].RanksText());
  json_.Field("Rank", names_.rank);
}

// Host time blocked in `before`, with an arrow from each launch that it was
// for: from the last instant of the launch that is in the wait, too.
void KinetoWriter::WriteWait(size_t i) {
  const Record& record = records_[i];
  const std::string op = OpName(record.index);
  const int64_t begin_us = Microseconds(record.begin_ns);
  const int64_t end_us = Microseconds(record.end_ns);
  const int tid = kCallerThread + record.lane;
  BeginEvent("cpu_op", absl::StrCat("wait before ", ComputeKernelName(op)),
             host_pid(), tid, begin_us, end_us - begin_us);
  json_.Field("commsched step", record.step);
  json_.Field("commsched op", op);
  EndEvent();

  const int64_t met_us = std::max(begin_us, end_us - 1);
  for (const size_t awaited : awaited_.Of(record)) {
    const Record& launch = records_[awaited];
    const int64_t launch_begin_us = Microseconds(launch.begin_ns);
    if (launch_begin_us > met_us) continue;  // both end within this microsecond
    const int64_t last_us =
        std::max(launch_begin_us, Microseconds(launch.end_ns) - 1);
    Flow("commsched wait", next_wait_id_++,
         {names_.rank, streams_.StreamOf(awaited), std::min(last_us, met_us)},
         {host_pid(), tid, met_us});
  }
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
