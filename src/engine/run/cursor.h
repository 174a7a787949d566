#ifndef COMMSCHED_SRC_ENGINE_RUN_CURSOR_H_
#define COMMSCHED_SRC_ENGINE_RUN_CURSOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/passes.h"

namespace commsched::engine {

// Where a caller is among the passes of a step, or of an evaluation, and which
// of them it may begin. A pure automaton: it runs nothing and owns no memory of
// a model.
//
// Where modules may be skipped, a pass may be left out: it runs empty. What was
// left out does not come back, and of a forward that was nothing else comes.
//
// Thread-compatible.
class Cursor {
 public:
  explicit Cursor(bool may_skip) : may_skip_(may_skip) {}

  // `passes` outlive the cursor, or its next Take(). `names`: by module.
  void Take(const std::vector<Pass>* passes, std::vector<std::string> names);
  // Goes to the first pass. Micro-batches from `micro_batches` on run empty.
  void Restart(uint32_t micro_batches) {
    index_ = 0;
    micro_batches_ = micro_batches;
  }

  const std::vector<Pass>& passes() const { return *passes_; }
  // The pass that has begun, or else is next, by index; at the end the number
  // of passes.
  uint64_t index() const { return index_; }
  bool at_end() const { return index_ == passes_->size(); }
  const Pass& pass() const { return (*passes_)[index_]; }
  // Whether `call` is of that pass.
  bool IsAt(const PassCall& call) const {
    return !at_end() && pass().call() == call;
  }

  // The index of the pass that `call` begins. Those from index() on up to it
  // run empty before. Nothing, if `call` is not next: Expected() is then.
  std::optional<uint64_t> Next(const PassCall& call) const;
  // Whether all passes from index() on may run empty.
  bool CanEnd() const;
  // Whether that is so, and `call` begins one of the passes when all begin
  // anew.
  bool CanBeginAnew(const PassCall& call) const;
  // What may be called next, in words; `end` if no pass has to come before it.
  std::string Expected(const std::string& end) const;
  // The end of the pass that has begun.
  std::string ExpectedEnd() const { return Text("end", pass()); }

  // The pass at index() begins, or runs empty: as a part of one that is left
  // out, unless `left_out` is false.
  void Begin(bool left_out) {
    if (pass().forward == index_) left_out_[index_] = left_out ? 1 : 0;
  }
  // It has ended.
  void Advance() { ++index_; }

 private:
  bool CanSkip(uint64_t index) const;
  bool IsGone(uint64_t index) const;
  std::string Text(const char* which, const Pass& pass) const {
    return CallText(which, pass, names_[pass.module]);
  }

  const bool may_skip_;
  const std::vector<Pass>* passes_ = nullptr;
  std::vector<std::string> names_;
  uint64_t index_ = 0;
  uint32_t micro_batches_ = 0;
  // Whether each forward in `passes_` was left out when it last came.
  std::vector<uint8_t> left_out_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_RUN_CURSOR_H_
