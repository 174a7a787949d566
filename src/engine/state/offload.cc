#include "engine/state/offload.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "commsched/stream.h"

namespace commsched::engine {
namespace {

// Items of a stream per copy: a few waits, the copy, a record.
constexpr uint64_t kItemsPerCopy = 6;
constexpr uint64_t kMaxStreamCapacity = 65536;

int64_t ClockNs(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

Status Offload::Create(const Spec& spec, const Layout& layout,
                       std::unique_ptr<Offload>* out_offload) {
  std::unique_ptr<Offload> offload(new Offload(spec));
  ENGINE_RETURN_IF_ERROR(offload->Init(spec, layout));
  *out_offload = std::move(offload);
  return Status();
}

Status Offload::Init(const Spec& spec, const Layout& layout) {
  for (const Bucket& bucket : layout.buckets) {
    BucketState& state = buckets_.emplace_back();
    state.offset = bytes_;
    state.count = spec.step.state_count(bucket);
    bytes_ += state.count * sizeof(float);
  }
  for (uint32_t i = 0; i < layout.staging_slots; ++i) {
    ENGINE_RETURN_IF_ERROR(Array<float>::Create(
        *spec.memory, *spec.kernels, "staging the optimizer's state",
        layout.staging_count, &slots_.emplace_back()));
  }
  // Copies of the pool do not wait for the stream of the kernels.
  ENGINE_RETURN_IF_ERROR(spec.kernels->Synchronize());
  const uint64_t capacity = 2 * kItemsPerCopy * (buckets_.size() + 1);
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_host_stream_create(
          spec.context, "offload",
          static_cast<uint32_t>(std::min(capacity, kMaxStreamCapacity)),
          &stream_),
      "making the stream of copies"));
  const commsched_status_t reserved = pool_.reserve(pool_.user, bytes_);
  if (reserved == COMMSCHED_OK) return Status();
  return PoolError("reserving " + std::to_string(bytes_) + " bytes of its pool",
                   reserved);
}

Offload::~Offload() {
  if (stream_.native != nullptr) commsched_host_stream_destroy(stream_);
}

void Offload::Bind(const StepGraph& graph, commsched_session_t* session) {
  session_ = session;
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    BucketState& state = buckets_[b];
    const BucketIds& ids = graph.buckets[b];
    state.fetch_op = ids.fetch;
    state.store_op = ids.store;
    if (state.count == 0) continue;
    float* const memory = slots_[ids.slot].data();
    state.fetch = {.offload = this, .bucket = b, .memory = memory};
    state.store = {
        .offload = this, .bucket = b, .stores = true, .memory = memory};
  }
}

// What an op of the lane waits for has had its `after`, so this ends.
void Offload::Settle() {
  static_cast<void>(commsched_stream_synchronize(stream_));
  session_ = nullptr;
}

// ---- Within steps -----------------------------------------------------------

Status Offload::Fetch(uint32_t bucket, int64_t* cost_ns) {
  BucketState& state = buckets_[bucket];
  state.fetch.cost_ns = cost_ns;
  return Enqueue(state.fetch_op, &state.fetch);
}

// The one of the step before is complete: a fetch of this step came after it,
// and the optimizer had what that brought.
Status Offload::Store(uint32_t bucket, int64_t* cost_ns) {
  BucketState& state = buckets_[bucket];
  state.store.cost_ns = cost_ns;
  return Enqueue(state.store_op, &state.store);
}

Status Offload::Enqueue(commsched_op_id_t op, Copy* copy) {
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_session_before(session_, op, stream_),
                       "before a copy of the optimizer's state"));
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_host_stream_enqueue(stream_, Run, copy),
                       "enqueuing a copy of the optimizer's state"));
  return Status::FromCall(commsched_session_after(session_, op, stream_),
                          "after a copy of the optimizer's state");
}

int64_t Offload::Now() const { return ClockNs(CLOCK_MONOTONIC); }

void Offload::NoteArrival(uint32_t bucket, int64_t asked_ns) {
  exposed_ns_ += std::max<int64_t>(0, buckets_[bucket].fetch.end_ns - asked_ns);
}

// ---- On the stream of copies ------------------------------------------------

void Offload::Run(void* copy) {
  Copy& each = *static_cast<Copy*>(copy);
  each.offload->RunCopy(each);
}

// A failed session sets copies free before their turn.
void Offload::RunCopy(Copy& copy) {
  if (commsched_session_status(session_) != COMMSCHED_OK) return;
  const int64_t begin_ns = Now();
  const int64_t begin_cpu_ns = ClockNs(CLOCK_THREAD_CPUTIME_ID);
  const commsched_status_t code = Transfer(copy);
  if (code != COMMSCHED_OK) {
    Fail(PoolError("copying the optimizer's state of bucket " +
                       std::to_string(copy.bucket) +
                       (copy.stores ? " to its pool" : " from its pool"),
                   code));
    return;
  }
  if (copy.cost_ns != nullptr) {
    *copy.cost_ns = std::min(*copy.cost_ns,
                             ClockNs(CLOCK_THREAD_CPUTIME_ID) - begin_cpu_ns);
  }
  copy.end_ns = Now();
  copied_bytes_.fetch_add(buckets_[copy.bucket].count * sizeof(float),
                          std::memory_order_relaxed);
  copy_ns_.fetch_add(copy.end_ns - begin_ns, std::memory_order_relaxed);
}

commsched_status_t Offload::Transfer(const Copy& copy) {
  const BucketState& state = buckets_[copy.bucket];
  const uint64_t bytes = state.count * sizeof(float);
  return copy.stores ? pool_.write(pool_.user, state.offset, copy.memory, bytes)
                     : pool_.read(pool_.user, state.offset, copy.memory, bytes);
}

Status Offload::PoolError(const std::string& doing,
                          commsched_status_t code) const {
  const char* said =
      pool_.last_error == nullptr ? nullptr : pool_.last_error(pool_.user);
  const bool known =
      code >= COMMSCHED_CANCELLED && code <= COMMSCHED_UNAUTHENTICATED;
  const std::string name =
      known ? commsched_status_name(code)
            : std::to_string(code) + ", which is not a status code";
  return Status(
      known ? code : COMMSCHED_INTERNAL,
      "engine: rank " + std::to_string(rank_) + ": " + doing + " failed with " +
          name +
          (said == nullptr || *said == '\0' ? std::string()
                                            : std::string(": ") + said));
}

void Offload::Fail(Status failure) {
  if (failed_.load(std::memory_order_relaxed)) return;
  failure_ = std::move(failure);
  failed_.store(true, std::memory_order_release);
  commsched_session_abort(session_, failure_.message().c_str());
}

Status Offload::failure() const {
  return failed_.load(std::memory_order_acquire) ? failure_ : Status();
}

// ---- Between steps ----------------------------------------------------------

Status Offload::Read(uint32_t bucket, uint64_t first, float* out,
                     uint64_t count) {
  ENGINE_RETURN_IF_ERROR(failure());
  const commsched_status_t code =
      pool_.read(pool_.user, buckets_[bucket].offset + first * sizeof(float),
                 out, count * sizeof(float));
  if (code == COMMSCHED_OK) return Status();
  return PoolError("reading the optimizer's state of bucket " +
                       std::to_string(bucket) + " from its pool",
                   code);
}

Status Offload::Write(uint32_t bucket, uint64_t first, const float* from,
                      uint64_t count) {
  ENGINE_RETURN_IF_ERROR(failure());
  const commsched_status_t code =
      pool_.write(pool_.user, buckets_[bucket].offset + first * sizeof(float),
                  from, count * sizeof(float));
  if (code == COMMSCHED_OK) return Status();
  Fail(PoolError("writing the optimizer's state of bucket " +
                     std::to_string(bucket) + " to its pool",
                 code));
  return failure_;
}

uint64_t Offload::staging_bytes() const {
  uint64_t bytes = 0;
  for (const Array<float>& slot : slots_) bytes += slot.bytes();
  return bytes;
}

}  // namespace commsched::engine
