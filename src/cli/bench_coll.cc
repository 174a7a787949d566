#include "cli/bench_coll.h"

#include <signal.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <new>
#include <stdexcept>

#include "cli/checked.h"
#include "cli/coll_case.h"
#include "cli/link_bench.h"
#include "commsched/channel.h"
#include "commsched/commsched.h"

namespace commsched::cli {
namespace {

constexpr int kFailed = 1;

class Bench {
 public:
  explicit Bench(const BenchCollOptions& options) : options_(options) {
    commsched_waits_print_on(SIGQUIT);  // Best effort.
    commsched_join_desc_t desc = commsched_join_desc_init();
    desc.backend = options.backend.c_str();
    desc.backend_config = options.config.c_str();
    if (!options.profile.empty()) desc.link_profile = "";
    commsched_world_t* world = nullptr;
    Check(commsched_world_join(&desc, &world), "join");
    world_.reset(world);
    rank_ = commsched_world_rank(world);
    size_ = commsched_world_size(world);
    commsched_context_t* context = nullptr;
    Check(commsched_context_create(world, rank_, &context), "context");
    context_.reset(context);
    std::vector<int32_t> all(static_cast<size_t>(size_));
    for (int32_t i = 0; i < size_; ++i) all[static_cast<size_t>(i)] = i;
    commsched_group_t* group = nullptr;
    Check(commsched_group_create(context, "world", all.data(),
                                 static_cast<uint32_t>(size_), &group),
          "group");
    group_.reset(group);
  }

  int Run() {
    if (!options_.profile.empty()) {
      BenchLinks(context_.get(), options_);
      return 0;
    }
    PrintHead();
    uint64_t wrong = 0;
    for (const std::string& name : options_.kinds) {
      for (const CollKind& kind : kCollKinds) {
        if (name == kind.name) wrong += RunKind(kind);
      }
    }
    if (wrong != 0 && rank_ == 0) {
      std::fprintf(stderr, "commsched bench coll: %" PRIu64 " wrong elements\n",
                   wrong);
    }
    return wrong == 0 ? 0 : kFailed;
  }

 private:
  uint64_t RunKind(const CollKind& kind) {
    uint64_t wrong = 0;
    for (uint64_t bytes = options_.min_bytes; bytes <= options_.max_bytes;
         bytes *= options_.factor) {
      CollCase one(kind, options_.dtype, rank_, size_, bytes);
      CollEstimate estimate;
      const CollFigures figures = Measure(&one, &estimate);
      Print(one, figures, estimate);
      wrong += figures.wrong;
    }
    return wrong;
  }

  CollFigures Measure(CollCase* one, CollEstimate* estimate) {
    if (options_.by_channel) {
      const auto channel = MakeChannel();
      const commsched_channel_op_t op = OpOf(one);
      return Time(one, [&] { RunOp(channel.get(), op); });
    }
    commsched_op_id_t op = 0;
    const auto session = MakeSession(one, &op);
    *estimate = EstimateOf(session.get());
    return Time(one, [&] { RunStep(session.get(), op); });
  }

  template <typename RunOnce>
  CollFigures Time(CollCase* one, const RunOnce& run_once) {
    for (int i = 0; i < options_.warmup; ++i) run_once();
    Gather(context_.get(), "ready", CollFigures{});  // A barrier.
    const CollClock begin = CollClock::Now();
    for (int i = 0; i < options_.iterations; ++i) run_once();
    CollFigures mine = CollClock::Now().Since(begin, options_.iterations);
    mine.wrong = one->CountWrong();
    return OverRanks(Gather(context_.get(), "figures", mine));
  }

  using Channel = Handle<commsched_channel_t, commsched_channel_destroy>;

  Channel MakeChannel() {
    commsched_channel_t* channel = nullptr;
    Check(commsched_channel_create(context_.get(), group_.get(), nullptr,
                                   &channel),
          "channel");
    return Channel(channel);
  }

  // Its count is that of the smaller side: of a part, where there are parts.
  commsched_channel_op_t OpOf(CollCase* one) const {
    commsched_channel_op_t op = commsched_channel_op_init();
    op.kind = one->kind.kind;
    op.dtype = one->dtype;
    op.input = one->input.data();
    op.output = one->output.data();
    op.count =
        std::min(one->input.size(), one->output.size()) / one->element_bytes();
    if (op.kind == COMMSCHED_ALL_TO_ALL) {
      op.count /= static_cast<uint64_t>(size_);
    }
    op.deterministic = options_.deterministic ? 1 : 0;
    return op;
  }

  static void RunOp(commsched_channel_t* channel,
                    const commsched_channel_op_t& op) {
    uint64_t request = 0;
    Check(commsched_channel_submit(channel, &op, commsched_stream_caller(),
                                   &request),
          "submit");
    Check(commsched_channel_wait(channel, request, INT64_MAX), "wait");
  }

  static CollEstimate EstimateOf(const commsched_session_t* session) {
    commsched_launch_estimate_t estimate = commsched_launch_estimate_init();
    const commsched_status_t code =
        commsched_session_launch_estimate(session, 0, &estimate);
    if (code != COMMSCHED_UNIMPLEMENTED) Check(code, "estimate");
    return {estimate.algorithm,
            static_cast<double>(estimate.predicted_ns) * 1e-9,
            estimate.link_bytes};
  }

  Session MakeSession(CollCase* one, commsched_op_id_t* out_op) {
    commsched_graph_t* graph_handle = nullptr;
    Check(commsched_graph_create(&graph_handle), "graph");
    const Handle<commsched_graph_t, commsched_graph_destroy> graph(
        graph_handle);
    commsched_group_id_t group = 0;
    Check(commsched_graph_add_group(graph.get(), "world",
                                    static_cast<uint32_t>(size_), &group),
          "group");
    commsched_binding_t bindings[2] = {};
    std::vector<std::byte>* const sides[] = {&one->input, &one->output};
    const char* const names[] = {"input", "output"};
    for (int i = 0; i < 2; ++i) {
      commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
      buffer.name = names[i];
      buffer.dtype = one->dtype;
      buffer.ownership = COMMSCHED_BOUND;
      buffer.count = sides[i]->size() / one->element_bytes();
      Check(
          commsched_graph_add_buffer(graph.get(), &buffer, &bindings[i].buffer),
          "buffer");
      bindings[i].address = sides[i]->data();
      bindings[i].bytes = sides[i]->size();
    }
    commsched_access_t writes = {};
    writes.buffer = bindings[0].buffer;
    writes.mode = COMMSCHED_WRITE;
    commsched_compute_desc_t fill = commsched_compute_desc_init();
    fill.name = "fill";
    fill.accesses = &writes;
    fill.num_accesses = 1;
    Check(commsched_graph_add_compute(graph.get(), &fill, out_op), "compute");
    commsched_collective_desc_t collective = commsched_collective_desc_init();
    collective.name = one->kind.name;
    collective.kind = one->kind.kind;
    collective.group = group;
    collective.input.buffer = bindings[0].buffer;
    collective.output.buffer = bindings[1].buffer;
    commsched_op_id_t op = 0;
    Check(commsched_graph_add_collective(graph.get(), &collective, &op),
          "collective");
    commsched_plan_options_t plan_options = commsched_plan_options_init();
    plan_options.deterministic = options_.deterministic ? 1 : 0;
    commsched_plan_t* plan_handle = nullptr;
    Check(
        commsched_plan_build(graph.get(), &plan_options, nullptr, &plan_handle),
        "plan");
    const Handle<commsched_plan_t, commsched_plan_destroy> plan(plan_handle);
    commsched_group_t* const groups[] = {group_.get()};
    commsched_session_desc_t desc = commsched_session_desc_init();
    desc.context = context_.get();
    desc.plan = plan.get();
    desc.groups = groups;
    desc.num_groups = 1;
    desc.bindings = bindings;
    desc.num_bindings = 2;
    desc.progress = options_.by_caller ? COMMSCHED_PROGRESS_CALLER
                                       : COMMSCHED_PROGRESS_THREAD;
    commsched_session_t* session = nullptr;
    Check(commsched_session_create(&desc, &session), "session");
    return Session(session);
  }

  // A collective has ended where the slowest rank has: a root that sends may be
  // ahead of all others.
  static CollFigures OverRanks(const std::vector<CollFigures>& all) {
    const double ranks = static_cast<double>(all.size());
    CollFigures figures;
    for (const CollFigures& one : all) {
      figures.seconds = std::max(figures.seconds, one.seconds);
      figures.cpu_seconds += one.cpu_seconds / ranks;
      figures.busy_seconds += one.busy_seconds / ranks;
      figures.wrong += one.wrong;
    }
    return figures;
  }

  void PrintHead() const {
    if (rank_ != 0 || options_.json) return;
    std::printf("# %d ranks, backend %s, %d iterations after %d\n", size_,
                options_.backend.c_str(), options_.iterations, options_.warmup);
    const char* const row =
        "%-14s %12s %12s %6s %6s %10s %8s %8s %7s %9s %13s  %s\n";
    std::printf(row, "collective", "size(B)", "count", "type", "redop",
                "time(us)", "algbw", "busbw", "#wrong", "cpu(us)",
                "predicted(us)", "algorithm");
    std::printf(row, "", "", "", "", "", "", "(GB/s)", "(GB/s)", "", "per rank",
                "", "");
  }

  void Print(const CollCase& one, const CollFigures& figures,
             const CollEstimate& estimate) const {
    if (rank_ != 0) return;
    if (options_.json) {
      std::printf("%s\n",
                  CollJson(one, options_.backend, figures, estimate).c_str());
    } else {
      std::printf("%-14s %12" PRIu64 " %12" PRIu64
                  " %6s %6s %10.1f %8.3f %8.3f %7" PRIu64 " %9.1f %13.1f  %s\n",
                  one.kind.name, one.bytes(), one.bytes() / one.element_bytes(),
                  one.type(), one.kind.reduces ? "sum" : "none",
                  figures.seconds * 1e6, AlgBandwidth(one, figures),
                  BusBandwidth(one, figures), figures.wrong,
                  figures.cpu_seconds * 1e6, estimate.seconds * 1e6,
                  estimate.algorithm == nullptr ? "-" : estimate.algorithm);
    }
    std::fflush(stdout);
  }

  const BenchCollOptions& options_;
  Handle<commsched_world_t, commsched_world_destroy> world_;
  Handle<commsched_context_t, commsched_context_destroy> context_;
  Handle<commsched_group_t, commsched_group_destroy> group_;
  int32_t rank_ = 0;
  int32_t size_ = 0;
};

}  // namespace

int BenchColl(const BenchCollOptions& options) {
  try {
    return Bench(options).Run();
  } catch (const std::bad_alloc&) {
    std::fputs("commsched bench coll: out of memory\n", stderr);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "commsched bench coll: %s\n", failure.what());
  }
  return kFailed;
}

}  // namespace commsched::cli
