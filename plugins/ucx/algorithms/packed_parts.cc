#include "ucx/algorithms/packed_parts.h"

#include <algorithm>
#include <cstring>

namespace commsched::ucx {

PackedParts::PackedParts(const LaunchTask& task, Operation* operation)
    : task_(task),
      op_(*operation),
      pack_(operation->pack),
      size_(task.layout.size()),
      element_bytes_(ElementBytes(task.launch.dtype)) {
  pack_.members.clear();
  if (task.launch.kind != COMMSCHED_ALL_TO_ALL) return;
  PackRule rule(task.launch, size_, task.packs);
  for (uint32_t m = 0; m < task.launch.num_members; ++m) {
    if (rule.IsPacked(task.launch.members[m])) pack_.members.push_back(m);
  }
  if (pack_.members.size() == 1) pack_.members.clear();
  if (has_packed()) {
    area_bytes_ = ScratchBytesOf(rule.elements() * element_bytes_);
  }
}

bool PackedParts::IsPacked(uint32_t member) const {
  return std::binary_search(pack_.members.begin(), pack_.members.end(), member);
}

// Row r of the counts is what rank r sends, column r what it gets.
uint64_t PackedParts::CountOf(const commsched_member_t& member, int peer,
                              bool sends) const {
  if (member.counts == nullptr) return member.count;
  const auto n = static_cast<size_t>(size_);
  const auto from = static_cast<size_t>(sends ? task_.rank : peer);
  const auto to = static_cast<size_t>(sends ? peer : task_.rank);
  return member.counts[from * n + to];
}

void PackedParts::FindBegins(bool sends) const {
  op_.part_begins.assign(1, 0);
  for (int peer = 0; peer < size_; ++peer) {
    uint64_t end = op_.part_begins.back();
    for (const uint32_t m : pack_.members) {
      if (peer == task_.rank) break;
      end += CountOf(task_.launch.members[m], peer, sends);
    }
    op_.part_begins.push_back(end);
  }
}

void PackedParts::FindPlaces(bool sends) const {
  pack_.places.clear();
  for (const uint32_t m : pack_.members) {
    const commsched_member_t& member = task_.launch.members[m];
    const uint64_t stride = sends ? member.input_stride : member.output_stride;
    const bool is_dense = member.counts != nullptr || stride == 0;
    uint64_t begin = 0;
    for (int peer = 0; peer < size_; ++peer) {
      pack_.places.push_back(begin);
      begin += is_dense ? CountOf(member, peer, sends) : stride;
    }
  }
}

template <typename Each>
void PackedParts::ForParts(int peer, bool sends, const Each& each) const {
  const auto p = static_cast<size_t>(peer);
  uint64_t begin = op_.part_begins[p];
  for (size_t i = 0; i < pack_.members.size(); ++i) {
    const commsched_member_t& member = task_.launch.members[pack_.members[i]];
    const uint64_t count = CountOf(member, peer, sends);
    each(member, pack_.places[i * static_cast<size_t>(size_) + p], begin,
         count);
    begin += count;
  }
}

void PackedParts::CopyIn() const {
  FindSent();
  FindPlaces(/*sends=*/true);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == task_.rank || task_.measures) continue;
    ForParts(peer, /*sends=*/true,
             [&](const commsched_member_t& member, uint64_t place,
                 uint64_t begin, uint64_t count) {
               if (count == 0) return;
               std::memcpy(sent() + begin * element_bytes_,
                           static_cast<const char*>(member.input) +
                               place * element_bytes_,
                           count * element_bytes_);
             });
  }
}

uint32_t PackedParts::AddSteps(Builder* build) const {
  FindReceived();
  FindPlaces(/*sends=*/false);
  uint32_t first = 0;
  for (int distance = 1; distance < size_; ++distance) {
    const uint32_t step = build->AddStep();
    if (distance == 1) first = step;
    ForParts((task_.rank + distance) % size_, /*sends=*/false,
             [&](const commsched_member_t& member, uint64_t place,
                 uint64_t begin, uint64_t count) {
               // As a number: nothing is there where a launch is only measured.
               const auto to = reinterpret_cast<uintptr_t>(member.output) +
                               place * element_bytes_;
               build->AddCopy(received() + begin * element_bytes_,
                              reinterpret_cast<void*>(to),
                              count * element_bytes_);
             });
  }
  return first;
}

}  // namespace commsched::ucx
