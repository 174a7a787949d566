// The small members of an all-to-all as one, so that what they have for a peer
// is one message.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_PARTS_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_PARTS_H_

#include <cstdint>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"
#include "ucx/algorithms/operation.h"
#include "ucx/algorithms/packed_launch.h"

namespace commsched::ucx {

// Packed is what all members (PackRule) have for rank 0, then for rank 1, and
// so on, without this rank's own parts: what it sends, and behind that, in
// scratch, what it receives. Counts are elements. Uses room of `operation`: one
// of it at a time. Thread-compatible.
class PackedParts {
 public:
  PackedParts(const LaunchTask& task, Operation* operation);
  PackedParts(const PackedParts&) = delete;
  PackedParts& operator=(const PackedParts&) = delete;

  bool has_packed() const { return !pack_.members.empty(); }
  bool IsPacked(uint32_t member) const;
  uint64_t scratch_bytes() const { return 2 * area_bytes_; }
  char* sent() const { return op_.scratch.address; }
  char* received() const { return op_.scratch.address + area_bytes_; }

  // Fills Operation::part_begins with where ranks' parts begin in what is sent,
  // or received, and where the last one ends.
  void FindSent() const { FindBegins(/*sends=*/true); }
  void FindReceived() const { FindBegins(/*sends=*/false); }
  // Copies the members' inputs to what is sent.
  void CopyIn() const;
  // Adds a step for each other rank, beginning with the next one, that copies
  // what has been received of it. Gives the number of the first one.
  uint32_t AddSteps(Builder* build) const;

 private:
  void FindBegins(bool sends) const;
  // Where members' parts begin in their inputs, or outputs.
  void FindPlaces(bool sends) const;
  uint64_t CountOf(const commsched_member_t& member, int peer,
                   bool sends) const;
  // Calls each(member, place, begin, count) for what members have for a peer,
  // or of it: `place` is where it is in the member, `begin` where in the pack.
  template <typename Each>
  void ForParts(int peer, bool sends, const Each& each) const;

  const LaunchTask& task_;
  Operation& op_;
  Operation::Pack& pack_;
  const int size_;
  const uint64_t element_bytes_;
  uint64_t area_bytes_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_PARTS_H_
