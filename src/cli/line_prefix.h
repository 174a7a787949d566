#ifndef COMMSCHED_SRC_CLI_LINE_PREFIX_H_
#define COMMSCHED_SRC_CLI_LINE_PREFIX_H_

#include <cstddef>
#include <string>
#include <utility>

namespace commsched::cli {

// Puts a prefix before every line of a stream that comes in pieces, so that
// lines of several streams can be told apart and do not mix. Thread-compatible.
class LinePrefix {
 public:
  // A longer line is passed on in parts, each as a line.
  static constexpr size_t kMaxLineBytes = 64 << 10;

  explicit LinePrefix(std::string prefix) : prefix_(std::move(prefix)) {}

  // Takes what has come, and returns the lines that are whole. A carriage
  // return ends a line, too: progress bars end theirs so.
  std::string Add(const std::string& bytes);
  // The stream has ended: what is left of a line.
  std::string End();

 private:
  std::string TakeLine();

  const std::string prefix_;
  std::string line_;  // Not whole yet.
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_LINE_PREFIX_H_
