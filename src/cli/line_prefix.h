#ifndef COMMSCHED_SRC_CLI_LINE_PREFIX_H_
#define COMMSCHED_SRC_CLI_LINE_PREFIX_H_

#include <cstddef>
#include <string>
#include <utility>

namespace commsched::cli {

// Puts a prefix before every line of a stream that comes in pieces, so that
// lines of several streams can be told apart and do not mix. Thread-compatible.
//
// A carriage return goes back to the begin of the line, and what follows is
// written over it: progress bars do so. In a file or a pipe each state of such
// a line is a line; on a terminal it is left out once another one follows, and
// bar() is what the line shows now.
class LinePrefix {
 public:
  enum class Output { kFile, kTerminal };

  // A longer line is passed on in parts, each as a line.
  static constexpr size_t kMaxLineBytes = 64 << 10;

  explicit LinePrefix(std::string prefix, Output output = Output::kFile)
      : prefix_(std::move(prefix)), output_(output) {}

  // Takes what has come, and returns the lines that are whole.
  std::string Add(const std::string& bytes);
  // The stream has ended: what is left of a line. Of a bar nothing is.
  std::string End();

  // On a terminal, with the prefix and without an end: the line that is being
  // drawn. "": none is, or it has been erased.
  std::string bar() const;

 private:
  std::string TakeLine();

  const std::string prefix_;
  const Output output_;
  std::string line_;         // Not whole yet.
  bool redrawn_ = false;     // `line_` follows a carriage return.
  bool overwrites_ = false;  // The last byte was one: what comes replaces it.
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_LINE_PREFIX_H_
