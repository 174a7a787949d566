#include "engine/state/offload.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "commsched/stream.h"

namespace commsched::engine {
namespace {

// Items of a stream per copy: a few waits, the copy, a record.
constexpr uint64_t kItemsPerCopy = 6;
// State goes in and out; gradients come in for the squares and a step.
constexpr uint64_t kCopiesPerBucket = 4;
// Gradients go out, and before that a sum may come in.
constexpr uint64_t kCopiesPerTurn = 2;
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
  uint64_t num_copies = kCopiesPerBucket;
  for (const Bucket& bucket : layout.buckets) {
    BucketCopies& copies = buckets_.emplace_back();
    if (spec.step.offloads) {
      copies.state = {state_.bytes,
                      spec.step.state_count(bucket) * sizeof(float)};
    }
    if (spec.step.offloads_gradients_of(bucket)) {
      copies.gradients = {gradients_.bytes,
                          bucket.count / spec.step.num_shards() *
                              SizeOf(spec.step.reduced(bucket))};
    }
    state_.bytes += copies.state.bytes;
    gradients_.bytes += copies.gradients.bytes;
    num_copies +=
        kCopiesPerBucket +
        kCopiesPerTurn * (bucket.reduced_at_once ? spec.step.micro_batches : 1);
  }
  ENGINE_RETURN_IF_ERROR(MakeSlots(spec, layout));
  const uint64_t capacity = kItemsPerCopy * num_copies;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_host_stream_create(
          spec.context, "offload",
          static_cast<uint32_t>(std::min(capacity, kMaxStreamCapacity)),
          &stream_),
      "making the stream of copies"));
  if (spec.step.offloads) ENGINE_RETURN_IF_ERROR(Reserve(state_));
  return spec.step.offloads_gradients ? Reserve(gradients_) : Status();
}

Status Offload::MakeSlots(const Spec& spec, const Layout& layout) {
  for (uint32_t i = 0; i < layout.staging_slots; ++i) {
    ENGINE_RETURN_IF_ERROR(Array<float>::Create(
        *spec.memory, *spec.kernels, "staging the optimizer's state",
        layout.staging_count, &slots_.emplace_back()));
  }
  for (uint32_t i = 0; i < layout.gradient_slots; ++i) {
    ENGINE_RETURN_IF_ERROR(Bytes::Create(
        *spec.memory, *spec.kernels, "staging gradients",
        layout.gradient_slot_count * SizeOf(spec.step.precision.reduced),
        &gradient_slots_.emplace_back()));
  }
  // Copies of the pool do not wait for the stream of the kernels.
  return spec.kernels->Synchronize();
}

Status Offload::Reserve(const Pool& pool) {
  const commsched_status_t reserved =
      pool.table.reserve(pool.table.user, pool.bytes);
  if (reserved == COMMSCHED_OK) return Status();
  return PoolError(
      pool, "reserving " + std::to_string(pool.bytes) + " bytes of its pool",
      reserved);
}

Offload::~Offload() {
  if (stream_.native != nullptr) commsched_host_stream_destroy(stream_);
}

void Offload::Bind(const StepGraph& graph, commsched_session_t* session) {
  session_ = session;
  for (uint32_t b = 0; b < buckets_.size(); ++b) {
    BucketCopies& copies = buckets_[b];
    const BucketIds& ids = graph.buckets[b];
    Copy state = {
        .offload = this, .pool = &state_, .range = copies.state, .bucket = b};
    if (copies.state.bytes > 0) state.memory = slots_[ids.slot].data();
    copies.fetch = copies.store = state;
    copies.fetch.op = ids.fetch;
    copies.store.op = ids.store;
    copies.store.stores = true;
    Copy gradients = {.offload = this,
                      .pool = &gradients_,
                      .range = copies.gradients,
                      .bucket = b};
    if (copies.gradients.bytes > 0) {
      gradients.memory = gradient_slot(ids.gradient_slot);
    }
    copies.fetch_squares = copies.fetch_gradients = gradients;
    copies.fetch_squares.op = ids.fetch_squares;
    copies.fetch_gradients.op = ids.fetch_gradients;
  }
  BindTurns(graph);
}

void Offload::BindTurns(const StepGraph& graph) {
  turns_.clear();
  for (const GradientTurn& turn : graph.gradient_turns) {
    TurnCopies& copies = turns_.emplace_back();
    copies.fetch = copies.store = buckets_[turn.bucket].fetch_gradients;
    copies.fetch.op = turn.fetch;
    copies.store.op = turn.store;
    copies.store.stores = true;
  }
}

// What an op of the lane waits for has had its `after`, so this ends.
void Offload::Settle() {
  static_cast<void>(commsched_stream_synchronize(stream_));
  session_ = nullptr;
}

// ---- Within steps -----------------------------------------------------------

Status Offload::Fetch(uint32_t bucket, int64_t* cost_ns) {
  return Enqueue(&buckets_[bucket].fetch, cost_ns);
}

// The one of the step before is complete: a fetch of this step came after it,
// and the optimizer had what that brought.
Status Offload::Store(uint32_t bucket, int64_t* cost_ns) {
  return Enqueue(&buckets_[bucket].store, cost_ns);
}

Status Offload::StoreTurn(size_t turn, int64_t* cost_ns) {
  return Enqueue(&turns_[turn].store, cost_ns);
}

Status Offload::FetchTurn(size_t turn, int64_t* cost_ns) {
  return Enqueue(&turns_[turn].fetch, cost_ns);
}

Status Offload::FetchSquares(uint32_t bucket, int64_t* cost_ns) {
  return Enqueue(&buckets_[bucket].fetch_squares, cost_ns);
}

Status Offload::FetchGradients(uint32_t bucket, int64_t* cost_ns) {
  return Enqueue(&buckets_[bucket].fetch_gradients, cost_ns);
}

Status Offload::Enqueue(Copy* copy, int64_t* cost_ns) {
  const auto name = [&](const char* when) {
    return std::string(when) + " a copy of " + copy->pool->what;
  };
  commsched_status_t code =
      commsched_session_before(session_, copy->op, stream_);
  if (code != COMMSCHED_OK) {
    return Status::FromCall(code, name("before").c_str());
  }
  copy->cost_ns = cost_ns;
  code = commsched_host_stream_enqueue(stream_, Run, copy);
  if (code != COMMSCHED_OK) {
    return Status::FromCall(code, name("enqueuing").c_str());
  }
  code = commsched_session_after(session_, copy->op, stream_);
  if (code == COMMSCHED_OK) return Status();
  return Status::FromCall(code, name("after").c_str());
}

int64_t Offload::Now() const { return ClockNs(CLOCK_MONOTONIC); }

void Offload::NoteArrival(uint32_t bucket, int64_t asked_ns) {
  const BucketCopies& copies = buckets_[bucket];
  const int64_t arrived_ns =
      std::max({copies.fetch.end_ns, copies.fetch_squares.end_ns,
                copies.fetch_gradients.end_ns});
  exposed_ns_ += std::max<int64_t>(0, arrived_ns - asked_ns);
}

void Offload::NoteTurn(size_t turn, int64_t asked_ns) {
  exposed_ns_ += std::max<int64_t>(0, turns_[turn].fetch.end_ns - asked_ns);
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
    Fail(PoolError(*copy.pool,
                   std::string("copying ") + copy.pool->what + " of bucket " +
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
  copied_bytes_.fetch_add(copy.range.bytes, std::memory_order_relaxed);
  copy_ns_.fetch_add(copy.end_ns - begin_ns, std::memory_order_relaxed);
}

commsched_status_t Offload::Transfer(const Copy& copy) {
  const commsched_pool_t& pool = copy.pool->table;
  const auto& [offset, bytes] = copy.range;
  return copy.stores ? pool.write(pool.user, offset, copy.memory, bytes)
                     : pool.read(pool.user, offset, copy.memory, bytes);
}

Status Offload::PoolError(const Pool& pool, const std::string& doing,
                          commsched_status_t code) const {
  const char* said = pool.table.last_error == nullptr
                         ? nullptr
                         : pool.table.last_error(pool.table.user);
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
  const commsched_status_t code = state_.table.read(
      state_.table.user, buckets_[bucket].state.offset + first * sizeof(float),
      out, count * sizeof(float));
  if (code == COMMSCHED_OK) return Status();
  return PoolError(state_,
                   "reading the optimizer's state of bucket " +
                       std::to_string(bucket) + " from its pool",
                   code);
}

Status Offload::Write(uint32_t bucket, uint64_t first, const float* from,
                      uint64_t count) {
  ENGINE_RETURN_IF_ERROR(failure());
  const commsched_status_t code = state_.table.write(
      state_.table.user, buckets_[bucket].state.offset + first * sizeof(float),
      from, count * sizeof(float));
  if (code == COMMSCHED_OK) return Status();
  Fail(PoolError(state_,
                 "writing the optimizer's state of bucket " +
                     std::to_string(bucket) + " to its pool",
                 code));
  return failure_;
}

uint64_t Offload::staging_bytes() const {
  uint64_t bytes = 0;
  for (const Array<float>& slot : slots_) bytes += slot.bytes();
  return bytes;
}

uint64_t Offload::gradient_staging_bytes() const {
  uint64_t bytes = 0;
  for (const Bytes& slot : gradient_slots_) bytes += slot.bytes();
  return bytes;
}

}  // namespace commsched::engine
