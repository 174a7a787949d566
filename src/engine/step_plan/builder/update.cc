// What leads from gradients to weights: reductions, clipping, the optimizer.

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

// Adds those of windows that have ended, in the order in which backward mostly
// completes the buckets: last first.
Status StepBuilder::AddReductions(bool ends_micro_batch) {
  for (uint32_t b : std::views::reverse(out_.first_use)) {
    const bool offloads = spec_.offloads_gradients_of(layout_.buckets[b]);
    if (!offloads && !ends_micro_batch) continue;
    for (uint32_t& window = num_ended_[b];
         window < WindowsOf(b).size() && WindowsOf(b)[window].last < position();
         ++window) {
      if (!IsReduced(b, window)) continue;
      ENGINE_RETURN_IF_ERROR(AddReduction(b, window));
      if (!offloads || IsAdded(b, window)) continue;
      ENGINE_RETURN_IF_ERROR(staging_.AddTurnCopies());
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

Status StepBuilder::AddTurns() {
  for (GradientTurn* turn = staging_.NextTurn();
       turn != nullptr && turn->num_passes == position();
       turn = staging_.NextTurn()) {
    const uint32_t b = turn->bucket;
    turn->summand = out_.buckets[b].of(BufferKind::kSummand, turn->micro_batch);
    ENGINE_RETURN_IF_ERROR(AddAccumulation(
        b, windows_[b].IndexOf(turn->micro_batch), &turn->accumulate));
    ENGINE_RETURN_IF_ERROR(staging_.AddTurnCopies());
  }
  return Status();
}

// Adds up what the window before has left, for buckets that `pass` is the first
// to touch again or, where a window begins before the last one ends, before it
// ends itself. The first window's reduction has nothing to add to.
Status StepBuilder::AddAccumulations(const Pass& pass, PassOps& ops) {
  if (!AddsGradients(pass.kind)) return Status();
  for (uint32_t b : layout_.module_buckets[pass.module]) {
    if (!adds_in_memory(b)) continue;
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
  if (!adds_in_memory(bucket)) return Status();
  return AddAccumulation(bucket,
                         static_cast<uint32_t>(WindowsOf(bucket).size()) - 1,
                         &out_.buckets[bucket].accumulate);
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
  const uint32_t slots = layout_.gradient_slots;
  for (uint32_t i = 0; i < slots; ++i) {
    ENGINE_RETURN_IF_ERROR(staging_.AddSquaresFetch(i));
  }
  size_t staged = 0;  // Of offloaded gradients, from the last on.
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
    if (!spec_.offloads_gradients_of(layout_.buckets[b])) continue;
    ENGINE_RETURN_IF_ERROR(staging_.AddSquaresFetch(slots + staged++));
  }
  return norm_.Add();
}

// With the rates go the gathers of stages 1 and 2, of which none is to wait for
// them; else the link is free from the first bucket on.
Status StepBuilder::AddOptimizer() {
  if (spec_.gathers_rates() || spec_.gathers_part_rates()) {
    const bool last = sharded() && spec_.zero_stage < 3;
    out_.rate_bucket = last ? out_.first_use.back() : out_.first_use.front();
  }
  const uint32_t slots = layout_.gradient_slots;
  for (uint32_t i = 0; i < slots && !spec_.needs_norm(); ++i) {
    ENGINE_RETURN_IF_ERROR(staging_.AddGradientFetch(i));
  }
  size_t staged = 0;            // In out_.staged.
  size_t staged_gradients = 0;  // In out_.staged_gradients.
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
    if (b == out_.rate_bucket) ENGINE_RETURN_IF_ERROR(norm_.AddRates());
    if (out_.buckets[b].fetch != kNoId) {
      ENGINE_RETURN_IF_ERROR(staging_.AddCopies(staged++));
    }
    if (!spec_.offloads_gradients_of(layout_.buckets[b])) continue;
    ENGINE_RETURN_IF_ERROR(
        staging_.AddGradientFetch(slots + staged_gradients++));
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
    accesses.push_back(staging_.Staged(bucket, COMMSCHED_READ_WRITE));
  }
  if (spec_.needs_norm()) {
    accesses.push_back(Access(out_.control, COMMSCHED_READ));
  } else if (spec_.has_flags()) {
    accesses.push_back(Access(out_.flags, COMMSCHED_READ));
  }
  for (commsched_buffer_id_t rates : {out_.rates, out_.part_rates}) {
    if (bucket != out_.rate_bucket || rates == kNoId) continue;
    accesses.push_back(Access(rates, COMMSCHED_READ_WRITE));
  }
  return writer_.AddCompute(
      Indexed(spec_.optimizer, bucket), accesses,
      static_cast<double>(ShardCount(bucket)) *
          OptimizerBytesPerElement(spec_, layout_.buckets[bucket]),
      &ids.optimizer);
}

}  // namespace commsched::engine
