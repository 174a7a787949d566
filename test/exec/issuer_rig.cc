#include "test/exec/issuer_rig.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "device/host_device.h"
#include "exec/flatten.h"
#include "plan/planner.h"
#include "test/support/graph_builder.h"

namespace commsched::test {
namespace {

using Mode = IssuerRigSpec::Mode;

[[noreturn]] void GiveUp(const std::string& why) {
  std::fprintf(stderr, "issuer_rig: %s\n", why.c_str());
  std::abort();
}

}  // namespace

Graph Buckets(int num_buckets) {
  GraphBuilder builder;
  const GroupId dp = builder.Group("dp", 2);
  for (int i = 0; i < num_buckets; ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    const BufferId buffer = builder.Buffer(name, 4);
    builder.Compute("make_" + name, {Write(buffer)});
    builder.AllReduce("sum_" + name, dp, buffer);
  }
  return builder.graph();
}

IssuerRig::IssuerRig(const IssuerRigSpec& spec)
    : spec_(spec),
      backend_(static_cast<uint32_t>(spec.graph.groups().size())),
      plan_(BuildPlan(spec.graph, spec.options, CostProfile{}).value()),
      rank_(OpenRank(&backend_)) {
  Flatten();
  if (spec.mode == Mode::kInline) {
    backend_.mutable_table()->capabilities = COMMSCHED_BACKEND_INLINE;
  }
  for (uint32_t i = 0; i < plan_->num_comm_lanes; ++i) {
    side_streams_.push_back(device_.CreateSideStream().value());
  }
  if (!program_->late_buffers.empty()) {
    late_ = std::make_unique<LateBindings>(program_.get());
  }
}

std::unique_ptr<BackendRank> IssuerRig::OpenRank(ScriptedBackend* backend) {
  return BackendRank::Open({.table = backend->table(),
                            .instance = backend,
                            .world_size = 1,
                            .local_size = 1,
                            .device = SharedHostDevice().get()})
      .value();
}

void IssuerRig::Flatten() {
  arena_.resize(plan_->arena_bytes);
  Binding binding;
  for (const Buffer& buffer : plan_->graph->buffers()) {
    memory_.emplace_back(buffer.count);
    const bool bound = buffer.ownership == Ownership::kBound;
    binding.buffer_address.push_back(bound ? memory_.back().data() : nullptr);
  }
  for (const Placement& place : plan_->placements) {
    binding.buffer_address[place.buffer.value()] = arena_.data() + place.offset;
  }
  binding.arena = arena_.data();
  binding.group_rank.assign(plan_->graph->groups().size(), 0);
  binding.device =
      spec_.mode == Mode::kEnqueued ? &device_ : SharedHostDevice().get();
  binding.enqueue = spec_.mode == Mode::kEnqueued;
  binding.issue_inline = spec_.mode == Mode::kInline;
  binding.caller_lanes.assign(
      plan_->num_compute_lanes,
      spec_.caller_lanes || spec_.mode == Mode::kInline);
  program_ = commsched::Flatten(plan_, binding).value();
  const std::vector<void*> comms = backend_.comms();
  for (LaunchProgram& launch : program_->launches) {
    launch.comm = comms[launch.group];
  }
  if (spec_.mode == Mode::kEnqueued) NameEvents();
}

void IssuerRig::NameEvents() {
  for (uint32_t i = 0; i < program_->nodes.size(); ++i) {
    Event* event = program_->nodes[i].event;
    if (event == nullptr) continue;
    static_cast<LoggedEvent*>(event)->name = program_->OpName(i);
  }
  for (uint32_t i = 0; i < program_->launches.size(); ++i) {
    const OpId op = plan_->launches[i].members.front();
    static_cast<LoggedEvent*>(program_->launches[i].event)->name =
        plan_->graph->op(op).name;
  }
}

Issuer& IssuerRig::issuer() {
  if (issuer_ != nullptr) return *issuer_;
  IssuerSpec spec;
  spec.program = program_.get();
  spec.rank = rank_.get();
  spec.backend = backend_.table();
  spec.comms = backend_.comms();
  spec.abort = [this](const absl::Status& why) {
    aborts_.push_back(why);
    on_abort();
  };
  for (const Group& group : plan_->graph->groups()) {
    std::vector<int>& ranks = spec.group_ranks.emplace_back();
    for (int i = 0; i < group.size; ++i) ranks.push_back(i);
  }
  spec.late = late_.get();
  spec.instruments.recorder = spec_.recorder;
  spec.failure = &failure_;
  spec.instruments.clock = &clock_;
  spec.instruments.launch_timeout_ns = spec_.launch_timeout_ns;
  spec.manual = !spec_.by_caller;
  spec.by_caller = spec_.by_caller;
  spec.device = &device_;
  for (const auto& stream : side_streams_) {
    spec.side_lanes.push_back({stream.get(), &turns_.emplace_back()});
  }
  issuer_ = std::make_unique<Issuer>(spec);
  if (!issuer_->Start().ok()) GiveUp("no progress thread");
  return *issuer_;
}

uint32_t IssuerRig::Node(const std::string& name) const {
  for (uint32_t i = 0; i < program_->nodes.size(); ++i) {
    if (program_->OpName(i) == name) return i;
  }
  GiveUp("no compute op is called " + name);
}

uint32_t IssuerRig::Launch(const std::string& name) const {
  for (uint32_t i = 0; i < plan_->launches.size(); ++i) {
    const OpId op = plan_->launches[i].members.front();
    if (plan_->graph->op(op).name == name) return i;
  }
  GiveUp("no launch begins with " + name);
}

void IssuerRig::Make(const std::string& name, uint64_t step) {
  Event* event = program_->nodes[Node(name)].event;
  if (event != nullptr) event->Complete(step + 1);
}

void IssuerRig::EndOnDevice(const std::string& name, uint64_t step) {
  program_->launches[Launch(name)].event->Complete(step + 1);
}

void IssuerRig::PumpAll() {
  for (int round = 0; round < 1000; ++round) {
    if (!issuer().Pump()) return;
  }
  GiveUp("the issuer gets on for ever");
}

std::string IssuerRig::Launched() {
  std::string text;
  for (const ScriptedBackend::Launched& launched : backend_.launched()) {
    for (uint32_t i = 0; i < program_->launches.size(); ++i) {
      if (&program_->launches[i].call != launched.call) continue;
      const OpId op = plan_->launches[i].members.front();
      absl::StrAppend(&text, text.empty() ? "" : " ", plan_->graph->op(op).name,
                      "@", launched.step);
    }
  }
  return text;
}

bool IssuerRig::HasCompleted(const std::string& launch, uint64_t step) {
  return issuer().CompletedGenerations(Launch(launch)) >= step + 1;
}

float* IssuerRig::Memory(const std::string& buffer) {
  return memory_[plan_->graph->FindBuffer(buffer).value().value()].data();
}

}  // namespace commsched::test
