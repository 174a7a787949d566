#include "exec/script.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

// Plays the part of the dispatcher in one step.
class ScriptWriter {
 public:
  explicit ScriptWriter(const Program& program)
      : program_(program), done_(program.nodes.size()) {
    for (const LaunchProgram& launch : program.launches) {
      missing_.push_back(launch.producers.count + launch.gates);
    }
    Advance();
  }

  absl::Status Play(ScriptedCall* call) {
    switch (call->kind) {
      case ScriptedCall::Kind::kBefore:
        call->node = program_.plan->node_of_op[call->op.value()];
        RETURN_IF_ERROR(Before(call->node));
        break;
      case ScriptedCall::Kind::kAfter:
        call->node = program_.plan->node_of_op[call->op.value()];
        RETURN_IF_ERROR(After(call->node));
        break;
      case ScriptedCall::Kind::kSubmit:
        if (call->opens_gates) RETURN_IF_ERROR(Submit(call->op));
        break;
    }
    Advance();
    call->due = due_;
    return absl::OkStatus();
  }

  absl::Status Finish() const {
    if (open_ != Plan::kNone) return Refused("after", open_, "is missing");
    for (uint32_t node = 0; node < done_.size(); ++node) {
      if (!done_[node]) return Refused("before", node, "is missing");
    }
    if (due_ == missing_.size()) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(
        "script: launch ", program_.LaunchName(due_), " is never due"));
  }

 private:
  absl::Status Before(uint32_t index) {
    if (open_ != Plan::kNone) return Refused("before", index, "is inside one");
    const NodeProgram& node = program_.nodes[index];
    if (done_[index]) return Refused("before", index, "is its second");
    for (uint32_t i = 0; i < node.after.count; ++i) {
      if (!done_[program_.after[node.after.begin + i]]) {
        return Refused("before", index, "comes before what it needs");
      }
    }
    if (node.due_needed > due_) {
      return Refused("before", index, "needs a launch that is not due");
    }
    open_ = index;
    return absl::OkStatus();
  }

  absl::Status After(uint32_t index) {
    if (open_ != index) return Refused("after", index, "has no before");
    const NodeProgram& node = program_.nodes[index];
    if (node.late_writes.count != 0) {
      return Refused("after", index, "has to bind a late-bound buffer");
    }
    for (uint32_t i = 0; i < node.feeds.count; ++i) {
      --missing_[program_.feeds[node.feeds.begin + i]];
    }
    open_ = Plan::kNone;
    done_[index] = true;
    return absl::OkStatus();
  }

  absl::Status Submit(OpId op) {
    for (LaunchId launch : program_.plan->LaunchesOf(op)) {
      if (missing_[launch.value()] == 0) {
        return absl::InternalError(absl::StrCat(
            "script: submit of '", program_.plan->graph->op(op).name,
            "', for which launch ", program_.LaunchName(launch.value()),
            " does not wait"));
      }
      --missing_[launch.value()];
    }
    return absl::OkStatus();
  }

  void Advance() {
    while (due_ < missing_.size() && missing_[due_] == 0) ++due_;
  }

  absl::Status Refused(const char* call, uint32_t node, const char* why) const {
    return absl::InternalError(absl::StrCat("script: ", call, " of op '",
                                            program_.OpName(node), "' ", why));
  }

  const Program& program_;
  std::vector<uint32_t> missing_;  // by launch
  std::vector<bool> done_;         // by node
  uint32_t open_ = Plan::kNone;    // the node that has had its before only
  uint32_t due_ = 0;
};

}  // namespace

absl::Status WriteScript(const Program& program,
                         absl::Span<ScriptedCall> calls) {
  ScriptWriter writer(program);
  for (ScriptedCall& call : calls) RETURN_IF_ERROR(writer.Play(&call));
  return writer.Finish();
}

}  // namespace commsched
