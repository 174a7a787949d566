#include "build_graph.h"

#include <algorithm>
#include <string>
#include <utility>

namespace commsched::engine {
namespace {

// Bytes that the optimizer moves per element: reads and writes weights and two
// moments, reads the gradient.
constexpr double kAdamWBytesPerElement = 28;

class Builder {
 public:
  Builder(const StepSpec& spec, const std::vector<Module>& modules,
          const Layout& layout, const std::vector<Stay>& stays, StepGraph* out)
      : spec_(spec),
        modules_(modules),
        layout_(layout),
        stays_(stays),
        out_(*out) {}

  Status Build();

 private:
  Status AddBuffers();
  Status AddBucketBuffers(uint32_t bucket);
  Status AddParameterBuffer(uint32_t bucket);
  Status AddNormBuffers();
  Status AddModuleOps();
  Status AddModuleOp(ModuleOp op);
  Status AddGathers(uint32_t launch);
  std::vector<commsched_access_t> ModuleAccesses(ModuleOp& op);
  Status AddReductions();
  Status AddNorm();
  Status AddNormExchange();
  Status AddOptimizer();

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
  // The weights that it steps.
  commsched_access_t Weights(uint32_t bucket) const {
    const BucketIds& ids = out_.buckets[bucket];
    return spec_.gathers(layout_.buckets[bucket])
               ? Access(ids.parameter_shard, COMMSCHED_READ_WRITE)
               : Part(ids.parameters, COMMSCHED_READ_WRITE);
  }
  // The reduced gradients that this rank steps with.
  commsched_access_t ReducedGradients(const BucketIds& ids) const {
    return spec_.owned_gradients() ? Access(ids.shard, COMMSCHED_READ)
                                   : Part(ids.gradients, COMMSCHED_READ);
  }
  uint64_t ShardCount(uint32_t bucket) const {
    return layout_.buckets[bucket].count / spec_.num_shards();
  }
  uint32_t num_buckets() const {
    return static_cast<uint32_t>(layout_.buckets.size());
  }

  const StepSpec& spec_;
  const std::vector<Module>& modules_;
  const Layout& layout_;
  const std::vector<Stay>& stays_;
  StepGraph& out_;
  GraphWriter writer_;
  // By bucket: the buffer that holds its parameters for the next module op.
  std::vector<commsched_buffer_id_t> current_;
  // In out_.gathered, which is in order of launches and of first uses.
  size_t next_gather_ = 0;
  size_t next_used_ = 0;
};

Status Builder::Build() {
  ENGINE_RETURN_IF_ERROR(writer_.Create(spec_.world));
  ENGINE_RETURN_IF_ERROR(AddBuffers());
  ENGINE_RETURN_IF_ERROR(AddModuleOps());
  ENGINE_RETURN_IF_ERROR(AddReductions());
  if (spec_.clip) ENGINE_RETURN_IF_ERROR(AddNorm());
  ENGINE_RETURN_IF_ERROR(AddOptimizer());
  out_.graph = writer_.TakeGraph();
  return Status();
}

Status Builder::AddBuffers() {
  out_.buckets.resize(num_buckets());
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    ENGINE_RETURN_IF_ERROR(AddBucketBuffers(b));
    current_.push_back(out_.buckets[b].parameters);
  }
  for (const Stay& stay : stays_) {
    Gathered gathered = {stay, kNoId};
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        Indexed(Indexed("gathered", stay.bucket).c_str(), stay.index),
        COMMSCHED_F32, COMMSCHED_OWNED, layout_.buckets[stay.bucket].count,
        &gathered.buffer));
    out_.gathered.push_back(gathered);
  }
  return spec_.clip ? AddNormBuffers() : Status();
}

Status Builder::AddParameterBuffer(uint32_t bucket) {
  BucketIds& ids = out_.buckets[bucket];
  if (spec_.gathers(layout_.buckets[bucket])) {
    return writer_.AddBuffer(Indexed("parameter_shard", bucket), COMMSCHED_F32,
                             COMMSCHED_BOUND, ShardCount(bucket),
                             &ids.parameter_shard);
  }
  return writer_.AddBuffer(Indexed("parameters", bucket), COMMSCHED_F32,
                           COMMSCHED_BOUND, layout_.buckets[bucket].count,
                           &ids.parameters);
}

Status Builder::AddBucketBuffers(uint32_t bucket) {
  BucketIds& ids = out_.buckets[bucket];
  ENGINE_RETURN_IF_ERROR(AddParameterBuffer(bucket));
  ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
      Indexed("gradients", bucket), COMMSCHED_F32,
      spec_.owned_gradients() ? COMMSCHED_OWNED : COMMSCHED_BOUND,
      layout_.buckets[bucket].count, &ids.gradients));
  if (spec_.owned_gradients()) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(Indexed("gradient_shard", bucket),
                                             COMMSCHED_F32, COMMSCHED_BOUND,
                                             ShardCount(bucket), &ids.shard));
  }
  return writer_.AddBuffer(Indexed("adamw_state", bucket), COMMSCHED_F32,
                           COMMSCHED_BOUND, 2 * ShardCount(bucket), &ids.state);
}

Status Builder::AddNormBuffers() {
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    out_.sums_offset.push_back(out_.local_blocks);
    out_.local_blocks += ShardCount(b) / kBlockElements;
  }
  ENGINE_RETURN_IF_ERROR(writer_.AddBuffer("block_sums", COMMSCHED_F64,
                                           COMMSCHED_BOUND, out_.local_blocks,
                                           &out_.local_sums));
  if (spec_.gathers_block_sums()) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer(
        "all_block_sums", COMMSCHED_F64, COMMSCHED_BOUND,
        out_.local_blocks * spec_.num_shards(), &out_.all_sums));
  }
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer("norm_total", COMMSCHED_F64,
                                             COMMSCHED_BOUND, 1, &out_.total));
  }
  return writer_.AddBuffer("clip_factor", COMMSCHED_F64, COMMSCHED_BOUND, 1,
                           &out_.factor);
}

Status Builder::AddModuleOps() {
  for (ModuleOp& op : ModuleOrder(static_cast<uint32_t>(modules_.size()),
                                  spec_.micro_batches)) {
    ENGINE_RETURN_IF_ERROR(
        AddGathers(static_cast<uint32_t>(out_.module_ops.size())));
    ENGINE_RETURN_IF_ERROR(AddModuleOp(std::move(op)));
  }
  return Status();
}

// Those that go out once `launch` module ops have ended.
Status Builder::AddGathers(uint32_t launch) {
  for (; next_gather_ < out_.gathered.size(); ++next_gather_) {
    const Gathered& gathered = out_.gathered[next_gather_];
    const Stay& stay = gathered.stay;
    if (stay.launch != launch) break;
    GraphWriter::Collective gather;
    gather.input =
        Access(out_.buckets[stay.bucket].parameter_shard, COMMSCHED_READ);
    gather.output = Access(gathered.buffer, COMMSCHED_WRITE);
    if (launch > 0) gather.after = out_.module_ops.back().op;
    ENGINE_RETURN_IF_ERROR(writer_.AddCollective(
        Indexed(Indexed("all_gather", stay.bucket).c_str(), stay.index),
        gather));
  }
  return Status();
}

std::vector<commsched_access_t> Builder::ModuleAccesses(ModuleOp& op) {
  const auto position = static_cast<uint32_t>(out_.module_ops.size());
  for (; next_used_ < out_.gathered.size(); ++next_used_) {
    const Gathered& gathered = out_.gathered[next_used_];
    if (gathered.stay.first != position) break;
    current_[gathered.stay.bucket] = gathered.buffer;
  }
  std::vector<commsched_access_t> accesses;
  for (uint32_t b : layout_.module_buckets[op.module]) {
    const BucketIds& ids = out_.buckets[b];
    op.values.push_back(current_[b]);
    accesses.push_back(Access(current_[b], COMMSCHED_READ));
    if (!op.backward) continue;
    const bool first = ids.first_backward == kNoId;
    if (first) op.zeroed.push_back(b);
    accesses.push_back(
        Access(ids.gradients, first ? COMMSCHED_WRITE : COMMSCHED_READ_WRITE));
  }
  return accesses;
}

// Each op comes after the one before it: activations flow between them that
// the graph does not hold.
Status Builder::AddModuleOp(ModuleOp op) {
  const std::vector<commsched_access_t> accesses = ModuleAccesses(op);
  const Module& m = modules_[op.module];
  const std::string name = std::string(op.backward ? "backward" : "forward") +
                           "[" + std::to_string(op.micro_batch) + "]." + m.name;
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name.c_str();
  desc.accesses = accesses.data();
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  if (!out_.module_ops.empty()) {
    desc.after = &out_.module_ops.back().op;
    desc.num_after = 1;
  }
  desc.micro_batch = op.micro_batch;
  desc.last_backward = op.backward && op.micro_batch + 1 == spec_.micro_batches;
  desc.flops = op.backward ? m.backward_flops : m.forward_flops;
  ENGINE_RETURN_IF_ERROR(writer_.AddCompute(desc, &op.op));
  for (uint32_t b : op.zeroed) out_.buckets[b].first_backward = op.op;
  out_.module_ops.push_back(std::move(op));
  return Status();
}

// Declared in the order in which backward completes the buckets: last first.
Status Builder::AddReductions() {
  for (uint32_t b = num_buckets(); b-- > 0;) {
    const BucketIds& ids = out_.buckets[b];
    const commsched_access_t all = Access(ids.gradients, COMMSCHED_READ);
    if (!sharded()) {
      ENGINE_RETURN_IF_ERROR(writer_.AddCollective(
          Indexed("all_reduce", b),
          {COMMSCHED_ALL_REDUCE, COMMSCHED_AVG, all, all}));
      continue;
    }
    const commsched_access_t shard = spec_.owned_gradients()
                                         ? Access(ids.shard, COMMSCHED_WRITE)
                                         : Part(ids.gradients, COMMSCHED_WRITE);
    ENGINE_RETURN_IF_ERROR(writer_.AddCollective(
        Indexed("reduce_scatter", b),
        {COMMSCHED_REDUCE_SCATTER, COMMSCHED_AVG, all, shard}));
  }
  return Status();
}

// The squares in the order in which the reductions arrive.
Status Builder::AddNorm() {
  for (uint32_t b = num_buckets(); b-- > 0;) {
    commsched_access_t sums = Access(out_.local_sums, COMMSCHED_WRITE);
    sums.region = COMMSCHED_RANGE;
    sums.offset = out_.sums_offset[b];
    sums.count = ShardCount(b) / kBlockElements;
    ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
        Indexed("squares", b), {ReducedGradients(out_.buckets[b]), sums},
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
Status Builder::AddNormExchange() {
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

Status Builder::AddOptimizer() {
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    BucketIds& ids = out_.buckets[b];
    std::vector<commsched_access_t> accesses = {
        ReducedGradients(ids), Weights(b),
        Access(ids.state, COMMSCHED_READ_WRITE)};
    if (spec_.clip) accesses.push_back(Access(out_.factor, COMMSCHED_READ));
    ENGINE_RETURN_IF_ERROR(writer_.AddCompute(
        Indexed("adamw", b), accesses,
        static_cast<double>(ShardCount(b)) * kAdamWBytesPerElement,
        &ids.optimizer));
    if (!sharded() || spec_.gathers(layout_.buckets[b])) continue;
    ENGINE_RETURN_IF_ERROR(writer_.AddCollective(
        Indexed("all_gather", b), {COMMSCHED_ALL_GATHER, COMMSCHED_SUM,
                                   Part(ids.parameters, COMMSCHED_READ),
                                   Access(ids.parameters, COMMSCHED_WRITE)}));
  }
  return Status();
}

}  // namespace

std::vector<ModuleOp> ModuleOrder(uint32_t num_modules,
                                  uint32_t micro_batches) {
  std::vector<ModuleOp> order;
  const auto add = [&](uint32_t module, uint32_t micro_batch, bool backward) {
    ModuleOp& op = order.emplace_back();
    op.module = module;
    op.micro_batch = micro_batch;
    op.backward = backward;
  };
  for (uint32_t mb = 0; mb < micro_batches; ++mb) {
    for (uint32_t m = 0; m < num_modules; ++m) add(m, mb, /*backward=*/false);
    for (uint32_t m = num_modules; m-- > 0;) add(m, mb, /*backward=*/true);
  }
  return order;
}

Status BuildStepGraph(const StepSpec& spec, const std::vector<Module>& modules,
                      const Layout& layout, const std::vector<Stay>& stays,
                      StepGraph* out_graph) {
  StepGraph graph;
  ENGINE_RETURN_IF_ERROR(Builder(spec, modules, layout, stays, &graph).Build());
  *out_graph = std::move(graph);
  return Status();
}

}  // namespace commsched::engine
