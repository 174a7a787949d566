#include "test/support/spy_backend.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace commsched::test {

// The functions of the table.
struct SpyTable {
  using Comm = SpyBackend::Comm;

  static Comm* Of(void* comm) { return static_cast<Comm*>(comm); }

  static commsched_status_t InstanceCreate(
      const commsched_instance_desc_t* desc, void** out_instance,
      char* /*message*/, uint64_t /*message_size*/) {
    uint64_t address = 0;
    if (!absl::SimpleAtoi(desc->config, &address)) {
      return COMMSCHED_INVALID_ARGUMENT;
    }
    *out_instance = reinterpret_cast<SpyBackend*>(address);
    return COMMSCHED_OK;
  }
  static void InstanceDestroy(void* /*instance*/) {}

  static commsched_status_t CommCreate(void* instance,
                                       const commsched_comm_desc_t* desc,
                                       void** out_comm, char* message,
                                       uint64_t message_size) {
    auto* const spy = static_cast<SpyBackend*>(instance);
    void* inner = nullptr;
    const commsched_status_t code =
        spy->inner_->comm_create(spy->inner_world_->backend_instance(), desc,
                                 &inner, message, message_size);
    if (code != COMMSCHED_OK) return code;
    *out_comm = new Comm{spy, inner, desc->world_rank, desc->id,
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

  static void CommAbort(void* comm, commsched_status_t status,
                        const char* message) {
    Of(comm)->spy->inner_->comm_abort(Of(comm)->inner, status, message);
  }
  static void CommDestroy(void* comm) {
    Of(comm)->spy->inner_->comm_destroy(Of(comm)->inner);
    delete Of(comm);
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
  inner_world_ = World::Create(inner).value();
  inner_ = inner_world_->backend();
  num_launched_.assign(inner.size, 0);
  table_ = *inner_;
  table_.struct_size = sizeof(table_);
  table_.name = "spy";
  table_.instance_create = &SpyTable::InstanceCreate;
  table_.instance_destroy = &SpyTable::InstanceDestroy;
  table_.comm_create = &SpyTable::CommCreate;
  table_.launch = &SpyTable::Launch;
  table_.poll = &SpyTable::Poll;
  table_.comm_abort = &SpyTable::CommAbort;
  table_.comm_destroy = &SpyTable::CommDestroy;
  table_.comm_status =
      inner_->comm_status == nullptr ? nullptr : &SpyTable::CommStatus;
  table_.comm_register = nullptr;
  table_.comm_missing =
      inner_->comm_missing == nullptr ? nullptr : &SpyTable::CommMissing;
  table_.wait = nullptr;
  table_.interrupt = nullptr;
  WorldSpec spec;
  spec.size = inner.size;
  spec.backend = table_.name;
  spec.backend_config = absl::StrCat(reinterpret_cast<uintptr_t>(this));
  spec.table = &table_;
  return spec;
}

}  // namespace commsched::test
