#include "build_graph.h"

#include <algorithm>
#include <string>
#include <utility>

namespace commsched::engine {
namespace {

// Bytes that the optimizer moves per element: reads and writes weights and two
// moments, reads the gradient.
constexpr double kAdamWBytesPerElement = 28;

commsched_access_t Access(commsched_buffer_id_t buffer,
                          commsched_access_mode_t mode) {
  commsched_access_t access = {};
  access.buffer = buffer;
  access.mode = mode;
  access.region = COMMSCHED_WHOLE;
  return access;
}

std::string Indexed(const char* name, uint64_t index) {
  return std::string(name) + "." + std::to_string(index);
}

class Builder {
 public:
  Builder(const StepSpec& spec, const std::vector<Module>& modules,
          const Layout& layout, StepGraph* out)
      : spec_(spec), modules_(modules), layout_(layout), out_(*out) {}

  Status Build();

 private:
  Status AddBuffer(const std::string& name, commsched_dtype_t dtype,
                   commsched_ownership_t ownership, uint64_t count,
                   commsched_buffer_id_t* out_id);
  Status AddBuffers();
  Status AddNormBuffers();
  Status AddModuleOp(uint32_t module, uint32_t micro_batch, bool backward);
  Status AddModuleOps();
  Status AddCompute(const std::string& name,
                    const std::vector<commsched_access_t>& accesses,
                    double bytes, commsched_op_id_t* out_op);
  Status AddCollective(const std::string& name, commsched_collective_t kind,
                       commsched_reduce_op_t reduce_op,
                       const commsched_access_t& input,
                       const commsched_access_t& output);
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
      access.group = group_;
    }
    return access;
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
  commsched_graph_t* graph() { return out_.graph.get(); }

  const StepSpec& spec_;
  const std::vector<Module>& modules_;
  const Layout& layout_;
  StepGraph& out_;
  commsched_group_id_t group_ = 0;
};

Status Builder::Build() {
  commsched_graph_t* graph = nullptr;
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_graph_create(&graph), "creating the graph"));
  out_.graph.reset(graph);
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_graph_add_group(graph, "dp_shard", spec_.world, &group_),
      "adding the group"));
  ENGINE_RETURN_IF_ERROR(AddBuffers());
  ENGINE_RETURN_IF_ERROR(AddModuleOps());
  ENGINE_RETURN_IF_ERROR(AddReductions());
  if (spec_.clip) ENGINE_RETURN_IF_ERROR(AddNorm());
  return AddOptimizer();
}

Status Builder::AddBuffer(const std::string& name, commsched_dtype_t dtype,
                          commsched_ownership_t ownership, uint64_t count,
                          commsched_buffer_id_t* out_id) {
  commsched_buffer_desc_t desc = commsched_buffer_desc_init();
  desc.name = name.c_str();
  desc.dtype = dtype;
  desc.ownership = ownership;
  desc.count = count;
  return Status::FromCall(commsched_graph_add_buffer(graph(), &desc, out_id),
                          "adding a buffer");
}

Status Builder::AddBuffers() {
  out_.buckets.resize(num_buckets());
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    BucketIds& ids = out_.buckets[b];
    const uint64_t count = layout_.buckets[b].count;
    ENGINE_RETURN_IF_ERROR(AddBuffer(Indexed("parameters", b), COMMSCHED_F32,
                                     COMMSCHED_BOUND, count, &ids.parameters));
    ENGINE_RETURN_IF_ERROR(
        AddBuffer(Indexed("gradients", b), COMMSCHED_F32,
                  spec_.owned_gradients() ? COMMSCHED_OWNED : COMMSCHED_BOUND,
                  count, &ids.gradients));
    if (spec_.owned_gradients()) {
      ENGINE_RETURN_IF_ERROR(AddBuffer(Indexed("gradient_shard", b),
                                       COMMSCHED_F32, COMMSCHED_BOUND,
                                       ShardCount(b), &ids.shard));
    }
    ENGINE_RETURN_IF_ERROR(AddBuffer(Indexed("adamw_state", b), COMMSCHED_F32,
                                     COMMSCHED_BOUND, 2 * ShardCount(b),
                                     &ids.state));
  }
  return spec_.clip ? AddNormBuffers() : Status();
}

Status Builder::AddNormBuffers() {
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    out_.sums_offset.push_back(out_.local_blocks);
    out_.local_blocks += ShardCount(b) / kBlockElements;
  }
  ENGINE_RETURN_IF_ERROR(AddBuffer("block_sums", COMMSCHED_F64, COMMSCHED_BOUND,
                                   out_.local_blocks, &out_.local_sums));
  if (spec_.gathers_block_sums()) {
    ENGINE_RETURN_IF_ERROR(
        AddBuffer("all_block_sums", COMMSCHED_F64, COMMSCHED_BOUND,
                  out_.local_blocks * spec_.num_shards(), &out_.all_sums));
  }
  if (spec_.reduces_norm()) {
    ENGINE_RETURN_IF_ERROR(AddBuffer("norm_total", COMMSCHED_F64,
                                     COMMSCHED_BOUND, 1, &out_.total));
  }
  return AddBuffer("clip_factor", COMMSCHED_F64, COMMSCHED_BOUND, 1,
                   &out_.factor);
}

Status Builder::AddModuleOps() {
  const uint32_t num_modules = static_cast<uint32_t>(modules_.size());
  for (uint32_t mb = 0; mb < spec_.micro_batches; ++mb) {
    for (uint32_t m = 0; m < num_modules; ++m) {
      ENGINE_RETURN_IF_ERROR(AddModuleOp(m, mb, /*backward=*/false));
    }
    for (uint32_t m = num_modules; m-- > 0;) {
      ENGINE_RETURN_IF_ERROR(AddModuleOp(m, mb, /*backward=*/true));
    }
  }
  return Status();
}

// Each op comes after the one before it: activations flow between them that
// the graph does not hold.
Status Builder::AddModuleOp(uint32_t module, uint32_t micro_batch,
                            bool backward) {
  ModuleOp module_op;
  module_op.module = module;
  module_op.micro_batch = micro_batch;
  module_op.backward = backward;
  std::vector<commsched_access_t> accesses;
  for (uint32_t b : layout_.module_buckets[module]) {
    BucketIds& ids = out_.buckets[b];
    accesses.push_back(Access(ids.parameters, COMMSCHED_READ));
    if (!backward) continue;
    const bool first = ids.first_backward == kNoId;
    if (first) module_op.zeroed.push_back(b);
    accesses.push_back(
        Access(ids.gradients, first ? COMMSCHED_WRITE : COMMSCHED_READ_WRITE));
  }
  const Module& m = modules_[module];
  const std::string name = std::string(backward ? "backward" : "forward") +
                           "[" + std::to_string(micro_batch) + "]." + m.name;
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name.c_str();
  desc.accesses = accesses.data();
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  if (!out_.module_ops.empty()) {
    desc.after = &out_.module_ops.back().op;
    desc.num_after = 1;
  }
  desc.micro_batch = micro_batch;
  desc.last_backward = backward && micro_batch + 1 == spec_.micro_batches;
  desc.flops = backward ? m.backward_flops : m.forward_flops;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_graph_add_compute(graph(), &desc, &module_op.op),
      "adding a module's op"));
  for (uint32_t b : module_op.zeroed) {
    out_.buckets[b].first_backward = module_op.op;
  }
  out_.module_ops.push_back(std::move(module_op));
  return Status();
}

Status Builder::AddCompute(const std::string& name,
                           const std::vector<commsched_access_t>& accesses,
                           double bytes, commsched_op_id_t* out_op) {
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name.c_str();
  desc.accesses = accesses.data();
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  desc.bytes = bytes;
  return Status::FromCall(commsched_graph_add_compute(graph(), &desc, out_op),
                          "adding an op");
}

Status Builder::AddCollective(const std::string& name,
                              commsched_collective_t kind,
                              commsched_reduce_op_t reduce_op,
                              const commsched_access_t& input,
                              const commsched_access_t& output) {
  commsched_collective_desc_t desc = commsched_collective_desc_init();
  desc.name = name.c_str();
  desc.kind = kind;
  desc.reduce_op = reduce_op;
  desc.group = group_;
  desc.input = input;
  desc.output = output;
  commsched_op_id_t op = kNoId;
  return Status::FromCall(commsched_graph_add_collective(graph(), &desc, &op),
                          "adding a collective");
}

// Declared in the order in which backward completes the buckets: last first.
Status Builder::AddReductions() {
  for (uint32_t b = num_buckets(); b-- > 0;) {
    const BucketIds& ids = out_.buckets[b];
    const commsched_access_t all = Access(ids.gradients, COMMSCHED_READ);
    if (!sharded()) {
      ENGINE_RETURN_IF_ERROR(AddCollective(Indexed("all_reduce", b),
                                           COMMSCHED_ALL_REDUCE, COMMSCHED_AVG,
                                           all, all));
      continue;
    }
    const commsched_access_t shard = spec_.owned_gradients()
                                         ? Access(ids.shard, COMMSCHED_WRITE)
                                         : Part(ids.gradients, COMMSCHED_WRITE);
    ENGINE_RETURN_IF_ERROR(AddCollective(Indexed("reduce_scatter", b),
                                         COMMSCHED_REDUCE_SCATTER,
                                         COMMSCHED_AVG, all, shard));
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
    ENGINE_RETURN_IF_ERROR(AddCompute(
        Indexed("squares", b), {ReducedGradients(out_.buckets[b]), sums},
        static_cast<double>(ShardCount(b)) * sizeof(float),
        &out_.buckets[b].squares));
  }
  ENGINE_RETURN_IF_ERROR(AddNormExchange());
  commsched_buffer_id_t source = out_.local_sums;
  if (spec_.gathers_block_sums()) source = out_.all_sums;
  if (spec_.reduces_norm()) source = out_.total;
  return AddCompute(
      "norm",
      {Access(source, COMMSCHED_READ), Access(out_.factor, COMMSCHED_WRITE)},
      static_cast<double>(out_.local_blocks) * sizeof(double), &out_.norm);
}

// Block sums of all ranks, so that each adds them in one order whatever the
// buckets and the stage; or, where bits may differ, one number.
Status Builder::AddNormExchange() {
  if (spec_.gathers_block_sums()) {
    return AddCollective("gather_block_sums", COMMSCHED_ALL_GATHER,
                         COMMSCHED_SUM, Access(out_.local_sums, COMMSCHED_READ),
                         Access(out_.all_sums, COMMSCHED_WRITE));
  }
  if (!spec_.reduces_norm()) return Status();
  ENGINE_RETURN_IF_ERROR(
      AddCompute("local_total",
                 {Access(out_.local_sums, COMMSCHED_READ),
                  Access(out_.total, COMMSCHED_WRITE)},
                 static_cast<double>(out_.local_blocks) * sizeof(double),
                 &out_.local_total));
  return AddCollective("reduce_norm", COMMSCHED_ALL_REDUCE, COMMSCHED_SUM,
                       Access(out_.total, COMMSCHED_READ),
                       Access(out_.total, COMMSCHED_WRITE));
}

Status Builder::AddOptimizer() {
  for (uint32_t b = 0; b < num_buckets(); ++b) {
    BucketIds& ids = out_.buckets[b];
    std::vector<commsched_access_t> accesses = {
        ReducedGradients(ids), Part(ids.parameters, COMMSCHED_READ_WRITE),
        Access(ids.state, COMMSCHED_READ_WRITE)};
    if (spec_.clip) accesses.push_back(Access(out_.factor, COMMSCHED_READ));
    ENGINE_RETURN_IF_ERROR(
        AddCompute(Indexed("adamw", b), accesses,
                   static_cast<double>(ShardCount(b)) * kAdamWBytesPerElement,
                   &ids.optimizer));
    if (!sharded()) continue;
    ENGINE_RETURN_IF_ERROR(
        AddCollective(Indexed("all_gather", b), COMMSCHED_ALL_GATHER,
                      COMMSCHED_SUM, Part(ids.parameters, COMMSCHED_READ),
                      Access(ids.parameters, COMMSCHED_WRITE)));
  }
  return Status();
}

}  // namespace

Status BuildStepGraph(const StepSpec& spec, const std::vector<Module>& modules,
                      const Layout& layout, StepGraph* out_graph) {
  StepGraph graph;
  ENGINE_RETURN_IF_ERROR(Builder(spec, modules, layout, &graph).Build());
  *out_graph = std::move(graph);
  return Status();
}

}  // namespace commsched::engine
