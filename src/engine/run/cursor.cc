#include "engine/run/cursor.h"

namespace commsched::engine {

void Cursor::Take(const std::vector<Pass>* passes,
                  std::vector<std::string> names) {
  passes_ = passes;
  names_ = std::move(names);
  left_out_.assign(passes->size(), 0);
  index_ = 0;
}

bool Cursor::CanSkip(uint64_t index) const {
  return may_skip_ || (*passes_)[index].micro_batch >= micro_batches_;
}

// Whether a pass is of a forward that was left out, or is left out whatever
// comes.
bool Cursor::IsGone(uint64_t index) const {
  const Pass& pass = (*passes_)[index];
  return pass.micro_batch >= micro_batches_ ||
         (pass.forward < index_ && left_out_[pass.forward] != 0);
}

// The first from the index on that can run, mostly the one there. What comes
// after the first forward needs it.
std::optional<uint64_t> Cursor::Next(const PassCall& call) const {
  for (uint64_t i = index_; i < passes_->size(); ++i) {
    const Pass& pass = (*passes_)[i];
    if (pass.call() == call && pass.micro_batch < micro_batches_) {
      const bool ran = pass.forward < index_ && left_out_[pass.forward] == 0;
      if (pass.forward == i || ran) return i;
    }
    if (!CanSkip(i)) break;
  }
  return std::nullopt;
}

bool Cursor::CanEnd() const {
  for (uint64_t i = index_; i < passes_->size(); ++i) {
    if (!CanSkip(i)) return false;
  }
  return true;
}

bool Cursor::CanBeginAnew(const PassCall& call) const {
  if (!CanEnd()) return false;
  for (uint64_t i = 0; i < passes_->size(); ++i) {
    if ((*passes_)[i].call() == call) return true;
    if (!CanSkip(i)) break;
  }
  return false;
}

std::string Cursor::Expected(const std::string& end) const {
  uint64_t next = index_;
  while (next < passes_->size() && IsGone(next)) ++next;
  if (next == passes_->size()) return end;
  const std::string text = Text("begin", (*passes_)[next]);
  return CanSkip(next) ? text + ", or a later call" : text;
}

}  // namespace commsched::engine
