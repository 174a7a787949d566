#ifndef COMMSCHED_SRC_CLI_OUTPUT_PUMP_H_
#define COMMSCHED_SRC_CLI_OUTPUT_PUMP_H_

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/child.h"
#include "cli/line_prefix.h"
#include "cli/outlet.h"

namespace commsched::cli {

// Passes on what ranks print: from their pipes to this process' standard output
// and standard error, each line whole, with the rank before it if asked to.
// Never waits for a reader: while one does not take what is there, the ranks'
// pipes are left alone, so that they wait for it in their turn.
//
// A progress bar that a rank draws on its standard error is drawn in the last
// line of the terminal, below all other output, if that is where standard error
// goes.
//
// Thread-compatible.
class OutputPump {
 public:
  // The outlets outlive the pump.
  OutputPump(Outlet* out, Outlet* err, bool prefixes);

  // Passes on what `child` prints, which outlives the pump or calls before it.
  void Add(int rank, Child* child);

  // A line of this process' own, on standard error.
  void Say(const std::string& line);

  // Adds what is worth waiting for: ranks that may be read from, and readers
  // that have not taken all yet.
  void AddTo(std::vector<pollfd>* fds) const;

  // Reads and writes what can be at once. Does not block.
  void Turn();

  // Ends what ranks print to an outlet that has no reader any more: who prints
  // more gets SIGPIPE.
  void CloseUnread();

  // No rank can print any more, and all of it has been written.
  bool IsOver() const;
  // Once no rank prints any more: what is left of their last lines.
  void Finish();

  // Bytes that readers have not taken, and those that they have.
  size_t pending_bytes() const {
    return out_->pending_bytes() + err_->pending_bytes();
  }
  int64_t written_bytes() const {
    return out_->written_bytes() + err_->written_bytes();
  }

 private:
  // What one rank prints.
  struct Source {
    Child* child = nullptr;
    std::optional<LinePrefix> out;
    std::optional<LinePrefix> err;
  };

  bool may_read(const Outlet& outlet) const { return !outlet.is_full(); }
  void Read(Source* source, bool is_error);
  void Emit(Outlet* outlet, const std::string& lines);
  void DrawBar(const Source* source);
  void EraseBar();

  Outlet* const out_;
  Outlet* const err_;
  const bool prefixes_;
  std::vector<std::unique_ptr<Source>> sources_;

  // What is drawn in the last line of the terminal, and for whom.
  std::string bar_;
  const Source* bar_of_ = nullptr;
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_OUTPUT_PUMP_H_
