// One launch over all ranks: its memory, its inputs and what must come out.
#ifndef COMMSCHED_TEST_CONFORMANCE_COLLECTIVE_CASE_H_
#define COMMSCHED_TEST_CONFORMANCE_COLLECTIVE_CASE_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "commsched/plugin.h"
#include "test/conformance/reference.h"

namespace commsched {

// Everything is made before ranks start, so ranks only read it, and write their
// own outputs.
class CollectiveCase {
 public:
  // What inputs are filled with.
  enum class Values {
    kModerate,
    // Where floating-point numbers are summed: for each element ranks whose
    // values cancel out, large ones, among others with small ones. In another
    // order other small ones are lost.
    kCancelling,
  };

  // Fills inputs with values by `random`. `in_place` where the kind allows it.
  CollectiveCase(const Shape& shape, std::vector<MemberCase> members,
                 bool in_place, bool deterministic, std::mt19937_64& random,
                 Values values = Values::kModerate);

  // The launch of one rank; valid as long as the case.
  const commsched_launch_t& launch(int rank) const {
    return ranks_[rank].launch;
  }

  // Internal, saying where, unless the outputs of `rank` are what they must be
  // and nothing around them has changed.
  absl::Status Check(int rank) const;

  // The outputs of all members of `rank`, one behind the other.
  Bytes Outputs(int rank) const;

  // All memory of a member, inputs and outputs: to have the launch elsewhere.
  Bytes* arena(int rank, size_t member) {
    return &ranks_[static_cast<size_t>(rank)].memories[member].arena;
  }

  // Puts inputs back, as an in-place launch has overwritten them.
  void Reset(int rank);

  std::string Describe() const;

 private:
  // Where the elements of an input or output lie in an arena.
  struct Side {
    uint64_t offset = 0;
    uint64_t num_parts = 1;  // More than one: equal ones, a stride apart.
    uint64_t part_bytes = 0;
    uint64_t stride_bytes = 0;

    uint64_t bytes() const {  // from the first to the last
      return num_parts == 0 ? 0 : (num_parts - 1) * stride_bytes + part_bytes;
    }
  };
  static Bytes Gathered(const Bytes& arena, const Side& side);
  static void Scatter(const std::byte* dense, const Side& side, Bytes* arena);
  Side SideOf(const MemberCase& member, int rank, uint64_t elements,
              bool has_parts) const;

  // One member at one rank: arena = guard, input, guard, output, guard. In
  // place the two are one.
  struct Memory {
    Bytes arena;
    Bytes initial;
    Side input, output;
    Bytes expected;
  };
  struct Rank {
    std::vector<Memory> memories;
    std::vector<commsched_member_t> members;
    commsched_launch_t launch{};
  };

  std::vector<Bytes> DrawInputs(const MemberCase& member, Values values,
                                std::mt19937_64& random) const;
  Memory LayOut(const MemberCase& member, int rank) const;
  absl::Status CheckMember(int rank, size_t member) const;

  const Shape shape_;
  const std::vector<MemberCase> members_;
  const bool in_place_;
  const bool deterministic_;
  std::vector<Rank> ranks_;
};

// A case with a random shape for `size` ranks. `max_elements` per part.
Shape RandomShape(int size, std::mt19937_64& random);
MemberCase RandomMember(const Shape& shape, uint64_t max_elements,
                        std::mt19937_64& random);

}  // namespace commsched

#endif  // COMMSCHED_TEST_CONFORMANCE_COLLECTIVE_CASE_H_
