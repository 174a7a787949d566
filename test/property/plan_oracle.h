// What docs/happens_before.md says, by brute force: the verifier's oracle.
#ifndef COMMSCHED_TEST_PROPERTY_PLAN_ORACLE_H_
#define COMMSCHED_TEST_PROPERTY_PLAN_ORACLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace commsched::test {

// A directed graph with its transitive closure.
class Closure {
 public:
  explicit Closure(uint32_t size) : size_(size), words_((size + 63) / 64) {
    reach_.assign(size_t{size} * words_, 0);
  }
  void Add(uint32_t from, uint32_t to) {
    reach_[size_t{from} * words_ + to / 64] |= uint64_t{1} << (to % 64);
  }
  void Close();  // Warshall
  bool Reaches(uint32_t from, uint32_t to) const {
    return (reach_[size_t{from} * words_ + to / 64] >> (to % 64) & 1) != 0;
  }
  bool HasCycle() const;

 private:
  const uint32_t size_;
  const size_t words_;
  std::vector<uint64_t> reach_;
};

// Expands three steps of `plan` and answers from the closure. Each answer is
// what is wrong, or empty. Cubic.
class PlanOracle {
 public:
  static constexpr int kSteps = 3;

  explicit PlanOracle(const Plan& plan);

  std::string FindRace();      // graph and arena
  std::string FindOverCap();   // the window
  std::string FindDeadlock();  // waits against host and issue order

 private:
  using Nodes = std::vector<uint32_t>;
  struct Use {
    Nodes nodes;         // several: pieces of a split collective
    bool fresh = false;  // writes all and reads nothing
  };
  // A buffer or staging memory in the arena, its uses in declared order.
  struct Occupant {
    std::string name;
    uint64_t begin = 0, end = 0;
    std::vector<Use> uses;
    bool staging = false;
    uint32_t place_group = 0;
  };

  uint32_t num_nodes() const {
    return static_cast<uint32_t>(plan_.nodes.size() + plan_.launches.size());
  }
  // Compute nodes first, in host order, then launches.
  Nodes NodesOf(OpId op) const;
  uint32_t NodeOf(NodeRef ref) const;
  uint32_t Start(int step, uint32_t node) const {
    return 2 * (static_cast<uint32_t>(step) * num_nodes() + node);
  }
  uint32_t Complete(int step, uint32_t node) const {
    return Start(step, node) + 1;
  }
  absl::Span<const Wait> WaitsOf(uint32_t node) const;
  void AddOrder();
  bool Ordered(int from_step, uint32_t from, int to_step, uint32_t to) const {
    return order_.Reaches(Complete(from_step, from), Start(to_step, to));
  }
  bool Ordered(int from_step, const Nodes& from, int to_step,
               const Nodes& to) const;
  std::vector<Occupant> Occupants() const;
  std::string FindArenaRace() const;
  bool Undisturbed(const Occupant& x, const Occupant& y) const;

  const Plan& plan_;
  Closure order_;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_PROPERTY_PLAN_ORACLE_H_
