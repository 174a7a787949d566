#include "cli/line_prefix.h"

namespace commsched::cli {

std::string LinePrefix::Add(const std::string& bytes) {
  std::string whole;
  for (const char c : bytes) {
    const bool ends = c == '\n' || c == '\r';
    if (!ends) line_.push_back(c);
    // Of "\r\n" and of a bar that erases itself nothing is left to say.
    if (c == '\r' && line_.empty()) continue;
    if (ends || line_.size() >= kMaxLineBytes) whole += TakeLine();
  }
  return whole;
}

std::string LinePrefix::End() { return line_.empty() ? "" : TakeLine(); }

std::string LinePrefix::TakeLine() {
  std::string line = prefix_ + std::exchange(line_, {});
  line.push_back('\n');
  return line;
}

}  // namespace commsched::cli
