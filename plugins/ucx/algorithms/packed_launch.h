// A launch whose small members travel as one, so that each of its parts is one
// message.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_LAUNCH_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_LAUNCH_H_

#include <cstdint>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"
#include "ucx/algorithms/operation.h"
#include "ucx/algorithms/pair_pack.h"

namespace commsched::ucx {

// Of a launch's members, in their order, which are packed: those whose part for
// a rank is small, up to a limit of all. Equal on all ranks. Not of an
// all-to-all (pair_pack.h).
class PackRule {
 public:
  // Up to here copying a member at both ends costs less than the messages of
  // its own that it saves.
  static constexpr uint64_t kMostPartBytes = PairPack::kMostPartBytes;
  static constexpr uint64_t kMostBytes = PairPack::kMostBytes;

  PackRule(const commsched_launch_t& launch, int size,
           LaunchTask::Packs packs = LaunchTask::Packs::kSmall)
      : launch_(launch), size_(size), packs_(packs) {}

  // Asked once for each member, in their order.
  bool IsPacked(const commsched_member_t& member);
  // Of those so far.
  bool has_packed() const { return has_packed_; }
  uint64_t elements() const { return elements_; }

 private:
  const commsched_launch_t& launch_;
  const int size_;
  const LaunchTask::Packs packs_;
  bool has_packed_ = false;
  uint64_t elements_ = 0;
};

// The pack is a member like any other, the first one, in scratch: of kinds with
// a part for each rank uneven ones, else an array. It is in place. Of a launch
// without parts, or with one member, nothing is packed. Uses room of
// `operation`: one of it at a time. Thread-compatible.
class PackedLaunch {
 public:
  PackedLaunch(const LaunchTask& task, Operation* operation);
  PackedLaunch(const PackedLaunch&) = delete;
  PackedLaunch& operator=(const PackedLaunch&) = delete;

  // What is done instead of the launch.
  const commsched_launch_t& launch() const { return launch_; }
  uint64_t scratch_bytes() const { return scratch_bytes_; }  // The first ones.
  // Whether this is the pack, of the members of launch().
  bool IsPack(const commsched_member_t& member) const {
    return has_pack_ && &member == launch_.members;
  }

  // Copies to the pack what this rank sends of it, and to the members' outputs
  // what it has of them already.
  void CopyIn() const;
  // The last step copies elements of the pack, which is complete there, to the
  // members' outputs: `count` from `begin` of the whole, of the part of rank
  // `owner` if there are parts.
  void CopyOut(int owner, uint64_t begin, uint64_t count, Builder* build) const;

 private:
  bool HasParts() const {
    return launch_.kind == COMMSCHED_ALL_GATHER ||
           launch_.kind == COMMSCHED_REDUCE_SCATTER;
  }
  uint64_t CountOf(const commsched_member_t& member, int owner) const {
    return HasParts() && member.counts != nullptr
               ? member.counts[static_cast<size_t>(owner)]
               : member.count;
  }
  void AddParts(const commsched_member_t& member);
  void MakePack(uint64_t elements);
  char* At(const void* base, uint64_t element) const;
  void Move(const void* from, void* to, uint64_t count) const;

  // Calls each(member, place, begin, count) for what members have in the part
  // of `owner`, or in the whole array: `place` is where it is in the member's
  // side with parts, `begin` where in the pack.
  template <typename Each>
  void ForPieces(int owner, const Each& each) const;

  const LaunchTask& task_;
  Operation::Pack& pack_;
  commsched_launch_t launch_;
  const uint64_t element_bytes_;
  char* const area_;
  bool has_pack_ = false;
  uint64_t scratch_bytes_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKED_LAUNCH_H_
