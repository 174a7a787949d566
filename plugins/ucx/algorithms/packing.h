// The members of a launch one behind the other, so that all of them travel in
// one message.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKING_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKING_H_

#include <cstdint>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"
#include "ucx/algorithms/operation.h"

namespace commsched::ucx {

// Packed are the members' arrays or, of kinds with a part for each rank, what
// all members have for the rank of place 0 (Layout::PlaceOf), then of place 1,
// and so on. Counts are elements.
class Packing {
 public:
  // `operation` keeps where parts begin: one Packing of it at a time.
  Packing(const LaunchTask& task, Operation* operation);

  uint64_t count() const { return count_; }
  // Of kinds with parts: what is packed before those of `place`, 0..size.
  uint64_t Begin(int place) const {
    return op_.part_begins[static_cast<size_t>(place)];
  }
  uint64_t Bytes(uint64_t count) const { return count * element_bytes_; }

  // Whether the inputs lie as they are packed, at the first member's. Else they
  // are packed to memory of the caller's. Not of an all-gather.
  bool IsInputPacked() const;
  // Whether outputs may be where inputs are that still have to go out.
  bool IsInPlace() const;
  void PackInputs(char* to) const;
  // Of an all-gather or a reduce-scatter: this rank's part. `to` and `from` are
  // where it lies packed.
  void PackOwnPart(char* to) const;
  void CopyOwnPartOut(const char* from, Builder* build) const;
  // The last step copies what is packed at `from` to the outputs. Of an
  // all-gather, parts begin there with those of `first_place`.
  void CopyOut(const char* from, Builder* build, int first_place = 0) const;
  // Of a broadcast's root: its outputs are its inputs.
  void CopyInputsToOutputs() const;

  // Calls each(rank, address, count) for the parts of the only member, in an
  // input or output with a part for each rank.
  template <typename Each>
  void ForPartsOfOne(const Each& each) const {
    ForParts(0, [&](int rank, char* address, uint64_t, uint64_t count) {
      each(rank, address, count);
    });
  }

 private:
  // Of a member.
  uint64_t PartCount(const commsched_member_t& member, int rank) const {
    return member.counts == nullptr ? member.count
                                    : member.counts[static_cast<size_t>(rank)];
  }
  bool HasParts() const {
    return task_.launch.kind == COMMSCHED_ALL_GATHER ||
           task_.launch.kind == COMMSCHED_REDUCE_SCATTER;
  }
  char* At(const void* base, uint64_t element) const {
    // As a number: nothing is at `base` where a launch is only measured.
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(base) +
                                   Bytes(element));
  }
  void FindBegins();
  void Move(const void* from, void* to, uint64_t count) const;

  // Calls each(rank, address, fill, count) for the parts of member `m`: `fill`
  // elements of their place have been packed before them.
  template <typename Each>
  void ForParts(uint32_t m, const Each& each) const {
    const commsched_member_t& member = task_.launch.members[m];
    const bool gathers = task_.launch.kind == COMMSCHED_ALL_GATHER;
    const void* const base = gathers ? member.output : member.input;
    const uint64_t stride =
        gathers ? member.output_stride : member.input_stride;
    uint64_t begin = 0;
    for (int rank = 0; rank < task_.layout.size(); ++rank) {
      const uint64_t count = PartCount(member, rank);
      uint64_t& fill = op_.part_fills[static_cast<size_t>(rank)];
      if (m == 0) fill = 0;
      each(rank, At(base, begin), fill, count);
      fill += count;
      const bool is_dense = member.counts != nullptr || stride == 0;
      begin += is_dense ? count : stride;
    }
  }

  const LaunchTask& task_;
  Operation& op_;
  const uint64_t element_bytes_;
  uint64_t count_ = 0;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_PACKING_H_
