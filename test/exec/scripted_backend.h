// A backend that does what the test says, and notes what it was asked.
#ifndef COMMSCHED_TEST_EXEC_SCRIPTED_BACKEND_H_
#define COMMSCHED_TEST_EXEC_SCRIPTED_BACKEND_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "commsched/plugin.h"

namespace commsched::test {

// One rank. A launch is done once Finish() has been called for it.
//
// One thread.
class ScriptedBackend {
 public:
  struct Launched {
    uint64_t step = 0;
    uint32_t group = 0;
    uint32_t request = 0;
    const commsched_launch_t* call = nullptr;
    bool done = false;
    int64_t started_ns = 0;
    int64_t cpu_ns = 0;
    int64_t wake_at_ns = 0;
  };

  explicit ScriptedBackend(uint32_t num_groups);
  ScriptedBackend(const ScriptedBackend&) = delete;
  ScriptedBackend& operator=(const ScriptedBackend&) = delete;

  const commsched_backend_t* table() const { return &table_; }
  commsched_backend_t* mutable_table() { return &table_; }
  std::vector<void*> comms();

  // From here on it has comm_missing and comm_silent, which give these (nobody
  // who is silent is missing), and comm_starts.
  void KnowsWhoIsLate();
  std::vector<int32_t> missing;
  std::vector<int32_t> silent;
  std::deque<commsched_launch_start_t> starts;
  // What comm_missing does when it asks.
  std::function<void()> on_asked;
  uint64_t num_asked() const { return num_asked_; }

  // Called at the end of each launch(), before it returns.
  std::function<void(const Launched&)> on_launch;
  // What the next launch(), every poll() and every comm_status() fails with.
  std::string launch_error;
  std::string poll_error;
  std::string status_error;

  // In the order in which they were issued.
  std::vector<Launched>& launched() { return launched_; }
  uint64_t num_polls() const { return num_polls_; }
  void Finish(size_t index) { launched_[index].done = true; }

 private:
  struct Comm {
    ScriptedBackend* backend = nullptr;
    uint32_t group = 0;
  };
  friend struct ScriptedTable;

  commsched_backend_t table_ = {};
  std::deque<Comm> comms_;
  std::vector<Launched> launched_;
  uint64_t num_polls_ = 0;
  uint64_t num_asked_ = 0;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_EXEC_SCRIPTED_BACKEND_H_
