#include "test/support/pipeline.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "test/support/graph_builder.h"

namespace commsched::test {
namespace {

struct Work {
  bool forward = true;
  int chunk = 0;
  int micro_batch = 0;
};

// The i-th forward (or backward) of each stage: `stages` micro-batches through
// one chunk, then through the next.
Work Nth(const PipelineSpec& spec, bool forward, int i) {
  if (spec.chunks == 1) return {forward, 0, i};
  const int round = spec.stages * spec.chunks;
  const int chunk = i / spec.stages % spec.chunks;
  return {forward, forward ? chunk : spec.chunks - 1 - chunk,
          i / round * spec.stages + i % spec.stages};
}

std::vector<Work> HostOrder(const PipelineSpec& spec, int stage) {
  const int total = spec.micro_batches * spec.chunks;
  const int after = spec.stages - 1 - stage;
  int ahead =
      spec.chunks == 1 ? after : 2 * after + (spec.chunks - 1) * spec.stages;
  if (!spec.one_forward_one_backward) ahead = total;
  ahead = std::min(ahead, total);
  std::vector<Work> order;
  for (int i = 0; i < ahead; ++i) order.push_back(Nth(spec, true, i));
  for (int i = 0; i < total; ++i) {
    if (i + ahead < total) order.push_back(Nth(spec, true, i + ahead));
    order.push_back(Nth(spec, false, i));
  }
  return order;
}

class StageBuilder {
 public:
  StageBuilder(const PipelineSpec& spec, int stage)
      : spec_(spec), stage_(stage) {
    forward_ = b_.Group("fwd", spec.stages);
    backward_ = b_.Group("bwd", spec.stages);
    if (spec.norm) all_ = b_.Group("all", spec.stages);
    data_ = b_.Buffer("data", spec.count);
    for (int v = 0; v < spec.chunks; ++v) {
      weights_.push_back(b_.Buffer(absl::StrCat("w.", v), spec.count));
      gradients_.push_back(b_.Buffer(absl::StrCat("g.", v), spec.count));
    }
  }

  Graph Make() {
    for (const Work& work : HostOrder(spec_, stage_)) {
      work.forward ? Forward(work) : Backward(work);
    }
    Optimize();
    return b_.graph();
  }

 private:
  static std::string Name(const char* what, const Work& work) {
    return absl::StrCat(what, ".", work.chunk, ".", work.micro_batch);
  }
  bool IsFirst(const Work& work) const {
    return stage_ == 0 && work.chunk == 0;
  }
  bool IsLast(const Work& work) const {
    return stage_ == spec_.stages - 1 && work.chunk == spec_.chunks - 1;
  }

  BufferId Buffer(const std::string& name) {
    const auto found = b_.graph().FindBuffer(name);
    return found.ok() ? *found : b_.Buffer(name, spec_.count);
  }

  void Peer(const char* verb, const std::string& buffer, GroupId group,
            int offset) {
    const bool sends = std::string(verb) == "send";
    CollectiveSpec spec;
    spec.kind = sends ? CollectiveKind::kSend : CollectiveKind::kRecv;
    spec.group = group;
    spec.peer_offset = offset;
    (sends ? spec.input : spec.output) =
        sends ? Read(Buffer(buffer)) : Write(Buffer(buffer));
    b_.Collective(absl::StrCat(verb, ".", buffer), spec);
  }

  ComputeSpec Cost(int64_t ns) const {
    ComputeSpec spec;
    spec.cost_ns = ns;
    return spec;
  }

  void Forward(const Work& work) {
    if (!IsFirst(work)) Peer("recv", Name("in", work), forward_, -1);
    const BufferId in = IsFirst(work) ? data_ : Buffer(Name("in", work));
    b_.Compute(Name("fwd", work),
               {Read(in), Read(weights_[static_cast<size_t>(work.chunk)]),
                Write(Buffer(Name("out", work)))},
               Cost(spec_.forward_ns));
    if (!IsLast(work)) Peer("send", Name("out", work), forward_, 1);
  }

  void Backward(const Work& work) {
    const size_t v = static_cast<size_t>(work.chunk);
    std::vector<Access> accesses = {Read(Buffer(Name("out", work))),
                                    Read(weights_[v]), ReadWrite(gradients_[v]),
                                    Write(Buffer(Name("dout", work)))};
    if (!IsLast(work)) {
      Peer("recv", Name("din", work), backward_, 1);
      accesses.push_back(Read(Buffer(Name("din", work))));
    }
    b_.Compute(Name("bwd", work), std::move(accesses), Cost(spec_.backward_ns));
    if (!IsFirst(work)) Peer("send", Name("dout", work), backward_, -1);
  }

  void Optimize() {
    std::vector<Access> accesses;
    if (spec_.norm) {
      const BufferId norm = b_.Buffer("norm", 1);
      std::vector<Access> squares = {Write(norm)};
      for (BufferId g : gradients_) squares.push_back(Read(g));
      b_.Compute("square", std::move(squares));
      b_.AllReduce("norm", all_, norm);
      accesses.push_back(Read(norm));
    }
    for (BufferId g : gradients_) accesses.push_back(ReadWrite(g));
    for (BufferId w : weights_) accesses.push_back(ReadWrite(w));
    b_.Compute("opt", std::move(accesses));
  }

  const PipelineSpec& spec_;
  const int stage_;
  GraphBuilder b_;
  GroupId forward_, backward_, all_;
  BufferId data_;
  std::vector<BufferId> weights_, gradients_;
};

}  // namespace

std::vector<Graph> MakePipeline(const PipelineSpec& spec) {
  std::vector<Graph> graphs;
  for (int stage = 0; stage < spec.stages; ++stage) {
    graphs.push_back(StageBuilder(spec, stage).Make());
  }
  return graphs;
}

std::vector<RoleSpec> RolesOf(const std::vector<Graph>& graphs,
                              const CostProfile& profile) {
  std::vector<RoleSpec> roles;
  for (const Graph& graph : graphs) {
    RoleSpec role{.graph = &graph, .role_of_member = {}, .profile = profile};
    for (const Group& group : graph.groups()) {
      std::vector<uint32_t> members;
      if (static_cast<size_t>(group.size) == graphs.size()) {
        members.resize(graphs.size());
        std::iota(members.begin(), members.end(), 0u);
      }
      role.role_of_member.push_back(std::move(members));
    }
    roles.push_back(std::move(role));
  }
  return roles;
}

}  // namespace commsched::test
