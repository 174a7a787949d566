#include "engine/step_plan/forward_graph.h"

#include <algorithm>
#include <string>
#include <utility>

namespace commsched::engine {
namespace {

// The memory of a stay: bytes of the one buffer that holds those of all stays,
// as several have the same memory one after the other.
struct Place {
  Stay stay;  // Counted in passes of the evaluation.
  commsched_access_t region = {};

  bool Overlaps(const Place& other) const {
    return region.offset < other.region.offset + other.region.count &&
           other.region.offset < region.offset + region.count;
  }
  commsched_access_t Access(commsched_access_mode_t mode) const {
    commsched_access_t access = region;
    access.mode = mode;
    return access;
  }
};

class Builder {
 public:
  Builder(const StepSpec& spec, const std::vector<Module>& modules,
          const Exchanges& exchanges, const Layout& layout,
          const std::vector<uint32_t>& one_forward, const StepGraph& step,
          const std::vector<uint64_t>& offsets, ForwardGraph* out)
      : spec_(spec),
        modules_(modules),
        exchanges_(exchanges),
        layout_(layout),
        one_forward_(one_forward),
        step_(step),
        offsets_(offsets),
        out_(*out) {}

  Status Build() {
    ENGINE_RETURN_IF_ERROR(writer_.Create(spec_.world));
    ENGINE_RETURN_IF_ERROR(AddShards());
    ENGINE_RETURN_IF_ERROR(AddPlaces());
    ENGINE_RETURN_IF_ERROR(
        AddExchanges(exchanges_, &writer_, &out_.first_activation));
    WaitForMemory();
    ENGINE_RETURN_IF_ERROR(AddOps());
    ENGINE_RETURN_IF_ERROR(AddEdgesToNextPass());
    if (spec_.uneven_evaluations) ENGINE_RETURN_IF_ERROR(AddMore());
    out_.graph = writer_.TakeGraph();
    return Status();
  }

 private:
  Status AddBytes(const std::string& name, uint64_t bytes,
                  commsched_buffer_id_t* out_id) {
    return writer_.AddBuffer(name, COMMSCHED_U8, COMMSCHED_BOUND, bytes,
                             out_id);
  }
  uint64_t BytesOf(uint32_t bucket) const {
    return layout_.buckets[bucket].count *
           SizeOf(layout_.buckets[bucket].dtype);
  }

  Status AddShards() {
    out_.shards.assign(layout_.buckets.size(), kNoId);
    for (uint32_t b = 0; b < layout_.buckets.size(); ++b) {
      if (!spec_.gathers(layout_.buckets[b])) continue;
      ENGINE_RETURN_IF_ERROR(AddBytes(Indexed("parameter_shard", b),
                                      BytesOf(b) / spec_.num_shards(),
                                      &out_.shards[b]));
    }
    return Status();
  }

  // How many passes of the evaluation come before `pass` of the step.
  uint32_t CountBefore(uint32_t pass) const {
    return static_cast<uint32_t>(
        std::lower_bound(one_forward_.begin(), one_forward_.end(), pass) -
        one_forward_.begin());
  }

  // The passes of the evaluation that use the bucket in a stay of the step;
  // false if there are none.
  bool FindUses(const Stay& in_step, Stay* out_stay) const {
    bool any = false;
    *out_stay = in_step;
    out_stay->launch = CountBefore(in_step.launch);
    const uint32_t end = CountBefore(in_step.last + 1);
    for (uint32_t i = CountBefore(in_step.first); i < end; ++i) {
      const std::vector<uint32_t>& used =
          layout_.module_buckets[step_.passes[one_forward_[i]].module];
      if (!std::binary_search(used.begin(), used.end(), in_step.bucket)) {
        continue;
      }
      if (!any) out_stay->first = i;
      out_stay->last = i;
      any = true;
    }
    return any;
  }

  // The stays in which its passes are.
  Status AddPlaces() {
    Stay stay;
    for (size_t i = 0; i < step_.gathered.size(); ++i) {
      if (!FindUses(step_.gathered[i].stay, &stay)) continue;
      Place& place = places_.emplace_back();
      place.stay = stay;
      place.region.region = COMMSCHED_RANGE;
      place.region.offset = offsets_[i];
      place.region.count = BytesOf(stay.bucket);
    }
    if (places_.empty()) return Status();
    uint64_t begin = places_.front().region.offset;
    uint64_t end = 0;
    for (const Place& place : places_) {
      begin = std::min(begin, place.region.offset);
      end = std::max(end, place.region.offset + place.region.count);
    }
    out_.arena_offset = begin;
    out_.arena_bytes = end - begin;
    ENGINE_RETURN_IF_ERROR(
        AddBytes("gathered", out_.arena_bytes, &out_.gathered));
    for (Place& place : places_) {
      place.region.buffer = out_.gathered;
      place.region.offset -= begin;
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
    std::vector<const Place*> values(layout_.buckets.size());
    size_t next = 0;
    for (uint32_t i = 0; i < one_forward_.size(); ++i) {
      for (; next < places_.size() && places_[next].stay.launch == i; ++next) {
        ENGINE_RETURN_IF_ERROR(AddGather(places_[next]));
      }
      for (const Place& place : places_) {
        if (place.stay.first == i) values[place.stay.bucket] = &place;
      }
      ENGINE_RETURN_IF_ERROR(AddForward(i, values));
    }
    return Status();
  }

  Status AddGather(const Place& place) {
    const Stay& stay = place.stay;
    GraphWriter::Collective gather;
    gather.input = Access(out_.shards[stay.bucket], COMMSCHED_READ);
    gather.output = place.Access(COMMSCHED_WRITE);
    if (stay.launch > 0) gather.after = out_.pass_ops.back().last();
    return writer_.AddCollective(
        Indexed(Indexed("all_gather", stay.bucket).c_str(), stay.index), gather,
        &gathers_.emplace_back());
  }

  Status AddForward(uint32_t index, const std::vector<const Place*>& values) {
    Pass pass = step_.passes[one_forward_[index]];
    pass.kind = PassKind::kForward;
    pass.forward = index;
    const Module& module = modules_[pass.module];
    std::vector<commsched_access_t> accesses;
    for (uint32_t b : layout_.module_buckets[pass.module]) {
      if (values[b] == nullptr) continue;  // resident
      accesses.push_back(values[b]->Access(COMMSCHED_READ));
    }
    const std::string name = "forward." + PassName(module.name, pass.use);
    commsched_compute_desc_t desc = commsched_compute_desc_init();
    desc.name = name.c_str();
    desc.accesses = DataOf(accesses);
    desc.num_accesses = static_cast<uint32_t>(accesses.size());
    commsched_op_id_t previous = kNoId;
    if (!out_.pass_ops.empty()) {
      previous = out_.pass_ops.back().last();
      desc.after = &previous;
      desc.num_after = 1;
    }
    desc.flops = module.forward_flops;
    PassOps ops;
    ENGINE_RETURN_IF_ERROR(writer_.AddCompute(desc, &ops.op));
    StepContext context;
    context.prefix = name + ".";
    context.first_activation = out_.first_activation;
    context.after = ops.op;
    context.add_parameters = [&](const ModuleStep& step,
                                 std::vector<commsched_access_t>* out) {
      for (uint32_t b : layout_.BucketsOf(step.parameters)) {
        if (values[b] == nullptr) continue;  // resident
        out->push_back(values[b]->Access(COMMSCHED_READ));
      }
    };
    ENGINE_RETURN_IF_ERROR(AddModuleSteps(module.steps[0], std::move(context),
                                          &writer_, &ops.inner));
    out_.passes.push_back(pass);
    out_.pass_ops.push_back(std::move(ops));
    return Status();
  }

  // Memory is gathered into again only when the last pass is over.
  Status AddEdgesToNextPass() {
    for (commsched_op_id_t gather : gathers_) {
      ENGINE_RETURN_IF_ERROR(Status::FromCall(
          commsched_graph_add_edge(writer_.graph(), out_.pass_ops.back().last(),
                                   gather,
                                   /*distance=*/1),
          "adding an edge"));
    }
    return Status();
  }

  Status AddMore() {
    ENGINE_RETURN_IF_ERROR(writer_.AddBuffer("more_forwards", COMMSCHED_F64,
                                             COMMSCHED_BOUND, 1, &out_.more));
    ENGINE_RETURN_IF_ERROR(writer_.AddWordsAfter(out_.pass_ops.back().last(),
                                                 "say_more_forwards", out_.more,
                                                 &out_.say_more));
    return writer_.AddCollective(
        "reduce_more_forwards",
        {COMMSCHED_ALL_REDUCE, COMMSCHED_MAX, Access(out_.more, COMMSCHED_READ),
         Access(out_.more, COMMSCHED_WRITE)});
  }

  const StepSpec& spec_;
  const std::vector<Module>& modules_;
  const Exchanges& exchanges_;
  const Layout& layout_;
  const std::vector<uint32_t>& one_forward_;
  const StepGraph& step_;
  const std::vector<uint64_t>& offsets_;
  ForwardGraph& out_;
  GraphWriter writer_;
  std::vector<Place> places_;
  std::vector<commsched_op_id_t> gathers_;
};

}  // namespace

Status BuildForwardGraph(const StepSpec& spec,
                         const std::vector<Module>& modules,
                         const Exchanges& exchanges, const Layout& layout,
                         const std::vector<uint32_t>& one_forward,
                         const StepGraph& step,
                         const std::vector<uint64_t>& offsets,
                         ForwardGraph* out_graph) {
  ForwardGraph graph;
  ENGINE_RETURN_IF_ERROR(Builder(spec, modules, exchanges, layout, one_forward,
                                 step, offsets, &graph)
                             .Build());
  *out_graph = std::move(graph);
  return Status();
}

}  // namespace commsched::engine
