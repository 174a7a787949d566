#include "test/support/graph_builder.h"

#include <cstdio>
#include <cstdlib>

#include "absl/status/status.h"

namespace commsched::test {
namespace {

void Require(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "graph_builder: %s\n", status.ToString().c_str());
  std::abort();
}

template <typename Id>
Id Require(const absl::StatusOr<Id>& id) {
  Require(id.status());
  return *id;
}

std::string Numbered(const char* name, int number) {
  return std::string(name) + "." + std::to_string(number);
}

}  // namespace

CollectiveSpec Spec(CollectiveKind kind, GroupId group, Access input,
                    Access output) {
  CollectiveSpec spec;
  spec.kind = kind;
  spec.group = group;
  spec.input = input;
  spec.output = output;
  return spec;
}

GroupId GraphBuilder::Group(const std::string& name, int size) {
  return Require(graph_.AddGroup(name, size));
}

BufferId GraphBuilder::Buffer(const std::string& name, uint64_t count,
                              Ownership ownership) {
  commsched::Buffer buffer;
  buffer.name = name;
  buffer.count = count;
  buffer.ownership = ownership;
  return Buffer(std::move(buffer));
}

BufferId GraphBuilder::Buffer(commsched::Buffer buffer) {
  return Require(graph_.AddBuffer(std::move(buffer)));
}

OpId GraphBuilder::Add(Op op) { return Require(graph_.AddOp(std::move(op))); }

OpId GraphBuilder::Compute(const std::string& name,
                           std::vector<Access> accesses, ComputeSpec spec,
                           std::vector<OpId> after) {
  Op op;
  op.name = name;
  op.accesses = std::move(accesses);
  op.compute = spec;
  op.after = std::move(after);
  return Add(std::move(op));
}

OpId GraphBuilder::Collective(const std::string& name, CollectiveSpec spec,
                              int priority, std::vector<OpId> after) {
  Op op;
  op.name = name;
  op.kind = OpKind::kCollective;
  op.priority = priority;
  op.collective = std::move(spec);
  op.after = std::move(after);
  return Add(std::move(op));
}

OpId GraphBuilder::AllReduce(const std::string& name, GroupId group,
                             BufferId buffer, Region region) {
  return Collective(name, Spec(CollectiveKind::kAllReduce, group,
                               Read(buffer, region), Write(buffer, region)));
}

OpId GraphBuilder::ReduceScatter(const std::string& name, GroupId group,
                                 Access input, Access output) {
  return Collective(name,
                    Spec(CollectiveKind::kReduceScatter, group, input, output));
}

OpId GraphBuilder::AllGather(const std::string& name, GroupId group,
                             BufferId buffer) {
  return Collective(name, Spec(CollectiveKind::kAllGather, group,
                               Read(buffer, Shard(group)), Write(buffer)));
}

void GraphBuilder::Edge(OpId from, OpId to, int distance) {
  Require(graph_.AddEdge({.from = from, .to = to, .distance = distance}));
}

Graph ZeroStep(const ZeroStepSpec& spec) {
  GraphBuilder b;
  const GroupId dp = b.Group("dp", spec.ranks);
  const uint64_t shard = spec.count / static_cast<uint64_t>(spec.ranks);
  const BufferId norm = b.Buffer("norm", 1);
  std::vector<BufferId> act = {b.Buffer("act.0", spec.count)};
  std::vector<BufferId> dact = {b.Buffer("dact.0", spec.count)};
  std::vector<BufferId> param, grad, gshard;
  for (int i = 0; i < spec.buckets; ++i) {
    act.push_back(b.Buffer(Numbered("act", i + 1), spec.count));
    dact.push_back(b.Buffer(Numbered("dact", i + 1), spec.count));
    param.push_back(b.Buffer(Numbered("param", i), spec.count));
    grad.push_back(b.Buffer(Numbered("grad", i), spec.count, spec.gradients));
    gshard.push_back(b.Buffer(Numbered("gshard", i), shard, Ownership::kOwned));
  }
  ComputeSpec cost;
  cost.cost_ns = spec.forward_ns;
  for (int i = 0; i < spec.buckets; ++i) {
    b.Compute(Numbered("fwd", i),
              {Read(param[i]), Read(act[i]), Write(act[i + 1])}, cost);
  }
  cost.cost_ns = spec.backward_ns;
  for (int i = spec.buckets - 1; i >= 0; --i) {
    b.Compute(Numbered("bwd", i),
              {Read(param[i]), Read(act[i]), Read(act[i + 1]),
               Read(dact[i + 1]), Write(grad[i]), Write(dact[i])},
              cost);
    b.ReduceScatter(Numbered("rs", i), dp, Read(grad[i]), Write(gshard[i]));
  }
  cost = ComputeSpec();
  if (spec.norm) {
    std::vector<Access> accesses = {Write(norm)};
    for (BufferId each : gshard) accesses.push_back(Read(each));
    b.Compute("norm", std::move(accesses));
  }
  cost.cost_ns = spec.optimizer_ns;
  for (int i = 0; i < spec.buckets; ++i) {
    std::vector<Access> accesses = {Read(gshard[i]),
                                    ReadWrite(param[i], Shard(dp))};
    if (spec.norm) accesses.push_back(Read(norm));
    b.Compute(Numbered("opt", i), std::move(accesses), cost);
    b.AllGather(Numbered("ag", i), dp, param[i]);
  }
  return b.graph();
}

}  // namespace commsched::test
