#include "engine/step_plan/builder/norm.h"

#include <vector>

namespace commsched::engine {

Status NormBuilder::AddBuffers() {
  if (spec_.has_flags()) {
    ENGINE_RETURN_IF_ERROR(
        writer_.AddBuffer("step_flags", COMMSCHED_F64, COMMSCHED_BOUND,
                          spec_.num_flags(layout_.slots.size()), &out_.flags));
  }
  if (spec_.gathers_rates()) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        "learning_rates", COMMSCHED_F64, COMMSCHED_BOUND,
        spec_.agreed_values() * static_cast<uint64_t>(spec_.world),
        &out_.rates));
  }
  if (spec_.gathers_part_rates()) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        "part_learning_rates", COMMSCHED_F64, COMMSCHED_BOUND,
        spec_.agreed_values() * static_cast<uint64_t>(spec_.norm_members),
        &out_.part_rates));
  }
  if (!spec_.needs_norm()) return Status();
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    out_.sums_offset.push_back(out_.local_blocks);
    if (layout_.buckets[b].frozen) continue;
    out_.local_blocks += ShardCount(b) / kBlockElements;
  }
  out_.local_count = out_.local_blocks +
                     (spec_.gathers_block_sums() ? spec_.agreed_values() : 0);
  ENGINE_RETURN_IF_ERROR(writer_.AddBuffer("block_sums", COMMSCHED_F64,
                                           COMMSCHED_BOUND, out_.local_count,
                                           &out_.local_sums));
  if (spec_.gathers_block_sums()) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        "all_block_sums", COMMSCHED_F64, COMMSCHED_BOUND,
        out_.local_count * spec_.num_shards(), &out_.all_sums));
  }
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        "norm_total", COMMSCHED_F64, COMMSCHED_BOUND,
        1 + spec_.agreed_values() * spec_.num_shards(), &out_.total));
  }
  if (spec_.gathers_parts()) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer("norm_part", COMMSCHED_F64,
                                             COMMSCHED_BOUND,
                                             spec_.part_count(), &out_.part));
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        "norm_parts", COMMSCHED_F64, COMMSCHED_BOUND,
        spec_.part_count() * static_cast<uint64_t>(spec_.norm_members),
        &out_.parts));
  }
  return writer_.AddBuffer("step_control", COMMSCHED_F64, COMMSCHED_BOUND,
                           kStateDoubles, &out_.control);
}

Status NormBuilder::Add() {
  ENGINE_RETURN_IF_ERROR(AddExchange());
  commsched_buffer_id_t source = out_.local_sums;
  if (spec_.gathers_block_sums()) source = out_.all_sums;
  if (spec_.reduces_norm()) source = out_.total;
  std::vector<commsched_access_t> accesses = {
      Access(source, COMMSCHED_READ),
      Access(out_.control, COMMSCHED_READ_WRITE)};
  if (spec_.gathers_parts()) {
    ENGINE_RETURN_IF_ERROR(AddParts(source));
    accesses.push_back(Access(out_.parts, COMMSCHED_READ));
  }
  if (spec_.has_flags()) {
    ENGINE_RETURN_IF_ERROR(SendFlags());
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
Status NormBuilder::AddExchange() {
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

// Gathers one number of each part of the model, so that the ranks of all parts
// decide alike, and what its rank steps with.
Status NormBuilder::AddParts(commsched_buffer_id_t source) {
  ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
      "norm_part",
      {Access(source, COMMSCHED_READ), Access(out_.part, COMMSCHED_WRITE)},
      static_cast<double>(out_.local_blocks) * sizeof(double), &out_.add_part));
  GraphWriter::Collective gather;
  gather.input = Access(out_.part, COMMSCHED_READ);
  gather.output = Access(out_.parts, COMMSCHED_WRITE);
  ENGINE_RETURN_IF_ERROR(Group(&gather.group));
  return writer_.AddCollective("gather_norm_parts", gather);
}

// The group is added behind all others.
Status NormBuilder::Group(commsched_group_id_t* out_group) {
  if (group_ == kNoId) {
    ENGINE_RETURN_IF_ERROR(
        writer_.AddGroup("norm_parts", spec_.norm_members, &group_));
  }
  *out_group = group_;
  return Status();
}

// The minimum over the ranks: 1 where a gradient is absent on all of them, and
// less than 0 where one has cancelled the step, of which the ranks with other
// parts of the model hear, too.
Status NormBuilder::SendFlags() {
  ENGINE_RETURN_IF_ERROR(writer_.AddWordsAfter(
      out_.pass_ops.back().last(), "set_flags", out_.flags, &out_.set_flags));
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
  ENGINE_RETURN_IF_ERROR(Group(&reduction.group));
  return writer_.AddCollective("reduce_cancelled", reduction);
}

// Every bucket is stepped after it.
Status NormBuilder::AddFlags() {
  ENGINE_RETURN_IF_ERROR(SendFlags());
  return writer_.AddCompute("read_flags",
                            {Access(out_.flags, COMMSCHED_READ_WRITE)}, 0,
                            &out_.read_flags);
}

// The step of a bucket puts the rate there, and first reads what the gather of
// the step before has left: so long before that no step waits for a rate, and
// no op is added.
Status NormBuilder::AddRates() {
  if (spec_.gathers_rates()) {
    ENGINE_RETURN_IF_ERROR(
        AddRatesOf("gather_learning_rates", out_.rates, writer_.group()));
  }
  if (!spec_.gathers_part_rates()) return Status();
  commsched_group_id_t parts = kNoId;
  ENGINE_RETURN_IF_ERROR(Group(&parts));
  return AddRatesOf("gather_part_learning_rates", out_.part_rates, parts);
}

Status NormBuilder::AddRatesOf(const char* name, commsched_buffer_id_t rates,
                               commsched_group_id_t group) {
  GraphWriter::Collective gather;
  gather.input = Access(rates, COMMSCHED_READ);
  gather.input.region = COMMSCHED_SHARD;
  gather.input.group = group;
  gather.output = Access(rates, COMMSCHED_WRITE);
  gather.group = group;
  return writer_.AddCollective(name, gather);
}

}  // namespace commsched::engine
