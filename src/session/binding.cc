#include "session/binding.h"

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "exec/bound_ranges.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

absl::Status CheckBinding(const SessionSpec::Binding& binding,
                          const Graph& graph,
                          const std::vector<void*>& addresses) {
  if (binding.buffer.value() >= graph.buffers().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("session: binding of buffer ", binding.buffer.value(),
                     ", the graph has ", graph.buffers().size()));
  }
  const Buffer& buffer = graph.buffer(binding.buffer);
  if (buffer.ownership != Ownership::kBound) {
    return absl::InvalidArgumentError(
        absl::StrCat("session: buffer '", buffer.name,
                     "' cannot be bound: its ownership is not BOUND"));
  }
  if (addresses[binding.buffer.value()] != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("session: buffer '", buffer.name, "' is bound twice"));
  }
  if (binding.address == nullptr || binding.bytes < buffer.bytes()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "session: buffer '", buffer.name, "' needs ", buffer.bytes(),
        " bytes, ", binding.address == nullptr ? 0 : binding.bytes, " given"));
  }
  const size_t alignment = static_cast<size_t>(DTypeSize(buffer.dtype));
  if (reinterpret_cast<uintptr_t>(binding.address) % alignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("session: buffer '", buffer.name,
                     "' is not aligned to its element size ", alignment));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGroups(const SessionSpec& spec) {
  const Graph& graph = *spec.plan->graph;
  if (spec.groups.size() != graph.groups().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "session: ", spec.groups.size(),
        " groups were given, but the graph has ", graph.groups().size()));
  }
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    const Group& planned = graph.groups()[i];
    const size_t given = spec.groups[i].ranks.size();
    if (given == static_cast<size_t>(planned.size)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("session: group '", planned.name, "' has ", planned.size,
                     " ranks in the graph, ", given, " given"));
  }
  return absl::OkStatus();
}

absl::Status CheckProgress(const SessionSpec& spec,
                           const std::vector<Stream*>& lanes) {
  for (size_t i = 0; spec.by_caller && i < lanes.size(); ++i) {
    // Work on a device's needs no thread of the host.
    if (lanes[i]->is_caller() || lanes[i]->is_device()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("session: lane ", i,
                     " is a stream, but progress is the caller's, for whom it "
                     "would wait"));
  }
  if (!spec.manual) {
    if (spec.clock == &SystemClock::Get()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "session: only a manual session has a clock of its own");
  }
  if ((spec.world->backend()->capabilities & COMMSCHED_BACKEND_INLINE) != 0) {
    return absl::OkStatus();
  }
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (!lanes[i]->is_caller()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("session: lane ", i,
                     " of a manual session is the caller, which would block"));
  }
  return absl::OkStatus();
}

bool EnqueuesOn(const commsched_backend_t& backend) {
  return (backend.capabilities & COMMSCHED_BACKEND_STREAM_ORDERED) != 0;
}

absl::Status CheckDevice(const SessionSpec& spec,
                         const std::vector<Stream*>& lanes) {
  Device* const device = spec.world->device(spec.world_rank);
  const bool enqueues = EnqueuesOn(*spec.world->backend());
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i]->is_caller() || lanes[i]->is_device() == enqueues) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "session: lane ", i, " is ",
        lanes[i]->is_device() ? "a stream of a device" : "a HOST stream",
        ", but backend '", spec.world->backend()->name, "' works on ",
        device->name()));
  }
  if (!enqueues) return absl::OkStatus();
  const auto refuse = [&](absl::string_view what) {
    return absl::UnimplementedError(
        absl::StrCat("session: ", what, " on ", device->name()));
  };
  if (spec.manual) return refuse("pumping by hand");
  for (const Launch& launch : spec.plan->launches) {
    if (!launch.coded) continue;
    return refuse("codecs, which run on the host,");
  }
  for (const SessionSpec::Binding& binding : spec.bindings) {
    const absl::Status here = device->CheckHere(binding.address);
    if (here.ok()) continue;
    return absl::Status(
        here.code(), absl::StrCat("session: buffer '",
                                  spec.plan->graph->buffer(binding.buffer).name,
                                  "' ", here.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<void*>> ResolveBindings(const SessionSpec& spec) {
  const Graph& graph = *spec.plan->graph;
  std::vector<void*> addresses(graph.buffers().size());
  for (const SessionSpec::Binding& binding : spec.bindings) {
    RETURN_IF_ERROR(CheckBinding(binding, graph, addresses));
    addresses[binding.buffer.value()] = binding.address;
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    const Buffer& buffer = graph.buffers()[i];
    if (buffer.ownership == Ownership::kBound && addresses[i] == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("session: buffer '", buffer.name, "' is not bound"));
    }
  }
  RETURN_IF_ERROR(BoundRanges(graph, addresses).CheckApart("session"));
  return addresses;
}

absl::StatusOr<std::vector<Stream*>> ResolveLanes(const SessionSpec& spec) {
  const uint32_t needed = spec.plan->num_compute_lanes;
  if (spec.lanes.empty()) return std::vector<Stream*>(needed, CallerStream());
  if (spec.lanes.size() < needed) {
    return absl::InvalidArgumentError(
        absl::StrCat("session: ", spec.lanes.size(),
                     " lanes were given, but the plan has ", needed));
  }
  return spec.lanes;
}

}  // namespace commsched
