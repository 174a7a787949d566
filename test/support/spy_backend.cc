#include "test/support/spy_backend.h"

#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "comm/plugin/registry.h"

namespace commsched::test {

// The functions of the table.
struct SpyTable {
  using Comm = SpyBackend::Comm;
  using Rank = SpyBackend::Rank;

  static Comm* Of(void* comm) { return static_cast<Comm*>(comm); }

  static commsched_status_t InstanceCreate(
      const commsched_instance_desc_t* desc, void** out_instance, char* message,
      uint64_t message_size) {
    uint64_t address = 0;
    if (!absl::SimpleAtoi(desc->config, &address)) {
      return COMMSCHED_INVALID_ARGUMENT;
    }
    auto* const spy = reinterpret_cast<SpyBackend*>(address);
    commsched_instance_desc_t inner = *desc;
    inner.config = spy->inner_config_.c_str();
    *out_instance = spy;
    return spy->inner_->instance_create(&inner, &spy->inner_instance_, message,
                                        message_size);
  }
  static void InstanceDestroy(void* instance) {
    auto* const spy = static_cast<SpyBackend*>(instance);
    spy->inner_->instance_destroy(spy->inner_instance_);
  }

  static commsched_status_t RankOpen(void* instance,
                                     const commsched_backend_rank_desc_t* desc,
                                     void** out_rank, char* message,
                                     uint64_t message_size) {
    auto* const spy = static_cast<SpyBackend*>(instance);
    auto rank = std::make_unique<Rank>(Rank{spy, nullptr, desc->world_rank});
    const commsched_status_t code = spy->inner_->rank_open(
        spy->inner_instance_, desc, &rank->inner, message, message_size);
    if (code == COMMSCHED_OK) *out_rank = rank.release();
    return code;
  }
  static void RankClose(void* opaque) {
    const std::unique_ptr<Rank> rank(static_cast<Rank*>(opaque));
    rank->spy->inner_->rank_close(rank->inner);
  }

  static commsched_status_t CommCreate(void* opaque,
                                       const commsched_comm_desc_t* desc,
                                       void** out_comm, char* message,
                                       uint64_t message_size) {
    auto* const rank = static_cast<Rank*>(opaque);
    void* inner = nullptr;
    const commsched_status_t code = rank->spy->inner_->comm_create(
        rank->inner, desc, &inner, message, message_size);
    if (code != COMMSCHED_OK) return code;
    *out_comm = new Comm{rank->spy, inner, rank->world_rank, desc->id,
                         std::vector<uint64_t>(desc->max_in_flight)};
    return COMMSCHED_OK;
  }

  static commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                                   uint32_t request, commsched_stream_t stream,
                                   char* message, uint64_t message_size) {
    Comm* const of = Of(comm);
    SpyBackend* const spy = of->spy;
    const commsched_status_t code = spy->inner_->launch(
        of->inner, launch, request, stream, message, message_size);
    if (code != COMMSCHED_OK) return code;
    of->number[request] = spy->num_launched_[of->rank]++;
    spy->watcher_->Launched(of->rank, of->id, *launch);
    return COMMSCHED_OK;
  }

  static commsched_status_t Poll(void* comm, uint32_t request,
                                 commsched_launch_result_t* out_result,
                                 char* message, uint64_t message_size) {
    Comm* const of = Of(comm);
    const commsched_status_t code = of->spy->inner_->poll(
        of->inner, request, out_result, message, message_size);
    if (code == COMMSCHED_OK && out_result->done != 0) {
      of->spy->watcher_->Done(of->rank, of->number[request]);
    }
    return code;
  }

  static void Abort(void* opaque, void* const* comms, uint32_t num_comms,
                    commsched_status_t status, const char* message) {
    auto* const rank = static_cast<Rank*>(opaque);
    for (uint32_t i = 0; i < num_comms; ++i) {
      rank->spy->inner_->abort(rank->inner, &Of(comms[i])->inner, 1, status,
                               message);
    }
  }
  static commsched_status_t CommDestroy(void* comm, int64_t deadline_ns,
                                        char* message, uint64_t message_size) {
    const std::unique_ptr<Comm> of(Of(comm));
    return of->spy->inner_->comm_destroy(of->inner, deadline_ns, message,
                                         message_size);
  }
  static commsched_status_t CommStatus(void* comm, char* message,
                                       uint64_t message_size) {
    return Of(comm)->spy->inner_->comm_status(Of(comm)->inner, message,
                                              message_size);
  }
  static uint32_t CommMissing(void* comm, uint32_t request, int32_t* out_ranks,
                              uint32_t capacity) {
    return Of(comm)->spy->inner_->comm_missing(Of(comm)->inner, request,
                                               out_ranks, capacity);
  }
};

WorldSpec SpyBackend::Spec(const WorldSpec& inner) {
  inner_ = inner.table != nullptr
               ? inner.table
               : PluginRegistry::Process().Backend(inner.backend).value();
  inner_config_ = inner.backend_config;
  num_launched_.assign(inner.size, 0);
  table_ = *inner_;
  table_.struct_size = sizeof(table_);
  table_.name = "spy";
  table_.instance_create = &SpyTable::InstanceCreate;
  table_.instance_destroy = &SpyTable::InstanceDestroy;
  table_.rank_open = &SpyTable::RankOpen;
  table_.rank_close = &SpyTable::RankClose;
  table_.comm_create = &SpyTable::CommCreate;
  table_.launch = &SpyTable::Launch;
  table_.poll = &SpyTable::Poll;
  table_.abort = &SpyTable::Abort;
  table_.comm_destroy = &SpyTable::CommDestroy;
  table_.comm_ready = nullptr;
  table_.comm_status =
      inner_->comm_status == nullptr ? nullptr : &SpyTable::CommStatus;
  table_.comm_expect = nullptr;
  table_.comm_missing =
      inner_->comm_missing == nullptr ? nullptr : &SpyTable::CommMissing;
  table_.mem_register = nullptr;
  table_.mem_unregister = nullptr;
  table_.wait = nullptr;
  table_.interrupt = nullptr;
  table_.mem_alloc = nullptr;
  table_.mem_free = nullptr;
  table_.mem_stats = nullptr;
  table_.comm_silent = nullptr;
  table_.comm_starts = nullptr;
  table_.comm_estimate = nullptr;
  WorldSpec spec;
  spec.size = inner.size;
  spec.backend = table_.name;
  spec.backend_config = absl::StrCat(reinterpret_cast<uintptr_t>(this));
  spec.table = &table_;
  return spec;
}

}  // namespace commsched::test
