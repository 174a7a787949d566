#include "ucx/algorithms/packed_parts.h"

#include <cstring>

namespace commsched::ucx {

PackedParts::PackedParts(const LaunchTask& task, uint64_t chunk_bytes,
                         Operation* operation)
    : task_(task),
      op_(*operation),
      pack_(operation->pack),
      size_(task.layout.size()),
      pair_counts_(task.launch, size_, task.rank),
      element_bytes_(ElementBytes(task.launch.dtype)) {
  if (task.launch.kind != COMMSCHED_ALL_TO_ALL) return;
  const size_t num_pairs = 2 * static_cast<size_t>(size_);
  pack_.counts.assign(num_pairs, kNoPack);
  pack_.begins.assign(num_pairs, 0);
  pack_.digests.assign(num_pairs, 0);
  pack_.is_packed.assign(num_pairs * task.launch.num_members, 0);
  FindPacks(chunk_bytes, /*sends=*/true);
  FindPacks(chunk_bytes, /*sends=*/false);
}

void PackedParts::FindPacks(uint64_t chunk_bytes, bool sends) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == task_.rank) continue;
    PairPack pack(size_, element_bytes_, chunk_bytes, task_.packs,
                  HasOwnCounts(task_.launch));
    const size_t first = FlagOf(0, peer, sends);
    for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
      pack_.is_packed[first + m] = pack.Add(CountOf(m, peer, sends)) ? 1 : 0;
    }
    if (!pack.has_parts()) {
      for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
        pack_.is_packed[first + m] = 0;
      }
    }
    if (!pack.exists()) continue;
    const size_t pair = PairOf(peer, sends);
    pack_.counts[pair] = pack.bytes();
    pack_.digests[pair] = pack.digest();
    pack_.begins[pair] = scratch_bytes_;
    scratch_bytes_ += ScratchBytesOf(pack.bytes());
  }
}

void PackedParts::FindPlaces(bool sends) const {
  pack_.places.clear();
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    const commsched_member_t& member = task_.launch.members[m];
    const uint64_t stride = sends ? member.input_stride : member.output_stride;
    const bool is_dense = member.counts != nullptr || stride == 0;
    uint64_t begin = 0;
    for (int peer = 0; peer < size_; ++peer) {
      pack_.places.push_back(begin);
      begin += is_dense ? CountOf(m, peer, sends) : stride;
    }
  }
}

template <typename Each>
void PackedParts::ForParts(int peer, bool sends, const Each& each) const {
  char* address = AddressOf(peer, sends) + PairPack::kDigestBytes;
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    if (!IsPacked(m, peer, sends)) continue;
    const uint64_t bytes = CountOf(m, peer, sends) * element_bytes_;
    const uint64_t place =
        pack_
            .places[m * static_cast<size_t>(size_) + static_cast<size_t>(peer)];
    each(task_.launch.members[m], place * element_bytes_, address, bytes);
    address += bytes;
  }
}

void PackedParts::CopyIn() const {
  if (task_.measures) return;
  FindPlaces(/*sends=*/true);
  for (int peer = 0; peer < size_; ++peer) {
    if (BytesOf(peer, /*sends=*/true) == kNoPack) continue;
    std::memcpy(AddressOf(peer, /*sends=*/true),
                &pack_.digests[PairOf(peer, /*sends=*/true)],
                PairPack::kDigestBytes);
    ForParts(peer, /*sends=*/true,
             [](const commsched_member_t& member, uint64_t place, char* address,
                uint64_t bytes) {
               if (bytes == 0) return;
               std::memcpy(address,
                           static_cast<const char*>(member.input) + place,
                           bytes);
             });
  }
}

uint32_t PackedParts::AddSteps(Builder* build) const {
  FindPlaces(/*sends=*/false);
  // Copies of parts that are next to each other today are one.
  if (task_.measures) op_.copies.reserve(pack_.is_packed.size() / 2);
  uint32_t first = 0;
  for (int distance = 1; distance < size_; ++distance) {
    const int peer = (task_.rank + distance) % size_;
    const uint32_t step = build->AddStep();
    if (distance == 1) first = step;
    if (BytesOf(peer, /*sends=*/false) == kNoPack) continue;
    build->Check({.peer = peer,
                  .digest = AddressOf(peer, /*sends=*/false),
                  .expected = pack_.digests[PairOf(peer, /*sends=*/false)]});
    ForParts(peer, /*sends=*/false,
             [&](const commsched_member_t& member, uint64_t place,
                 const char* address, uint64_t bytes) {
               // As a number: nothing is there where a launch is only measured.
               const auto to =
                   reinterpret_cast<uintptr_t>(member.output) + place;
               build->AddCopy(address, reinterpret_cast<void*>(to), bytes);
             });
  }
  return first;
}

}  // namespace commsched::ucx
