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
  return AddCopy(Indexed("fetch", bucket), bucket, COMMSCHED_WRITE,
                 &out_.buckets[bucket].fetch);
}

// What it leaves in the pool is what the next step fetches.
Status StagingBuilder::AddStore(uint32_t bucket) {
  BucketIds& ids = out_.buckets[bucket];
  ENGINE_RETURN_IF_ERROR(
      AddCopy(Indexed("store", bucket), bucket, COMMSCHED_READ, &ids.store));
  return writer_.AddEdge(ids.store, ids.fetch, /*distance=*/1);
}

Status StagingBuilder::AddCopy(const std::string& name, uint32_t bucket,
                               commsched_access_mode_t mode,
                               commsched_op_id_t* out_op) {
  const commsched_access_t access = Staged(bucket, mode);
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name.c_str();
  desc.accesses = &access;
  desc.num_accesses = 1;
  desc.lane = kCopyLane;
  desc.bytes = static_cast<double>(2 * access.count * sizeof(float));
  return writer_.AddCompute(desc, out_op);
}

}  // namespace commsched::engine
