#include "engine/step_plan/builder/staging.h"

#include <string>

namespace commsched::engine {
namespace {

constexpr uint32_t kCopyLane = 1;

}  // namespace

Status StagingBuilder::AddBuffers() {
  for (size_t i = 0; i < out_.staged.size(); ++i) {
    out_.buckets[out_.staged[i]].slot =
        static_cast<uint32_t>(i % layout_.staging_slots);
  }
  for (uint32_t slot = 0; slot < layout_.staging_slots; ++slot) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        Indexed("staging", slot), COMMSCHED_F32, COMMSCHED_BOUND,
        layout_.staging_count, &out_.staging.emplace_back()));
  }
  for (size_t i = 0; i < out_.staged_gradients.size(); ++i) {
    out_.buckets[out_.staged_gradients[i]].gradient_slot =
        static_cast<uint32_t>(i % layout_.gradient_slots);
  }
  for (uint32_t slot = 0; slot < layout_.gradient_slots; ++slot) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        Indexed("gradient_staging", slot), spec_.precision.reduced,
        COMMSCHED_BOUND, layout_.gradient_slot_count,
        &out_.gradient_staging.emplace_back()));
  }
  return Status();
}

commsched_access_t StagingBuilder::Staged(uint32_t bucket,
                                          commsched_access_mode_t mode) const {
  commsched_access_t access =
      Access(out_.staging[out_.buckets[bucket].slot], mode);
  access.region = COMMSCHED_RANGE;
  access.count = spec_.state_count(layout_.buckets[bucket]);
  return access;
}

// As many as there are slots, so that they have all of forward and backward.
Status StagingBuilder::AddFirstFetches() {
  for (uint32_t i = 0; i < layout_.staging_slots; ++i) {
    ENGINE_RETURN_IF_ERROR(AddFetch(out_.staged[i]));
  }
  return Status();
}

Status StagingBuilder::AddCopies(size_t index) {
  ENGINE_RETURN_IF_ERROR(AddStore(out_.staged[index]));
  const size_t next = index + layout_.staging_slots;
  if (next >= out_.staged.size()) return Status();
  return AddFetch(out_.staged[next]);
}

Status StagingBuilder::AddFetch(uint32_t bucket) {
  return AddCopy(Indexed("fetch", bucket), Staged(bucket, COMMSCHED_WRITE),
                 sizeof(float), kNoId, &out_.buckets[bucket].fetch);
}

// What it leaves in the pool is what the next step fetches.
Status StagingBuilder::AddStore(uint32_t bucket) {
  BucketIds& ids = out_.buckets[bucket];
  ENGINE_RETURN_IF_ERROR(AddCopy(Indexed("store", bucket),
                                 Staged(bucket, COMMSCHED_READ), sizeof(float),
                                 kNoId, &ids.store));
  return writer_.AddEdge(ids.store, ids.fetch, /*distance=*/1);
}

// ---- Gradients --------------------------------------------------------------

GradientTurn* StagingBuilder::NextTurn() {
  return next_turn_ == out_.gradient_turns.size()
             ? nullptr
             : &out_.gradient_turns[next_turn_];
}

// The sum that is next in the slot is fetched as soon as that is free.
Status StagingBuilder::AddTurnCopies() {
  GradientTurn& turn = out_.gradient_turns[next_turn_++];
  const auto name = [&](const char* of, const GradientTurn& each) {
    const std::string name = Indexed(of, each.bucket);
    return layout_.buckets[each.bucket].reduced_at_once
               ? Indexed(name.c_str(), each.micro_batch)
               : name;
  };
  ENGINE_RETURN_IF_ERROR(AddCopy(name("store_gradients", turn),
                                 ReducedGradients(turn.bucket, COMMSCHED_READ),
                                 SizeOf(spec_.precision.reduced), kNoId,
                                 &turn.store));
  out_.buckets[turn.bucket].store_gradients = turn.store;
  if (turn.fetches_for == kNoId) return Status();
  GradientTurn& next = out_.gradient_turns[turn.fetches_for];
  return AddCopy(name("fetch_sum", next),
                 ReducedGradients(next.bucket, COMMSCHED_WRITE),
                 SizeOf(spec_.precision.reduced),
                 out_.buckets[next.bucket].store_gradients, &next.fetch);
}

// The squares come in the opposite order of the steps, so that what is left in
// the slots is what is stepped first.
Status StagingBuilder::AddSquaresFetch(size_t index) {
  const std::vector<uint32_t>& staged = out_.staged_gradients;
  if (index >= staged.size()) return Status();
  const uint32_t bucket = staged[staged.size() - 1 - index];
  return AddFetchOf("fetch_squares", bucket,
                    &out_.buckets[bucket].fetch_squares);
}

Status StagingBuilder::AddGradientFetch(size_t index) {
  if (index >= out_.staged_gradients.size()) return Status();
  const uint32_t bucket = out_.staged_gradients[index];
  return AddFetchOf("fetch_gradients", bucket,
                    &out_.buckets[bucket].fetch_gradients);
}

Status StagingBuilder::AddFetchOf(const char* name, uint32_t bucket,
                                  commsched_op_id_t* out_op) {
  return AddCopy(Indexed(name, bucket),
                 ReducedGradients(bucket, COMMSCHED_WRITE),
                 SizeOf(spec_.precision.reduced),
                 out_.buckets[bucket].store_gradients, out_op);
}

Status StagingBuilder::AddCopy(const std::string& name,
                               const commsched_access_t& access,
                               uint64_t element_bytes, commsched_op_id_t after,
                               commsched_op_id_t* out_op) {
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name.c_str();
  desc.accesses = &access;
  desc.num_accesses = 1;
  if (after != kNoId) {
    desc.after = &after;
    desc.num_after = 1;
  }
  desc.lane = kCopyLane;
  desc.bytes = static_cast<double>(2 * access.count * element_bytes);
  return writer_.AddCompute(desc, out_op);
}

}  // namespace commsched::engine
