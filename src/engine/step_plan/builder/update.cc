// From gradients to weights: reductions, clipping, the optimizer.

#include <ranges>
#include <string>

#include "engine/step_plan/builder/builder.h"

namespace commsched::engine {
namespace {

// Bytes that the optimizer moves per element: reads and writes weights and
// moments, reads the gradient, writes the copy.
double OptimizerBytesPerElement(const StepSpec& spec, const Bucket& bucket) {
  const uint64_t copy = spec.has_masters(bucket) ? SizeOf(bucket.dtype) : 0;
  return static_cast<double>(8 * (1 + spec.moments) +
                             SizeOf(spec.reduced(bucket)) + copy);
}

}  // namespace

// Of the windows that have ended, in the order in which backward mostly
// completes the buckets: last first.
Status StepBuilder::AddReductions() {
  for (uint32_t b : std::views::reverse(out_.first_use)) {
    for (uint32_t& window = num_ended_[b];
         window < WindowsOf(b).size() && WindowsOf(b)[window].last < position();
         ++window) {
      if (!IsReduced(b, window)) continue;
      ENGINE_RETURN_IF_ERROR(AddReduction(b, window));
    }
  }
  return Status();
}

Status StepBuilder::AddReduction(uint32_t bucket, uint32_t window) {
  const uint32_t micro_batch = WindowsOf(bucket)[window].micro_batch;
  std::string name =
      Indexed(sharded() ? "reduce_scatter" : "all_reduce", bucket);
  if (at_once(bucket)) name = Indexed(name.c_str(), micro_batch);
  GraphWriter::Collective reduction;
  reduction.kind = sharded() ? COMMSCHED_REDUCE_SCATTER : COMMSCHED_ALL_REDUCE;
  reduction.reduce_op = COMMSCHED_AVG;
  reduction.input =
      Access(out_.buckets[bucket].unreduced_in(micro_batch), COMMSCHED_READ);
  reduction.output = Reduced(bucket, window, COMMSCHED_WRITE);
  return writer_.AddCollective(name, reduction);
}

// Of the window before, for buckets that `pass` is the first to touch again or,
// where a window begins before the last one ends, before it ends itself. The
// first one's reduction has nothing to add to.
Status StepBuilder::AddAccumulations(const Pass& pass, PassOps& ops) {
  if (!AddsGradients(pass.kind)) return Status();
  for (uint32_t b : layout_.module_buckets[pass.module]) {
    if (!at_once(b)) continue;
    const uint32_t window = windows_[b].IndexOf(pass.micro_batch);
    if (window == 0) continue;
    const Window& at = WindowsOf(b)[window];
    const bool overlaps = at.first < WindowsOf(b)[window - 1].last;
    if (position() != (overlaps ? at.last : at.first)) continue;
    const bool first = window == 1;
    if (first && !spec_.adds_first(layout_.buckets[b])) continue;
    ops.accumulations.push_back({b, kNoId, first});
    ENGINE_RETURN_IF_ERROR(
        AddAccumulation(b, window - 1, &ops.accumulations.back().op));
  }
  return Status();
}

Status StepBuilder::AddConversions(const Pass& pass, PassOps& ops) {
  const uint32_t mb = pass.micro_batch;
  for (uint32_t b : layout_.module_buckets[pass.module]) {
    if (layout_.buckets[b].frozen) continue;
    if (windows_[b].Of(mb).last != position()) continue;
    ENGINE_RETURN_IF_ERROR(AddConversionsOf(b, mb, ops));
  }
  return Status();
}

// What follows the last backward of a window.
Status StepBuilder::AddConversionsOf(uint32_t bucket, uint32_t micro_batch,
                                     PassOps& ops) {
  const uint32_t window = windows_[bucket].IndexOf(micro_batch);
  const Bucket& of = layout_.buckets[bucket];
  const BucketIds& ids = out_.buckets[bucket];
  if (spec_.folds(of)) {
    ENGINE_RETURN_IF_ERROR(
        AddConversion(Indexed(Indexed("fold", bucket).c_str(), micro_batch),
                      {.bucket = bucket,
                       .count = of.count,
                       .adds = window > 0,
                       .from_dtype = of.dtype,
                       .into_dtype = kSumDType,
                       .from = ids.of(BufferKind::kGradients, micro_batch),
                       .into = ids.of(BufferKind::kAccumulated)},
                      ops));
  }
  if (!spec_.casts(of) || !IsReduced(bucket, window)) return Status();
  const std::string name = Indexed("cast", bucket);
  return AddConversion(
      at_once(bucket) ? Indexed(name.c_str(), micro_batch) : name,
      {.bucket = bucket,
       .count = of.count,
       .from_dtype = spec_.unreduced(of),
       .into_dtype = spec_.precision.reduced,
       .from = ids.uncast_in(micro_batch),
       .into = ids.unreduced_in(micro_batch)},
      ops);
}

Status StepBuilder::AddConversion(const std::string& name,
                                  Conversion conversion, PassOps& ops) {
  uint64_t bytes =
      SizeOf(conversion.from_dtype) + SizeOf(conversion.into_dtype);
  if (conversion.adds) bytes += SizeOf(conversion.into_dtype);
  ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
      name,
      {Access(conversion.from, COMMSCHED_READ),
       Access(conversion.into,
              conversion.adds ? COMMSCHED_READ_WRITE : COMMSCHED_WRITE)},
      static_cast<double>(conversion.count * bytes), &conversion.op));
  ops.conversions.push_back(conversion);
  return Status();
}

Status StepBuilder::AddAccumulation(uint32_t bucket, uint32_t window,
                                    commsched_op_id_t* out_op) {
  const uint32_t micro_batch = WindowsOf(bucket)[window].micro_batch;
  const uint64_t bytes =
      SizeOf(spec_.precision.reduced) + 2 * SizeOf(kSumDType);
  return writer_.AddCompute(
      Indexed(Indexed("accumulate", bucket).c_str(), micro_batch),
      {Reduced(bucket, window, COMMSCHED_READ),
       ReducedGradients(bucket,
                        window == 0 ? COMMSCHED_WRITE : COMMSCHED_READ_WRITE)},
      static_cast<double>(ShardCount(bucket) * bytes), out_op);
}

Status StepBuilder::AddLastAccumulation(uint32_t bucket) {
  if (!at_once(bucket)) return Status();
  return AddAccumulation(bucket,
                         static_cast<uint32_t>(WindowsOf(bucket).size()) - 1,
                         &out_.buckets[bucket].accumulate);
}

// The step of a bucket puts the rate there, and first reads what the gather of
// the step before has left: so long before that no step waits for a rate, and
// no op is added.
Status StepBuilder::AddRates() {
  commsched_access_t mine = Access(out_.rates, COMMSCHED_READ);
  mine.region = COMMSCHED_SHARD;
  mine.group = writer_.group();
  return writer_.AddCollective("gather_learning_rates",
                               {COMMSCHED_ALL_GATHER, COMMSCHED_SUM, mine,
                                Access(out_.rates, COMMSCHED_WRITE)});
}

// The squares in the order in which the reductions arrive. The first has the
// learning rate gathered with the sums.
Status StepBuilder::AddNorm() {
  const auto range_of_sums = [&](uint64_t offset, uint64_t count) {
    commsched_access_t sums = Access(out_.local_sums, COMMSCHED_WRITE);
    sums.region = COMMSCHED_RANGE;
    sums.offset = offset;
    sums.count = count;
    return sums;
  };
  for (uint32_t b : std::views::reverse(out_.first_use)) {
    ENGINE_RETURN_IF_ERROR(AddLastAccumulation(b));
    std::vector<commsched_access_t> accesses = {
        ReducedGradients(b, COMMSCHED_READ),
        range_of_sums(out_.sums_offset[b], ShardCount(b) / kBlockElements)};
    if (b == out_.first_use.back() && spec_.gathers_block_sums()) {
      accesses.push_back(
          range_of_sums(out_.local_blocks, spec_.agreed_values()));
    }
    ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
        Indexed("squares", b), accesses,
        static_cast<double>(ShardCount(b) *
                            SizeOf(spec_.reduced(layout_.buckets[b]))),
        &out_.buckets[b].squares));
  }
  ENGINE_RETURN_IF_ERROR(AddNormExchange());
  commsched_buffer_id_t source = out_.local_sums;
  if (spec_.gathers_block_sums()) source = out_.all_sums;
  if (spec_.reduces_norm()) source = out_.total;
  std::vector<commsched_access_t> accesses = {
      Access(source, COMMSCHED_READ),
      Access(out_.control, COMMSCHED_READ_WRITE)};
  if (spec_.gathers_parts()) {
    ENGINE_RETURN_IF_ERROR(AddNormParts(source));
    accesses.push_back(Access(out_.parts, COMMSCHED_READ));
  }
  if (spec_.has_flags()) {
    ENGINE_RETURN_IF_ERROR(AddFlags());
    const commsched_access_t sums =
        Access(spec_.gathers_parts() ? out_.parts : source, COMMSCHED_READ);
    ENGINE_RETURN_IF_ERROR(
        writer_.AddCompute("norm_sums", {sums}, 0, &out_.norm_sums));
    accesses.push_back(Access(out_.flags, COMMSCHED_READ));
  }
  return writer_.AddCompute(
      "norm", accesses, static_cast<double>(out_.local_blocks) * sizeof(double),
      &out_.norm);
}

// Block sums of all ranks, so that each adds them in one order whatever the
// buckets and the stage; or, where bits may differ, one number. With them the
// learning rates: in a sum each rank has a place of its own, where the others
// add zeros.
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

// One number of each part of the model, so that the ranks of all parts decide
// alike.
Status StepBuilder::AddNormParts(commsched_buffer_id_t source) {
  ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
      "norm_part",
      {Access(source, COMMSCHED_READ), Access(out_.part, COMMSCHED_WRITE)},
      static_cast<double>(out_.local_blocks) * sizeof(double), &out_.add_part));
  GraphWriter::Collective gather;
  gather.input = Access(out_.part, COMMSCHED_READ);
  gather.output = Access(out_.parts, COMMSCHED_WRITE);
  ENGINE_RETURN_IF_ERROR(NormGroup(&gather.group));
  return writer_.AddCollective("gather_norm_parts", gather);
}

// Of all groups the last.
Status StepBuilder::NormGroup(commsched_group_id_t* out_group) {
  if (norm_group_ == kNoId) {
    ENGINE_RETURN_IF_ERROR(
        writer_.AddGroup("norm_parts", spec_.norm_members, &norm_group_));
  }
  *out_group = norm_group_;
  return Status();
}

// The minimum over the ranks: 1 where a gradient is absent on all of them, and
// less than 0 where one has cancelled the step, of which the ranks with other
// parts of the model hear, too.
Status StepBuilder::AddFlags() {
  const commsched_access_t written = Access(out_.flags, COMMSCHED_WRITE);
  const commsched_op_id_t last = out_.pass_ops.back().last();
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = "set_flags";
  desc.accesses = &written;
  desc.num_accesses = 1;
  desc.after = &last;
  desc.num_after = 1;
  desc.cost_ns = 1;
  ENGINE_RETURN_IF_ERROR(writer_.AddCompute(desc, &out_.set_flags));
  GraphWriter::Collective reduction;
  reduction.kind = COMMSCHED_ALL_REDUCE;
  reduction.reduce_op = COMMSCHED_MIN;
  reduction.input = Access(out_.flags, COMMSCHED_READ);
  reduction.output = Access(out_.flags, COMMSCHED_WRITE);
  ENGINE_RETURN_IF_ERROR(writer_.AddCollective("reduce_flags", reduction));
  if (!spec_.uses_norm_group()) return Status();
  for (commsched_access_t* each : {&reduction.input, &reduction.output}) {
    each->region = COMMSCHED_RANGE;
    each->offset = spec_.num_flags(layout_.slots.size()) - 1;
    each->count = 1;
  }
  ENGINE_RETURN_IF_ERROR(NormGroup(&reduction.group));
  return writer_.AddCollective("reduce_cancelled", reduction);
}

// Every bucket is stepped after it.
Status StepBuilder::AddReadFlags() {
  return writer_.AddCompute("read_flags",
                            {Access(out_.flags, COMMSCHED_READ_WRITE)}, 0,
                            &out_.read_flags);
}

// With the rates go the gathers of stages 1 and 2, of which none is to wait for
// them; else the link is free from the first bucket on.
Status StepBuilder::AddOptimizer() {
  if (spec_.gathers_rates()) {
    const bool last = sharded() && spec_.zero_stage < 3;
    out_.rate_bucket = last ? out_.first_use.back() : out_.first_use.front();
  }
  size_t staged = 0;  // In out_.staged.
  for (uint32_t b : out_.first_use) {
    if (!spec_.needs_norm()) ENGINE_RETURN_IF_ERROR(AddLastAccumulation(b));
    ENGINE_RETURN_IF_ERROR(AddStep(b));
    if (sharded() && !spec_.gathers(layout_.buckets[b])) {
      const commsched_buffer_id_t parameters =
          out_.buckets[b].of(BufferKind::kParameters);
      ENGINE_RETURN_IF_ERROR(writer_.AddCollective(
          Indexed("all_gather", b), {COMMSCHED_ALL_GATHER, COMMSCHED_SUM,
                                     Part(parameters, COMMSCHED_READ),
                                     Access(parameters, COMMSCHED_WRITE)}));
    }
    if (b == out_.rate_bucket) ENGINE_RETURN_IF_ERROR(AddRates());
    if (out_.buckets[b].fetch == kNoId) continue;
    ENGINE_RETURN_IF_ERROR(AddCopies(staged++));
  }
  return Status();
}

Status StepBuilder::AddStep(uint32_t bucket) {
  BucketIds& ids = out_.buckets[bucket];
  std::vector<commsched_access_t> accesses = {
      ReducedGradients(bucket, COMMSCHED_READ), Weights(bucket)};
  for (commsched_buffer_id_t kept :
       {ids.of(BufferKind::kMasters), ids.of(BufferKind::kState)}) {
    if (kept == kNoId) continue;
    accesses.push_back(Access(kept, COMMSCHED_READ_WRITE));
  }
  if (ids.fetch != kNoId) {
    accesses.push_back(Staged(bucket, COMMSCHED_READ_WRITE));
  }
  if (spec_.needs_norm()) {
    accesses.push_back(Access(out_.control, COMMSCHED_READ));
  } else if (spec_.has_flags()) {
    accesses.push_back(Access(out_.flags, COMMSCHED_READ));
  }
  if (bucket == out_.rate_bucket) {
    accesses.push_back(Access(out_.rates, COMMSCHED_READ_WRITE));
  }
  return writer_.AddCompute(
      Indexed(spec_.optimizer, bucket), accesses,
      static_cast<double>(ShardCount(bucket)) *
          OptimizerBytesPerElement(spec_, layout_.buckets[bucket]),
      &ids.optimizer);
}

}  // namespace commsched::engine
