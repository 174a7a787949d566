// What every test of the suite is run on.
#ifndef COMMSCHED_TEST_CONFORMANCE_BACKEND_FIXTURE_H_
#define COMMSCHED_TEST_CONFORMANCE_BACKEND_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "comm/world.h"
#include "control/server.h"
#include "gtest/gtest.h"
#include "test/support/comm_driver.h"
#include "test/support/fault_backend.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"
#include "test/support/virtual_backend.h"

namespace commsched {

// One way to run a backend. To try another backend, add it to AllBackends() in
// backend_fixture.cc.
struct BackendCase {
  std::string name;
  std::string backend;
  int size = 1;
  bool deterministic = true;
  std::string config = {};  // backend_config
  // Backends of test/support, made by the fixture.
  enum class Wrap { kNone, kVirtual, kFaultless };
  Wrap wrap = Wrap::kNone;
  // The file that has it; empty: built in.
  std::string plugin = {};
  // COMMSCHED_BACKEND_*: what it must say that it can do; and all that the
  // suite asks for.
  static constexpr uint32_t kForChannels =
      COMMSCHED_BACKEND_TAGS | COMMSCHED_BACKEND_OWN_COUNTS;
  uint32_t capabilities = COMMSCHED_BACKEND_VECTORED |
                          COMMSCHED_BACKEND_TREE_SUMS |
                          COMMSCHED_BACKEND_STRIDED | COMMSCHED_BACKEND_P2P;
  // Looks at the arguments of launches, and whether members gave the same. One
  // that does not relies on the planner and on the ranks' comparing of plans.
  bool checks_launches = true;
  // Ranks have a CUDA device each.
  bool on_cuda = false;
  // The least and the greatest of something and NaN is NaN.
  bool keeps_nan = true;
  // Ranks have a world each, as processes have, and meet at a control server.
  bool processes = false;
  // This process is one of them (`commsched run -n N -- test_conformance`), and
  // runs the same tests as the others.
  bool own_process = false;
  // What its table must say that it reduces by.
  uint32_t reductions = COMMSCHED_BACKEND_BASIC_REDUCTIONS;
};

inline std::ostream& operator<<(std::ostream& out, const BackendCase& param) {
  return out << param.name;
}

// In a job of processes: the one of that job. Where the environment names a
// backend, that one alone (docs/writing_a_plugin.md): COMMSCHED_TEST_BACKEND,
// _CONFIG, _RANKS and _CHECKS_LAUNCHES.
std::vector<BackendCase> AllBackends();
// Those of AllBackends() that a suite is about: with all `capabilities`, at
// least `size` ranks, and that satisfy `also`.
std::vector<BackendCase> BackendsWith(
    uint32_t capabilities, int size = 1,
    const std::function<bool(const BackendCase&)>& also = nullptr);

// Whether its launches are polled, and not seen through events of a stream.
bool IsPolled(const BackendCase& one);

// For what shares memory between ranks to tell them apart in time.
bool IsOneProcess(const BackendCase& one);

// The cases of a suite, named by backend. None is instantiated to be skipped.
#define COMMSCHED_INSTANTIATE_CONFORMANCE(suite, cases)          \
  INSTANTIATE_TEST_SUITE_P(All, suite, testing::ValuesIn(cases), \
                           [](const auto& info) { return info.param.name; })

class BackendTest : public testing::TestWithParam<BackendCase> {
 protected:
  BackendTest();
  ~BackendTest() override;

  int size() const { return GetParam().size; }
  bool deterministic() const { return GetParam().deterministic; }
  // Whether it has all of these COMMSCHED_BACKEND_*.
  bool Can(uint32_t capabilities) const {
    return (GetParam().capabilities & capabilities) == capabilities;
  }

  // Runs `body(rank)` on every rank, and returns their statuses.
  std::vector<absl::Status> OnRanks(
      const std::function<absl::Status(int rank)>& body);
  // The first that is not OK.
  absl::Status OnRanksAll(const std::function<absl::Status(int rank)>& body);
  // Runs `body(rank, comm)` on every rank with a communicator over all.
  using Body = std::function<absl::Status(int rank, CommDriver& comm)>;
  std::vector<absl::Status> OnComm(const Body& body, CommSpec spec = {});
  absl::Status OnCommAll(const Body& body, CommSpec spec = {});

  // Whether a rank has been refused because it has given up on another, which
  // was late after an earlier failure: on a busy machine that may be any. Its
  // memory is safe since its world does nothing any more.
  static bool AnyWorldHasEnded(const std::vector<absl::Status>& statuses);

  World* WorldOf(int rank) const {
    return worlds_[worlds_.size() == 1 ? 0 : static_cast<size_t>(rank)].get();
  }
  // A rank that lives in this process.
  int OwnRank() const { return std::max(0, worlds_[0]->own_rank()); }

 private:
  std::shared_ptr<World> Make();
  void JoinAll();
  void JoinOwn();

  uint64_t num_scopes_ = 0;
  uint64_t num_meetings_ = 0;
  std::unique_ptr<test::VirtualBackend> virtual_backend_;
  std::unique_ptr<test::FaultBackend> fault_backend_;
  std::unique_ptr<ControlServer> server_;
  std::vector<std::shared_ptr<World>> worlds_;  // One, or one per rank.
};

// Gives other threads the core some random number of times.
void YieldSometimes(uint64_t seed);

}  // namespace commsched

#endif  // COMMSCHED_TEST_CONFORMANCE_BACKEND_FIXTURE_H_
