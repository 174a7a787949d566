// What is behind the opaque types of the ABI.
//
// A handle owns shares, never its parent's handle: destroying handles in any
// order is fine, and a parent lives until its last child goes.
#ifndef COMMSCHED_SRC_CAPI_HANDLES_H_
#define COMMSCHED_SRC_CAPI_HANDLES_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/completions.h"
#include "base/mutex.h"
#include "capi/context.h"
#include "comm/mesh.h"
#include "commsched/commsched.h"
#include "graph/graph.h"
#include "plan/plan.h"
#include "session/session.h"
#include "trace/blame.h"
#include "trace/metrics.h"
#include "trace/recorder.h"

struct commsched_world {
  std::shared_ptr<commsched::RankedWorld> world;
};

struct commsched_context {
  std::shared_ptr<commsched::Context> context;
};

struct commsched_group {
  std::shared_ptr<commsched::Context> context;
  commsched::GroupSpec spec;
};

struct commsched_mesh {
  std::shared_ptr<commsched::Context> context;
  commsched::Mesh mesh;
};

// Plans keep the graph that they were made from, without a copy of it: whoever
// changes it afterwards gets a new one. One thread changes it; any number may
// plan meanwhile if it does not.
struct commsched_graph {
  explicit commsched_graph(commsched::Graph ours = {})
      : graph_(std::make_shared<commsched::Graph>(std::move(ours))) {}

  const commsched::Graph& graph() const { return *graph_; }
  std::shared_ptr<const commsched::Graph> Share() const {
    is_shared_.store(true, std::memory_order_relaxed);
    return graph_;
  }
  commsched::Graph& Change() {
    if (is_shared_.load(std::memory_order_relaxed)) {
      graph_ = std::make_shared<commsched::Graph>(*graph_);
      is_shared_.store(false, std::memory_order_relaxed);
    }
    return *graph_;
  }

 private:
  std::shared_ptr<commsched::Graph> graph_;
  mutable std::atomic<bool> is_shared_{false};
};

struct commsched_plan {
  std::shared_ptr<const commsched::Plan> plan;
};

struct commsched_trace {
  std::shared_ptr<commsched::Context> context;
  std::shared_ptr<commsched::Recorder> recorder;

  // What the last commsched_trace_num_steps() found. Filled through const
  // handles, hence mutable.
  mutable commsched::Mutex mu;
  mutable bool has_steps ABSL_GUARDED_BY(mu) = false;
  mutable std::vector<commsched::StepMetrics> steps ABSL_GUARDED_BY(mu);
  // The blame of these steps; empty until asked for.
  mutable std::vector<commsched::StepBlame> blames ABSL_GUARDED_BY(mu);
};

struct commsched_completions {
  std::shared_ptr<commsched::Completions> completions;
};

struct commsched_session {
  // A lane as the session knows it, and as its caller does.
  struct Lane {
    commsched::Stream* stream;
    commsched_stream_t given;
  };
  std::shared_ptr<commsched::Context> context;
  std::shared_ptr<commsched::Recorder> recorder;
  std::vector<Lane> lanes;
  std::unique_ptr<commsched::Session> session;  // Last: it goes first.
};

#endif  // COMMSCHED_SRC_CAPI_HANDLES_H_
