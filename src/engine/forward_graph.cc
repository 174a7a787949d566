#include "forward_graph.h"

#include <algorithm>
#include <string>
#include <utility>

namespace commsched::engine {
namespace {

// The memory of a stay, of which the planner does not know that others have it
// before or afterwards.
struct Place {
  Stay stay;
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  commsched_buffer_id_t buffer = kNoId;

  bool Overlaps(const Place& other) const {
    return begin < other.end && other.begin < end;
  }
};

class Builder {
 public:
  Builder(const StepSpec& spec, const std::vector<Module>& modules,
          const Exchanges& exchanges, const Layout& layout,
          const Sequence& sequence, const StepGraph& step,
          const ForwardMemory& memory, ForwardGraph* out)
      : spec_(spec),
        modules_(modules),
        exchanges_(exchanges),
        layout_(layout),
        sequence_(sequence),
        step_(step),
        memory_(memory),
        out_(*out),
        shards_(layout.buckets.size(), kNoId) {}

  Status Build() {
    ENGINE_RETURN_IF_ERROR(writer_.Create(spec_.world));
    ENGINE_RETURN_IF_ERROR(AddShards());
    ENGINE_RETURN_IF_ERROR(AddPlaces());
    ENGINE_RETURN_IF_ERROR(AddActivations());
    WaitForMemory();
    ENGINE_RETURN_IF_ERROR(AddOps());
    ENGINE_RETURN_IF_ERROR(AddEdgesToNextPass());
    out_.graph = writer_.TakeGraph();
    return Status();
  }

 private:
  Status AddBound(const std::string& name, std::byte* address, uint64_t count,
                  commsched_buffer_id_t* out_id) {
    const commsched_dtype_t dtype = spec_.precision.parameters;
    ENGINE_RETURN_IF_ERROR(
        writer_.AddBuffer(name, dtype, COMMSCHED_BOUND, count, out_id));
    commsched_binding_t binding = {};
    binding.buffer = *out_id;
    binding.address = address;
    binding.bytes = count * SizeOf(dtype);
    out_.bindings.push_back(binding);
    return Status();
  }

  Status AddShards() {
    for (size_t b = 0; b < shards_.size(); ++b) {
      if (memory_.shards[b] == nullptr) continue;
      ENGINE_RETURN_IF_ERROR(
          AddBound(Indexed("parameter_shard", b), memory_.shards[b],
                   layout_.buckets[b].count / spec_.num_shards(), &shards_[b]));
    }
    return Status();
  }

  // The stays that begin in the first forward.
  Status AddPlaces() {
    for (size_t i = 0; i < step_.gathered.size(); ++i) {
      const Stay& stay = step_.gathered[i].stay;
      if (stay.first >= sequence_.size()) continue;
      const uint64_t count = layout_.buckets[stay.bucket].count;
      Place place = {
          stay, memory_.gathered[i],
          memory_.gathered[i] + count * SizeOf(spec_.precision.parameters),
          kNoId};
      ENGINE_RETURN_IF_ERROR(AddBound(
          Indexed(Indexed("gathered", stay.bucket).c_str(), stay.index),
          memory_.gathered[i], count, &place.buffer));
      places_.push_back(place);
    }
    return Status();
  }

  Status AddActivations() {
    ENGINE_RETURN_IF_ERROR(
        AddExchanges(exchanges_, &writer_, &first_activation_));
    for (size_t i = 0; i < exchanges_.activations.size(); ++i) {
      out_.bindings.push_back(
          BindingOf(exchanges_.activations[i],
                    first_activation_ + static_cast<uint32_t>(i)));
    }
    return Status();
  }

  // The step's plan may have launched a gather later than asked for, and given
  // it memory that was in use until then. Stays that share memory do not meet,
  // so the one that begins first also ends first.
  void WaitForMemory() {
    for (size_t i = 0; i < places_.size(); ++i) {
      Stay& stay = places_[i].stay;
      for (size_t before = 0; before < i; ++before) {
        if (!places_[i].Overlaps(places_[before])) continue;
        stay.launch = std::max(stay.launch, places_[before].stay.last + 1);
      }
    }
    std::stable_sort(places_.begin(), places_.end(),
                     [](const Place& a, const Place& b) {
                       return a.stay.launch < b.stay.launch;
                     });
  }

  Status AddOps() {
    std::vector<commsched_buffer_id_t> values(layout_.buckets.size(), kNoId);
    size_t next = 0;
    for (uint32_t i = 0; i < sequence_.size(); ++i) {
      for (; next < places_.size() && places_[next].stay.launch == i; ++next) {
        ENGINE_RETURN_IF_ERROR(AddGather(places_[next]));
      }
      for (const Place& place : places_) {
        if (place.stay.first == i) values[place.stay.bucket] = place.buffer;
      }
      ENGINE_RETURN_IF_ERROR(AddForward(step_.module_ops[i], values));
    }
    return Status();
  }

  Status AddGather(const Place& place) {
    const Stay& stay = place.stay;
    GraphWriter::Collective gather;
    gather.input = Access(shards_[stay.bucket], COMMSCHED_READ);
    gather.output = Access(place.buffer, COMMSCHED_WRITE);
    if (stay.launch > 0) gather.after = out_.module_ops.back().last();
    return writer_.AddCollective(
        Indexed(Indexed("all_gather", stay.bucket).c_str(), stay.index), gather,
        &gathers_.emplace_back());
  }

  Status AddForward(const ModuleOp& of_step,
                    const std::vector<commsched_buffer_id_t>& values) {
    const Module& module = modules_[of_step.module];
    std::vector<commsched_access_t> accesses;
    for (uint32_t b : layout_.module_buckets[of_step.module]) {
      if (values[b] == kNoId) continue;  // resident
      accesses.push_back(Access(values[b], COMMSCHED_READ));
    }
    const std::string name = "forward." + PassName(module.name, of_step.pass);
    commsched_compute_desc_t desc = commsched_compute_desc_init();
    desc.name = name.c_str();
    desc.accesses = accesses.data();
    desc.num_accesses = static_cast<uint32_t>(accesses.size());
    commsched_op_id_t previous = kNoId;
    if (!out_.module_ops.empty()) {
      previous = out_.module_ops.back().last();
      desc.after = &previous;
      desc.num_after = 1;
    }
    desc.flops = module.forward_flops;
    ModuleOp op;
    op.module = of_step.module;
    op.forward = of_step.forward;
    ENGINE_RETURN_IF_ERROR(writer_.AddCompute(desc, &op.op));
    StepContext context;
    context.prefix = name + ".";
    context.first_activation = first_activation_;
    context.after = op.op;
    context.add_parameters = [&](const ModuleStep& step,
                                 std::vector<commsched_access_t>* out) {
      for (uint32_t b : layout_.BucketsOf(step.parameters)) {
        if (values[b] == kNoId) continue;  // resident
        out->push_back(Access(values[b], COMMSCHED_READ));
      }
    };
    ENGINE_RETURN_IF_ERROR(AddModuleSteps(module.steps[0], std::move(context),
                                          &writer_, &op.inner));
    out_.module_ops.push_back(std::move(op));
    return Status();
  }

  // Memory is gathered into again only when the last pass is over.
  Status AddEdgesToNextPass() {
    for (commsched_op_id_t gather : gathers_) {
      ENGINE_RETURN_IF_ERROR(Status::FromCall(
          commsched_graph_add_edge(writer_.graph(),
                                   out_.module_ops.back().last(), gather,
                                   /*distance=*/1),
          "adding an edge"));
    }
    return Status();
  }

  const StepSpec& spec_;
  const std::vector<Module>& modules_;
  const Exchanges& exchanges_;
  const Layout& layout_;
  const Sequence& sequence_;
  const StepGraph& step_;
  const ForwardMemory& memory_;
  ForwardGraph& out_;
  GraphWriter writer_;
  std::vector<commsched_buffer_id_t> shards_;  // By bucket.
  std::vector<Place> places_;
  std::vector<commsched_op_id_t> gathers_;
  commsched_buffer_id_t first_activation_ = 0;
};

}  // namespace

Status BuildForwardGraph(const StepSpec& spec,
                         const std::vector<Module>& modules,
                         const Exchanges& exchanges, const Layout& layout,
                         const Sequence& sequence, const StepGraph& step,
                         const ForwardMemory& memory, ForwardGraph* out_graph) {
  ForwardGraph graph;
  ENGINE_RETURN_IF_ERROR(
      Builder(spec, modules, exchanges, layout, sequence, step, memory, &graph)
          .Build());
  *out_graph = std::move(graph);
  return Status();
}

}  // namespace commsched::engine
