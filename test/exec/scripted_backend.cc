#include "test/exec/scripted_backend.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm/plugin/table_support.h"

namespace commsched::test {

struct ScriptedTable {
  using Comm = ScriptedBackend::Comm;

  static commsched_status_t Fails(const std::string& error, char* message,
                                  uint64_t size) {
    return ToTable(absl::UnavailableError(error), message, size);
  }

  static commsched_status_t RankOpen(void* instance,
                                     const commsched_backend_rank_desc_t*,
                                     void** out_rank, char*, uint64_t) {
    *out_rank = instance;
    return COMMSCHED_OK;
  }
  static void RankClose(void*) {}

  static commsched_status_t LaunchIt(void* comm, const commsched_launch_t* call,
                                     uint32_t request, commsched_stream_t,
                                     char* message, uint64_t size) {
    const Comm& of = *static_cast<Comm*>(comm);
    ScriptedBackend& self = *of.backend;
    if (!self.launch_error.empty()) {
      return Fails(self.launch_error, message, size);
    }
    self.launched_.push_back({.step = call->step,
                              .group = of.group,
                              .request = request,
                              .call = call});
    if (self.on_launch) self.on_launch(self.launched_.back());
    return COMMSCHED_OK;
  }

  static commsched_status_t Poll(void* comm, uint32_t request,
                                 commsched_launch_result_t* out, char* message,
                                 uint64_t size) {
    const Comm& of = *static_cast<Comm*>(comm);
    ScriptedBackend& self = *of.backend;
    ++self.num_polls_;
    if (!self.poll_error.empty()) return Fails(self.poll_error, message, size);
    // The latest launch that has the request.
    for (size_t i = self.launched_.size(); i-- > 0;) {
      const ScriptedBackend::Launched& launch = self.launched_[i];
      if (launch.group != of.group || launch.request != request) continue;
      out->done = launch.done ? 1 : 0;
      out->started_ns = launch.started_ns;
      out->cpu_ns = launch.cpu_ns;
      out->wake_at_ns = launch.wake_at_ns;
      return COMMSCHED_OK;
    }
    return Fails("no launch has this request", message, size);
  }

  static uint32_t List(const std::vector<int32_t>& ranks, int32_t* out_ranks,
                       uint32_t capacity) {
    std::copy_n(ranks.begin(), std::min<size_t>(ranks.size(), capacity),
                out_ranks);
    return static_cast<uint32_t>(ranks.size());
  }
  static uint32_t Missing(void* comm, uint32_t /*request*/, int32_t* out_ranks,
                          uint32_t capacity) {
    ScriptedBackend& self = *static_cast<Comm*>(comm)->backend;
    if (capacity == 0) {
      ++self.num_asked_;
      if (self.on_asked) self.on_asked();
    }
    std::vector<int32_t> answered = self.missing;
    std::erase_if(answered, [&](int32_t rank) {
      return std::count(self.silent.begin(), self.silent.end(), rank) != 0;
    });
    return List(answered, out_ranks, capacity);
  }
  static uint32_t Silent(void* comm, uint32_t /*request*/, int32_t* out_ranks,
                         uint32_t capacity) {
    return List(static_cast<Comm*>(comm)->backend->silent, out_ranks, capacity);
  }
  static uint32_t Starts(void* comm, commsched_launch_start_t* out_starts,
                         uint32_t capacity) {
    std::deque<commsched_launch_start_t>& starts =
        static_cast<Comm*>(comm)->backend->starts;
    uint32_t count = 0;
    for (; count < capacity && !starts.empty(); ++count) {
      out_starts[count] = starts.front();
      starts.pop_front();
    }
    return count;
  }

  static commsched_status_t Status(void* comm, char* message, uint64_t size) {
    const ScriptedBackend& self = *static_cast<Comm*>(comm)->backend;
    if (self.status_error.empty()) return COMMSCHED_OK;
    return Fails(self.status_error, message, size);
  }
};

ScriptedBackend::ScriptedBackend(uint32_t num_groups) {
  table_.struct_size = sizeof(table_);
  table_.abi = COMMSCHED_BACKEND_ABI;
  table_.name = "scripted";
  table_.version = "1";
  table_.rank_open = &ScriptedTable::RankOpen;
  table_.rank_close = &ScriptedTable::RankClose;
  table_.launch = &ScriptedTable::LaunchIt;
  table_.poll = &ScriptedTable::Poll;
  table_.comm_status = &ScriptedTable::Status;
  for (uint32_t i = 0; i < num_groups; ++i) comms_.push_back({this, i});
}

void ScriptedBackend::KnowsWhoIsLate() {
  table_.comm_missing = &ScriptedTable::Missing;
  table_.comm_silent = &ScriptedTable::Silent;
  table_.comm_starts = &ScriptedTable::Starts;
}

std::vector<void*> ScriptedBackend::comms() {
  std::vector<void*> comms;
  for (Comm& comm : comms_) comms.push_back(&comm);
  return comms;
}

}  // namespace commsched::test
