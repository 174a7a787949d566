// From gradients to weights: reductions, clipping, the optimizer.

#include <string>

#include "step_builder.h"

namespace commsched::engine {
namespace {

// Bytes that the optimizer moves per element: reads and writes weights and
// moments, reads the gradient.
double OptimizerBytesPerElement(const StepSpec& spec) {
  return 8.0 * (1 + spec.moments) + 4;
}

// Reads two, writes one.
constexpr double kAddBytesPerElement = 12;

}  // namespace

// Declared in the order in which backward completes the buckets: last first.
Status StepBuilder::AddReductions(uint32_t micro_batch) {
  const bool last = micro_batch + 1 == spec_.micro_batches;
  for (uint32_t b = num_buckets(); b-- > 0;) {
    if (!last && !at_once(b)) continue;
    ENGINE_RETURN_IF_ERROR(AddReduction(b, micro_batch));
  }
  return Status();
}

Status StepBuilder::AddReduction(uint32_t bucket, uint32_t micro_batch) {
  std::string name =
      Indexed(sharded() ? "reduce_scatter" : "all_reduce", bucket);
  if (at_once(bucket)) name = Indexed(name.c_str(), micro_batch);
  GraphWriter::Collective reduction;
  reduction.kind = sharded() ? COMMSCHED_REDUCE_SCATTER : COMMSCHED_ALL_REDUCE;
  reduction.reduce_op = COMMSCHED_AVG;
  reduction.input =
      Access(out_.buckets[bucket].gradients_in(micro_batch), COMMSCHED_READ);
  reduction.output = Reduced(bucket, micro_batch, COMMSCHED_WRITE);
  return writer_.AddCollective(name, reduction);
}

// Of the micro-batch before, for buckets that `op` is the first to touch again.
// The first one's reduction has nothing to add to.
Status StepBuilder::AddAccumulations(ModuleOp& op) {
  if (!op.backward || op.micro_batch < 2) return Status();
  for (uint32_t b : layout_.module_buckets[op.module]) {
    if (!at_once(b) || !IsFirstBackward(b, op.micro_batch)) continue;
    ENGINE_RETURN_IF_ERROR(
        AddAccumulation(b, op.micro_batch - 1,
                        &op.accumulations.emplace_back(Accumulation{b}).op));
  }
  return Status();
}

Status StepBuilder::AddAccumulation(uint32_t bucket, uint32_t micro_batch,
                                    commsched_op_id_t* out_op) {
  return writer_.AddCompute(
      Indexed(Indexed("accumulate", bucket).c_str(), micro_batch),
      {Reduced(bucket, micro_batch, COMMSCHED_READ),
       ReducedGradients(bucket, COMMSCHED_READ_WRITE)},
      static_cast<double>(ShardCount(bucket)) * kAddBytesPerElement, out_op);
}

Status StepBuilder::AddLastAccumulation(uint32_t bucket) {
  if (!at_once(bucket)) return Status();
  return AddAccumulation(bucket, spec_.micro_batches - 1,
                         &out_.buckets[bucket].accumulate);
}

// The squares in the order in which the reductions arrive.
Status StepBuilder::AddNorm() {
  for (uint32_t b = num_buckets(); b-- > 0;) {
    commsched_access_t sums = Access(out_.local_sums, COMMSCHED_WRITE);
    sums.region = COMMSCHED_RANGE;
    sums.offset = out_.sums_offset[b];
    sums.count = ShardCount(b) / kBlockElements;
    ENGINE_RETURN_IF_ERROR(AddLastAccumulation(b));
    ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
        Indexed("squares", b), {ReducedGradients(b, COMMSCHED_READ), sums},
        static_cast<double>(ShardCount(b)) * sizeof(float),
        &out_.buckets[b].squares));
  }
  ENGINE_RETURN_IF_ERROR(AddNormExchange());
  commsched_buffer_id_t source = out_.local_sums;
  if (spec_.gathers_block_sums()) source = out_.all_sums;
  if (spec_.reduces_norm()) source = out_.total;
  return writer_.AddCompute(
      "norm",
      {Access(source, COMMSCHED_READ), Access(out_.factor, COMMSCHED_WRITE)},
      static_cast<double>(out_.local_blocks) * sizeof(double), &out_.norm);
}

// Block sums of all ranks, so that each adds them in one order whatever the
// buckets and the stage; or, where bits may differ, one number.
Status StepBuilder::AddNormExchange() {
  if (spec_.gathers_block_sums()) {
    return writer_.AddCollective("gather_block_sums",
                                 {COMMSCHED_ALL_GATHER, COMMSCHED_SUM,
                                  Access(out_.local_sums, COMMSCHED_READ),
                                  Access(out_.all_sums, COMMSCHED_WRITE)});
  }
  if (!spec_.reduces_norm()) return Status();
  ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
      "local_total",
      {Access(out_.local_sums, COMMSCHED_READ),
       Access(out_.total, COMMSCHED_WRITE)},
      static_cast<double>(out_.local_blocks) * sizeof(double),
      &out_.local_total));
  return writer_.AddCollective(
      "reduce_norm",
      {COMMSCHED_ALL_REDUCE, COMMSCHED_SUM, Access(out_.total, COMMSCHED_READ),
       Access(out_.total, COMMSCHED_WRITE)});
}

Status StepBuilder::AddOptimizer() {
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    if (!spec_.clip) ENGINE_RETURN_IF_ERROR(AddLastAccumulation(b));
    BucketIds& ids = out_.buckets[b];
    std::vector<commsched_access_t> accesses = {
        ReducedGradients(b, COMMSCHED_READ), Weights(b)};
    if (ids.state != kNoId) {
      accesses.push_back(Access(ids.state, COMMSCHED_READ_WRITE));
    }
    if (spec_.clip) accesses.push_back(Access(out_.factor, COMMSCHED_READ));
    ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
        Indexed(spec_.optimizer(), b), accesses,
        static_cast<double>(ShardCount(b)) * OptimizerBytesPerElement(spec_),
        &ids.optimizer));
    if (!sharded() || spec_.gathers(layout_.buckets[b])) continue;
    ENGINE_RETURN_IF_ERROR(writer_.AddCollective(
        Indexed("all_gather", b), {COMMSCHED_ALL_GATHER, COMMSCHED_SUM,
                                   Part(ids.parameters, COMMSCHED_READ),
                                   Access(ids.parameters, COMMSCHED_WRITE)}));
  }
  return Status();
}

}  // namespace commsched::engine
