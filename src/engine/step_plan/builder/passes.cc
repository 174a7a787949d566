// Buffers and passes; update.cc has what follows from the gradients.

#include <string>
#include <utility>

#include "engine/step_plan/builder/builder.h"
#include "engine/step_plan/builder/gradient_turns.h"

namespace commsched::engine {

Status StepBuilder::Build() {
  ENGINE_RETURN_IF_ERROR(writer_.Create(spec_.world));
  FindFirstUses();
  ENGINE_RETURN_IF_ERROR(AddBuffers());
  if (spec_.offloads) ENGINE_RETURN_IF_ERROR(staging_.AddFirstFetches());
  ENGINE_RETURN_IF_ERROR(AddPasses());
  if (spec_.needs_norm()) {
    ENGINE_RETURN_IF_ERROR(AddNorm());
  } else if (spec_.has_flags()) {
    ENGINE_RETURN_IF_ERROR(norm_.AddFlags());
  }
  ENGINE_RETURN_IF_ERROR(AddOptimizer());
  out_.graph = writer_.TakeGraph();
  return Status();
}

void StepBuilder::FindFirstUses() {
  std::vector<bool> used(num_buckets());
  for (size_t i = 0; i < passes_.size(); ++i) {
    for (uint32_t b : layout_.module_buckets[passes_[i].module]) {
      if (used[b]) continue;
      used[b] = true;
      if (layout_.buckets[b].frozen) continue;
      out_.first_use.push_back(b);
      if (spec_.offloads && spec_.state_count(layout_.buckets[b]) > 0) {
        out_.staged.push_back(b);
      }
      if (spec_.offloads_gradients_of(layout_.buckets[b])) {
        out_.staged_gradients.push_back(b);
      }
    }
  }
}

Status StepBuilder::AddBuffers() {
  out_.buckets.resize(num_buckets());
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    ENGINE_RETURN_IF_ERROR(AddBucketBuffers(b));
    current_.push_back(spec_.gathers(layout_.buckets[b])
                           ? kNoId
                           : out_.buckets[b].of(BufferKind::kParameters));
  }
  ENGINE_RETURN_IF_ERROR(staging_.AddBuffers());
  for (const Stay& stay : stays_) {
    Gathered gathered = {stay, kNoId};
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        Indexed(Indexed("gathered", stay.bucket).c_str(), stay.index),
        layout_.buckets[stay.bucket].dtype, COMMSCHED_OWNED,
        layout_.buckets[stay.bucket].count, &gathered.buffer,
        spec_.fixed_addresses ? stay.bucket + 1 : 0));
    out_.gathered.push_back(gathered);
  }
  ENGINE_RETURN_IF_ERROR(
      AddExchanges(exchanges_, &writer_, &out_.first_activation));
  return norm_.AddBuffers();
}

// One of each row of the bucket's table, or one for each micro-batch; of a
// single one the name does not say which. A reduction into a slot has nothing
// that is added there.
Status StepBuilder::AddBucketBuffers(uint32_t bucket) {
  for (const BucketBuffer& row :
       BuffersOfBucket(spec_, layout_.buckets[bucket])) {
    const std::string name = Indexed(row.name, bucket);
    for (uint32_t mb = 0; mb < (row.by_micro_batch ? spec_.micro_batches : 1);
         ++mb) {
      commsched_buffer_id_t& id =
          out_.buckets[bucket].all(row.kind).emplace_back(kNoId);
      if (row.kind == BufferKind::kSummand && row.by_micro_batch &&
          !IsAdded(bucket, windows_[bucket].IndexOf(mb))) {
        continue;
      }
      ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
          row.by_micro_batch ? Indexed(name.c_str(), mb) : name, row.dtype,
          row.ownership, row.count, &id));
    }
  }
  return Status();
}

Status StepBuilder::AddPasses() {
  out_.passes = passes_;
  out_.gradient_turns = FindGradientTurns(spec_, layout_, windows_, out_);
  for (uint32_t i = 0; i < passes_.size(); ++i) {
    const Pass& pass = passes_[i];
    const bool ends_micro_batch =
        i + 1 == passes_.size() ||
        passes_[i + 1].micro_batch != pass.micro_batch;
    ENGINE_RETURN_IF_ERROR(AddGathers(i));
    ENGINE_RETURN_IF_ERROR(AddTurns());
    PassOps ops;
    ENGINE_RETURN_IF_ERROR(AddAccumulations(pass, ops));
    ENGINE_RETURN_IF_ERROR(AddPass(pass, ops));
    out_.pass_ops.push_back(std::move(ops));
    ENGINE_RETURN_IF_ERROR(AddReductions(ends_micro_batch));
  }
  return AddTurns();
}

// Those that go out once `launch` passes have ended.
Status StepBuilder::AddGathers(uint32_t launch) {
  for (; next_gather_ < out_.gathered.size(); ++next_gather_) {
    const Gathered& gathered = out_.gathered[next_gather_];
    const Stay& stay = gathered.stay;
    if (stay.launch != launch) break;
    GraphWriter::Collective gather;
    gather.input = Access(out_.buckets[stay.bucket].of(BufferKind::kParameters),
                          COMMSCHED_READ);
    gather.output = Access(gathered.buffer, COMMSCHED_WRITE);
    if (launch > 0) gather.after = out_.pass_ops.back().last();
    ENGINE_RETURN_IF_ERROR(writer_.AddCollective(
        Indexed(Indexed("all_gather", stay.bucket).c_str(), stay.index),
        gather));
  }
  return Status();
}

std::vector<commsched_access_t> StepBuilder::PassAccesses(const Pass& pass,
                                                          PassOps& ops) {
  for (; next_used_ < out_.gathered.size(); ++next_used_) {
    const Gathered& gathered = out_.gathered[next_used_];
    if (gathered.stay.first != position()) break;
    current_[gathered.stay.bucket] = gathered.buffer;
  }
  std::vector<commsched_access_t> accesses;
  for (uint32_t b : layout_.module_buckets[pass.module]) {
    ops.values.push_back(current_[b]);
    if (ReadsValues(pass.kind)) {
      accesses.push_back(Access(current_[b], COMMSCHED_READ));
    }
    if (AddsGradients(pass.kind)) AddBackwardAccesses(b, pass, ops, accesses);
  }
  if (IsBackward(pass.kind) && spec_.scales_loss) {
    accesses.push_back(Access(out_.control, COMMSCHED_READ));
  }
  return accesses;
}

void StepBuilder::AddBackwardAccesses(
    uint32_t bucket, const Pass& pass, PassOps& ops,
    std::vector<commsched_access_t>& accesses) {
  if (layout_.buckets[bucket].frozen) {
    ops.gradients.push_back(kNoId);
    return;
  }
  const BucketIds& ids = out_.buckets[bucket];
  const bool first = windows_[bucket].Of(pass.micro_batch).first == position();
  if (first) ops.zeroed.push_back(bucket);
  ops.gradients.push_back(ids.of(BufferKind::kGradients, pass.micro_batch));
  accesses.push_back(Access(ops.gradients.back(),
                            first ? COMMSCHED_WRITE : COMMSCHED_READ_WRITE));
}

double StepBuilder::FlopsOf(const Pass& pass) const {
  const Module& module = modules_[pass.module];
  switch (pass.kind) {
    case PassKind::kForward:
    case PassKind::kRecompute:
    case PassKind::kNoGrad:
      return module.forward_flops;
    case PassKind::kBackward:
      return module.backward_flops;
    case PassKind::kBackwardInput:
    case PassKind::kBackwardWeight:
      return module.backward_flops / 2;
  }
  return 0;
}

// Each pass comes after the one before it: activations flow between them that
// the graph does not hold.
Status StepBuilder::AddPass(const Pass& pass, PassOps& ops) {
  const std::vector<commsched_access_t> accesses = PassAccesses(pass, ops);
  const Module& m = modules_[pass.module];
  const std::string name = std::string(OpName(pass.kind)) + "[" +
                           std::to_string(pass.micro_batch) + "]." +
                           PassName(m.name, pass.use);
  const commsched_op_id_t previous =
      out_.pass_ops.empty() ? kNoId : out_.pass_ops.back().last();
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name.c_str();
  desc.accesses = DataOf(accesses);
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  if (previous != kNoId) {
    desc.after = &previous;
    desc.num_after = 1;
  }
  desc.flops = FlopsOf(pass);
  // Its work is in ops of its own; without a cost it would be one of which
  // nothing is known.
  if (desc.flops == 0 && !m.steps[IsBackward(pass.kind) ? 1 : 0].empty()) {
    desc.cost_ns = 1;
  }
  ENGINE_RETURN_IF_ERROR(writer_.AddCompute(desc, &ops.op));
  for (uint32_t b : ops.zeroed) {
    commsched_op_id_t& first = out_.buckets[b].first_backward;
    if (first == kNoId) first = ops.op;
  }
  ENGINE_RETURN_IF_ERROR(AddInnerOps(name + ".", pass, ops));
  if (!AddsGradients(pass.kind)) return Status();
  return spec_.gradient_ready ? AddReady(pass, ops) : AddConversions(pass, ops);
}

// Adds an op for each bucket that no later pass adds to, last first, in which
// order they are sent: a schedule may need it. The pass reads its parameters
// until the last op.
Status StepBuilder::AddReady(const Pass& pass, PassOps& ops) {
  const std::string of =
      std::string("[").append(std::to_string(pass.micro_batch)).append("].");
  const commsched_op_id_t last = ops.last();
  std::vector<commsched_access_t> read;
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.after = &last;
  desc.num_after = 1;
  desc.cost_ns = 1;
  for (size_t i = ops.values.size(); i-- > 0;) {
    const uint32_t b = layout_.module_buckets[pass.module][i];
    if (ReadsValues(pass.kind)) {
      read.push_back(Access(ops.values[i], COMMSCHED_READ));
    }
    if (layout_.buckets[b].frozen) continue;
    if (windows_[b].Of(pass.micro_batch).last != position()) continue;
    const std::string name = "ready" + of + std::to_string(b);
    const commsched_access_t gradients =
        Access(ops.gradients[i], COMMSCHED_READ_WRITE);
    desc.name = name.c_str();
    desc.accesses = &gradients;
    desc.num_accesses = 1;
    ops.ready.push_back({b, kNoId});
    ENGINE_RETURN_IF_ERROR(writer_.AddCompute(desc, &ops.ready.back().op));
    ENGINE_RETURN_IF_ERROR(AddConversionsOf(b, pass.micro_batch, ops));
  }
  if (ops.ready.empty()) return Status();
  const std::string name = std::string(OpName(pass.kind)) + "_end" + of +
                           PassName(modules_[pass.module].name, pass.use);
  desc.name = name.c_str();
  desc.accesses = DataOf(read);
  desc.num_accesses = static_cast<uint32_t>(read.size());
  return writer_.AddCompute(desc, &ops.tail);
}

Status StepBuilder::AddInnerOps(const std::string& prefix, const Pass& pass,
                                PassOps& ops) {
  StepContext context;
  context.prefix = prefix;
  context.first_activation = out_.first_activation;
  context.after = ops.op;
  context.kind = pass.kind;
  context.add_parameters = [&](const ModuleStep& step,
                               std::vector<commsched_access_t>* accesses) {
    AddParameterAccesses(step, pass.micro_batch, accesses);
  };
  return AddModuleSteps(
      modules_[pass.module].steps[IsBackward(pass.kind) ? 1 : 0],
      std::move(context), &writer_, &ops.inner);
}

// Each bucket once.
void StepBuilder::AddParameterAccesses(
    const ModuleStep& step, uint32_t micro_batch,
    std::vector<commsched_access_t>* accesses) const {
  for (uint32_t b : layout_.BucketsOf(step.parameters)) {
    accesses->push_back(Access(current_[b], COMMSCHED_READ));
  }
  for (uint32_t b : layout_.BucketsOf(step.gradients)) {
    accesses->push_back(
        Access(out_.buckets[b].of(BufferKind::kGradients, micro_batch),
               COMMSCHED_READ_WRITE));
  }
}

Status BuildStepGraph(const StepSpec& spec, const std::vector<Module>& modules,
                      const Exchanges& exchanges, const Layout& layout,
                      const std::vector<Pass>& passes,
                      const std::vector<Stay>& stays, StepGraph* out_graph) {
  StepGraph graph;
  GraphWriter writer;
  ENGINE_RETURN_IF_ERROR(StepBuilder(spec, modules, exchanges, layout, passes,
                                     stays, &writer, &graph)
                             .Build());
  *out_graph = std::move(graph);
  return Status();
}

}  // namespace commsched::engine
