#include "trace/perfetto.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trace/proto_writer.h"
#include "trace/stream_table.h"
#include "trace/trace_file.h"

namespace commsched {
namespace {

// Field numbers of perfetto/protos/perfetto/trace, for the messages we write.
namespace trace_field {
constexpr uint32_t kPacket = 1;
}
namespace packet_field {
constexpr uint32_t kTimestamp = 8;
constexpr uint32_t kSequenceId = 10;
constexpr uint32_t kTrackEvent = 11;
constexpr uint32_t kSequenceFlags = 13;
constexpr uint32_t kTrackDescriptor = 60;
}  // namespace packet_field
namespace descriptor_field {
constexpr uint32_t kUuid = 1;
constexpr uint32_t kName = 2;
constexpr uint32_t kProcess = 3;
constexpr uint32_t kParentUuid = 5;
constexpr uint32_t kCounter = 8;
constexpr uint32_t kSiblingOrderRank = 12;
constexpr uint32_t kChildOrdering = 11;
}  // namespace descriptor_field
namespace process_field {
constexpr uint32_t kPid = 1;
constexpr uint32_t kName = 6;
}  // namespace process_field
namespace counter_field {
constexpr uint32_t kUnit = 3;
}
namespace event_field {
constexpr uint32_t kDebugAnnotations = 4;
constexpr uint32_t kType = 9;
constexpr uint32_t kTrackUuid = 11;
constexpr uint32_t kCategories = 22;
constexpr uint32_t kName = 23;
constexpr uint32_t kCounterValue = 30;
}  // namespace event_field
namespace annotation_field {
constexpr uint32_t kUintValue = 3;
constexpr uint32_t kStringValue = 6;
constexpr uint32_t kName = 10;
}  // namespace annotation_field

constexpr uint64_t kSliceBegin = 1;
constexpr uint64_t kSliceEnd = 2;
constexpr uint64_t kCounter = 4;
constexpr uint64_t kUnitCount = 2;
constexpr uint64_t kUnitBytes = 3;
constexpr uint64_t kStateCleared = 1;   // SEQ_INCREMENTAL_STATE_CLEARED
constexpr uint64_t kExplicitOrder = 3;  // children sorted by their rank

// Tracks of a rank below its process track, in the order of the picture.
constexpr uint64_t kTracksPerRank = 1 << 16;
constexpr uint64_t kSteps = 1;
constexpr uint64_t kInFlight = 2;
constexpr uint64_t kBytesInFlight = 3;
constexpr uint64_t kHosts = 16;  // + compute lane
constexpr uint64_t kStreams = 1024;

class PerfettoWriter {
 public:
  PerfettoWriter(const Recorder& recorder, TraceSink sink)
      : recorder_(recorder),
        names_(recorder.names()),
        records_(DrawnRecords(recorder)),
        streams_(records_, 1),
        sink_(sink) {}

  void Write() {
    WriteTracks();
    CollectSteps();
    for (size_t i = 0; i < records_.size(); ++i) Collect(i);
    // Slices of a track nest if what ends at an instant does so before what
    // begins there; an empty slice begins and ends by itself.
    std::stable_sort(
        edges_.begin(), edges_.end(), [](const Edge& a, const Edge& b) {
          return std::tie(a.at_ns, a.order) < std::tie(b.at_ns, b.order);
        });
    for (const Edge& edge : edges_) WriteEdge(edge);
  }

 private:
  static constexpr size_t kNoRecord = ~size_t{0};

  // A point of the picture. `record` describes a slice that begins.
  struct Edge {
    int64_t at_ns = 0;
    int order = 0;  // at one instant: 0 end, 1 begin, 2 end of an empty slice
    uint64_t type = 0;
    uint64_t track = 0;
    size_t record = kNoRecord;
    int64_t value = 0;  // counter, or step
  };

  uint64_t Uuid(uint64_t track) const {
    return (static_cast<uint64_t>(names_.rank) + 1) * kTracksPerRank + track;
  }

  void WritePacket(const ProtoWriter& packet) {
    ProtoWriter framed;
    framed.Message(trace_field::kPacket, packet);
    sink_(framed.bytes());
  }

  void WriteDescriptor(const ProtoWriter& descriptor) {
    ProtoWriter packet;
    packet.Message(packet_field::kTrackDescriptor, descriptor);
    packet.Uint(packet_field::kSequenceId, Uuid(0));
    if (first_packet_) {
      packet.Uint(packet_field::kSequenceFlags, kStateCleared);
      first_packet_ = false;
    }
    WritePacket(packet);
  }

  ProtoWriter Child(uint64_t track, absl::string_view name) const {
    ProtoWriter descriptor;
    descriptor.Uint(descriptor_field::kUuid, Uuid(track));
    descriptor.Bytes(descriptor_field::kName, name);
    descriptor.Uint(descriptor_field::kParentUuid, Uuid(0));
    descriptor.Uint(descriptor_field::kSiblingOrderRank, track);
    return descriptor;
  }

  void WriteCounterTrack(uint64_t track, absl::string_view name,
                         uint64_t unit) {
    ProtoWriter counter;
    counter.Uint(counter_field::kUnit, unit);
    ProtoWriter descriptor = Child(track, name);
    descriptor.Message(descriptor_field::kCounter, counter);
    WriteDescriptor(descriptor);
  }

  void WriteTracks() {
    ProtoWriter process;
    process.Int(process_field::kPid, names_.rank + 1);
    process.Bytes(process_field::kName, absl::StrCat("rank ", names_.rank));
    ProtoWriter root;
    root.Uint(descriptor_field::kUuid, Uuid(0));
    root.Message(descriptor_field::kProcess, process);
    root.Uint(descriptor_field::kChildOrdering, kExplicitOrder);
    WriteDescriptor(root);
    WriteDescriptor(Child(kSteps, "steps"));
    WriteCounterTrack(kInFlight, "launches in flight", kUnitCount);
    WriteCounterTrack(kBytesInFlight, "bytes in flight", kUnitBytes);
    std::vector<bool> lane_waits(256, false);
    for (const Record& record : records_) {
      if (record.kind == RecordKind::kWait) lane_waits[record.lane] = true;
    }
    for (uint64_t lane = 0; lane < lane_waits.size(); ++lane) {
      if (!lane_waits[lane]) continue;
      WriteDescriptor(
          Child(kHosts + lane, absl::StrCat("caller of compute lane ", lane)));
    }
    for (const StreamTable::Row& row : streams_.rows()) {
      WriteDescriptor(
          Child(kStreams + static_cast<uint64_t>(row.stream), row.title));
    }
  }

  void AddSlice(uint64_t track, int64_t begin_ns, int64_t end_ns, size_t record,
                int64_t value) {
    edges_.push_back({begin_ns, 1, kSliceBegin, track, record, value});
    edges_.push_back(
        {end_ns, end_ns == begin_ns ? 2 : 0, kSliceEnd, track, kNoRecord, 0});
  }

  // Each step lasts until the next begin, the last one until the last record.
  void CollectSteps() {
    int64_t last_ns = 0;
    std::vector<const Record*> begins;
    for (const Record& record : records_) {
      last_ns = std::max(last_ns, record.end_ns);
      if (record.kind == RecordKind::kStepBegin) begins.push_back(&record);
    }
    for (size_t i = 0; i < begins.size(); ++i) {
      const int64_t end_ns =
          i + 1 < begins.size() ? begins[i + 1]->begin_ns : last_ns;
      AddSlice(kSteps, begins[i]->begin_ns, end_ns, kNoRecord,
               static_cast<int64_t>(begins[i]->step));
    }
  }

  void Collect(size_t i) {
    const Record& record = records_[i];
    if (record.kind == RecordKind::kWait) {
      AddSlice(kHosts + record.lane, record.begin_ns, record.end_ns, i, 0);
    }
    if (!IsKernel(record)) return;
    AddSlice(kStreams + static_cast<uint64_t>(streams_.StreamOf(i)),
             record.begin_ns, record.end_ns, i, 0);
    if (record.kind != RecordKind::kLaunch) return;
    AddCounts(record, record.begin_ns, 1, 1);
    AddCounts(record, record.end_ns, 0, -1);
  }

  void AddCounts(const Record& record, int64_t at_ns, int order, int sign) {
    const auto bytes =
        static_cast<int64_t>(record.index < names_.launches.size()
                                 ? names_.launches[record.index].bytes
                                 : 0);
    edges_.push_back({at_ns, order, kCounter, kInFlight, kNoRecord, sign});
    edges_.push_back(
        {at_ns, order, kCounter, kBytesInFlight, kNoRecord, sign * bytes});
  }

  void WriteEdge(const Edge& edge) {
    ProtoWriter event;
    event.Uint(event_field::kType, edge.type);
    event.Uint(event_field::kTrackUuid, Uuid(edge.track));
    if (edge.type == kCounter) {
      int64_t& total = totals_[edge.track == kInFlight ? 0 : 1];
      total += edge.value;
      event.Int(event_field::kCounterValue, total);
    } else if (edge.type == kSliceBegin) {
      Describe(edge, &event);
    }
    ProtoWriter packet;
    packet.Int(packet_field::kTimestamp, edge.at_ns);
    packet.Uint(packet_field::kSequenceId, Uuid(0));
    packet.Message(packet_field::kTrackEvent, event);
    WritePacket(packet);
  }

  void Describe(const Edge& edge, ProtoWriter* event) const {
    if (edge.record == kNoRecord) {
      event->Bytes(event_field::kCategories, "step");
      event->Bytes(event_field::kName, absl::StrCat("step ", edge.value));
      return;
    }
    const Record& record = records_[edge.record];
    if (record.kind == RecordKind::kChannel) {
      DescribeChannel(record, event);
      return;
    }
    Annotate("step", record.step, event);
    if (record.kind == RecordKind::kLaunch) {
      DescribeLaunch(record, event);
      return;
    }
    const std::string op = OpNameOf(names_, record.index);
    const bool wait = record.kind == RecordKind::kWait;
    event->Bytes(event_field::kCategories, wait ? "wait" : "compute");
    event->Bytes(event_field::kName,
                 wait ? absl::StrCat("wait before ", op) : op);
  }

  void DescribeLaunch(const Record& record, ProtoWriter* event) const {
    event->Bytes(event_field::kCategories, "communication");
    Annotate("launch", record.index, event);
    Annotate("bytes in flight at issue", record.value, event);
    if (record.index >= names_.launches.size()) {
      event->Bytes(event_field::kName, absl::StrCat("launch#", record.index));
      return;
    }
    const RecordNames::LaunchName& launch = names_.launches[record.index];
    event->Bytes(event_field::kName, launch.name);
    Annotate("bytes", launch.bytes, event);
    Annotate("members", launch.num_members, event);
    Annotate("axis", launch.axis, event);
    Annotate("dtype", launch.dtype, event);
    if (!launch.reduction.empty()) {
      Annotate("reduction", launch.reduction, event);
    }
  }

  void DescribeChannel(const Record& record, ProtoWriter* event) const {
    event->Bytes(event_field::kCategories, "communication");
    Annotate("request", record.step, event);
    Annotate("bytes", record.value, event);
    const auto* const launch = recorder_.LaunchNameOf(record);
    event->Bytes(event_field::kName, launch == nullptr
                                         ? absl::StrCat("launch#", record.index)
                                         : launch->name);
    if (launch != nullptr) Annotate("axis", launch->axis, event);
  }

  static void Annotate(absl::string_view name, uint64_t value,
                       ProtoWriter* event) {
    ProtoWriter annotation;
    annotation.Bytes(annotation_field::kName, name);
    annotation.Uint(annotation_field::kUintValue, value);
    event->Message(event_field::kDebugAnnotations, annotation);
  }
  static void Annotate(absl::string_view name, absl::string_view value,
                       ProtoWriter* event) {
    ProtoWriter annotation;
    annotation.Bytes(annotation_field::kName, name);
    annotation.Bytes(annotation_field::kStringValue, value);
    event->Message(event_field::kDebugAnnotations, annotation);
  }

  const Recorder& recorder_;
  const RecordNames& names_;
  const std::vector<Record> records_;
  const StreamTable streams_;
  const TraceSink sink_;
  std::vector<Edge> edges_;
  int64_t totals_[2] = {0, 0};  // launches and bytes in flight
  bool first_packet_ = true;
};

}  // namespace

std::string PerfettoTrace(const Recorder& recorder) {
  std::string trace;
  const auto sink = [&trace](absl::string_view bytes) {
    trace.append(bytes.data(), bytes.size());
  };
  PerfettoWriter(recorder, sink).Write();
  return trace;
}

absl::Status WritePerfetto(const Recorder& recorder, absl::string_view path) {
  return WriteTraceFile(path, recorder.names().rank, [&](TraceSink sink) {
    PerfettoWriter(recorder, sink).Write();
  });
}

}  // namespace commsched
