#ifndef COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_PART_H_
#define COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_PART_H_

#include <cstdint>

#include "engine/model/graph_writer.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/spec.h"
#include "engine/step_plan/step_graph.h"

namespace commsched::engine {

// What all that adds to the graph of a step shares, and how it accesses what
// buckets have.
//
// Thread-compatible.
class BuilderPart {
 public:
  // All of it outlives the builder.
  BuilderPart(const StepSpec& spec, const Layout& layout, GraphWriter* writer,
              StepGraph* out)
      : spec_(spec), layout_(layout), writer_(*writer), out_(*out) {}

 protected:
  bool sharded() const { return spec_.zero_stage > 0; }
  // The part of a buffer of all elements that this rank's optimizer owns.
  commsched_access_t Part(commsched_buffer_id_t buffer,
                          commsched_access_mode_t mode) const {
    commsched_access_t access = Access(buffer, mode);
    if (sharded()) {
      access.region = COMMSCHED_SHARD;
      access.group = writer_.group();
    }
    return access;
  }
  // The weights that the optimizer writes.
  commsched_access_t Weights(uint32_t bucket) const {
    const BucketIds& ids = out_.buckets[bucket];
    const commsched_access_mode_t mode =
        spec_.has_masters(layout_.buckets[bucket]) ? COMMSCHED_WRITE
                                                   : COMMSCHED_READ_WRITE;
    const commsched_buffer_id_t parameters = ids.of(BufferKind::kParameters);
    return spec_.gathers(layout_.buckets[bucket]) ? Access(parameters, mode)
                                                  : Part(parameters, mode);
  }
  // The reduced gradients that this rank steps with.
  commsched_access_t ReducedGradients(uint32_t bucket,
                                      commsched_access_mode_t mode) const {
    const BucketIds& ids = out_.buckets[bucket];
    if (spec_.offloads_gradients_of(layout_.buckets[bucket])) {
      commsched_access_t access =
          Access(out_.gradient_staging[ids.gradient_slot], mode);
      access.region = COMMSCHED_RANGE;
      access.count = spec_.slot_count(layout_.buckets[bucket]);
      return access;
    }
    const commsched_buffer_id_t shard = ids.of(BufferKind::kShard);
    return shard != kNoId ? Access(shard, mode)
                          : Part(ids.of(BufferKind::kGradients), mode);
  }
  uint64_t ShardCount(uint32_t bucket) const {
    return layout_.buckets[bucket].count / spec_.num_shards();
  }
  uint32_t num_buckets() const {
    return static_cast<uint32_t>(layout_.buckets.size());
  }

  const StepSpec& spec_;
  const Layout& layout_;
  GraphWriter& writer_;
  StepGraph& out_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STEP_PLAN_BUILDER_PART_H_
