#include "cli/line_prefix.h"

namespace commsched::cli {
namespace {

// Erases what the terminal shows from here to the end of the line.
constexpr char kErase[] = "\033[K";

std::string WithoutErasing(std::string line) {
  for (size_t at = line.find(kErase); at != std::string::npos;
       at = line.find(kErase, at)) {
    line.erase(at, sizeof(kErase) - 1);
  }
  return line;
}

}  // namespace

std::string LinePrefix::Add(const std::string& bytes) {
  std::string whole;
  for (const char c : bytes) {
    if (c == '\n') {
      whole += TakeLine();
      continue;
    }
    if (c == '\r') {
      // Of "\r\n" and of a bar that erases itself nothing is left to say.
      if (output_ == Output::kTerminal) {
        overwrites_ = true;
      } else if (!line_.empty()) {
        whole += TakeLine();
      }
      continue;
    }
    if (std::exchange(overwrites_, false)) {
      line_.clear();
      redrawn_ = true;
    }
    line_.push_back(c);
    if (line_.size() >= kMaxLineBytes) whole += TakeLine();
  }
  return whole;
}

std::string LinePrefix::End() {
  const bool is_bar = redrawn_ || overwrites_;
  return line_.empty() || is_bar ? "" : TakeLine();
}

std::string LinePrefix::bar() const {
  if (!redrawn_ && !overwrites_) return "";
  const std::string text = WithoutErasing(line_);
  return text.empty() ? "" : prefix_ + text;
}

std::string LinePrefix::TakeLine() {
  overwrites_ = false;
  std::string line = std::exchange(line_, {});
  if (std::exchange(redrawn_, false)) line = WithoutErasing(std::move(line));
  line.insert(0, prefix_);
  line.push_back('\n');
  return line;
}

}  // namespace commsched::cli
