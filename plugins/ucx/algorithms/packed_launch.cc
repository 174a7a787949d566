#include "ucx/algorithms/packed_launch.h"

#include <algorithm>
#include <cstring>

namespace commsched::ucx {

bool PackRule::IsPacked(const commsched_member_t& member) {
  if (launch_.num_members < 2 || packs_ == LaunchTask::Packs::kNone) {
    return false;
  }
  const uint64_t elements = MemberElements(launch_, member, size_);
  const uint64_t bytes = ElementBytes(launch_.dtype);
  const uint64_t most = static_cast<uint64_t>(size_) * (kMostPartBytes / bytes);
  const bool is_small =
      elements <= most && elements_ + elements <= kMostBytes / bytes;
  if (!is_small && packs_ != LaunchTask::Packs::kAll) return false;
  has_packed_ = true;
  elements_ += elements;
  return true;
}

PackedLaunch::PackedLaunch(const LaunchTask& task, Operation* operation)
    : task_(task),
      pack_(operation->pack),
      launch_(task.launch),
      element_bytes_(ElementBytes(task.launch.dtype)),
      area_(operation->scratch.address) {
  pack_.members.clear();
  pack_.places.clear();
  pack_.arrays.assign(1, {});  // The pack, if there is one.
  PackRule rule(task.launch, task.layout.size(), task.packs);
  for (uint32_t m = 0; m < task.launch.num_members; ++m) {
    const commsched_member_t& member = task.launch.members[m];
    if (rule.IsPacked(member)) {
      pack_.members.push_back(m);
      if (HasParts()) AddParts(member);
    } else {
      pack_.arrays.push_back(member);
    }
  }
  has_pack_ = rule.has_packed();
  if (!has_pack_) return;
  MakePack(rule.elements());
  launch_.members = pack_.arrays.data();
  launch_.num_members = static_cast<uint32_t>(pack_.arrays.size());
}

// Where its parts begin, in its side that has them.
void PackedLaunch::AddParts(const commsched_member_t& member) {
  const uint64_t stride = launch_.kind == COMMSCHED_ALL_GATHER
                              ? member.output_stride
                              : member.input_stride;
  uint64_t begin = 0;
  for (int rank = 0; rank < task_.layout.size(); ++rank) {
    pack_.places.push_back(begin);
    const bool is_dense = member.counts != nullptr || stride == 0;
    begin += is_dense ? CountOf(member, rank) : stride;
  }
}

void PackedLaunch::MakePack(uint64_t elements) {
  scratch_bytes_ = ScratchBytesOf(elements * element_bytes_);
  commsched_member_t& pack = pack_.arrays[0];
  pack.input = pack.output = area_;
  pack.count = elements;
  if (!HasParts()) return;
  const auto size = static_cast<size_t>(task_.layout.size());
  pack_.counts.assign(size, 0);
  pack_.begins.assign(size + 1, 0);
  for (const uint32_t m : pack_.members) {
    for (size_t rank = 0; rank < size; ++rank) {
      pack_.counts[rank] +=
          CountOf(task_.launch.members[m], static_cast<int>(rank));
    }
  }
  for (size_t rank = 0; rank < size; ++rank) {
    pack_.begins[rank + 1] = pack_.begins[rank] + pack_.counts[rank];
  }
  pack.counts = pack_.counts.data();
  char* const own = At(area_, pack_.begins[static_cast<size_t>(task_.rank)]);
  if (launch_.kind == COMMSCHED_ALL_GATHER) {
    pack.input = own;
  } else {
    pack.output = own;
  }
}

char* PackedLaunch::At(const void* base, uint64_t element) const {
  // As a number: nothing is at `base` where a launch is only measured.
  return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(base) +
                                 element * element_bytes_);
}

void PackedLaunch::Move(const void* from, void* to, uint64_t count) const {
  if (task_.measures || from == to || count == 0) return;
  std::memmove(to, from, count * element_bytes_);
}

template <typename Each>
void PackedLaunch::ForPieces(int owner, const Each& each) const {
  const auto part = static_cast<size_t>(owner);
  const auto size = static_cast<size_t>(task_.layout.size());
  uint64_t begin = HasParts() ? pack_.begins[part] : 0;
  for (size_t i = 0; i < pack_.members.size(); ++i) {
    const commsched_member_t& member = task_.launch.members[pack_.members[i]];
    const uint64_t place = HasParts() ? pack_.places[i * size + part] : 0;
    const uint64_t count = CountOf(member, owner);
    each(member, place, begin, count);
    begin += count;
  }
}

void PackedLaunch::CopyIn() const {
  if (!has_pack_) return;
  const bool scatters = launch_.kind == COMMSCHED_REDUCE_SCATTER;
  const bool has_root_only = launch_.kind == COMMSCHED_BROADCAST;
  if (has_root_only && task_.rank != launch_.root) return;
  const int first = scatters ? 0 : task_.rank;
  const int end = scatters ? task_.layout.size() : task_.rank + 1;
  for (int owner = first; owner < end; ++owner) {
    ForPieces(owner, [&](const commsched_member_t& member, uint64_t place,
                         uint64_t begin, uint64_t count) {
      Move(At(member.input, scatters ? place : 0), At(area_, begin), count);
      if (launch_.kind == COMMSCHED_ALL_GATHER || has_root_only) {
        Move(member.input, At(member.output, place), count);
      }
    });
  }
}

void PackedLaunch::CopyOut(int owner, uint64_t begin, uint64_t count,
                           Builder* build) const {
  const bool gathers = launch_.kind == COMMSCHED_ALL_GATHER;
  ForPieces(owner, [&](const commsched_member_t& member, uint64_t place,
                       uint64_t piece_begin, uint64_t piece_count) {
    const uint64_t from = std::max(begin, piece_begin);
    const uint64_t end = std::min(begin + count, piece_begin + piece_count);
    if (from >= end) return;
    const uint64_t to = (gathers ? place : 0) + from - piece_begin;
    build->AddCopy(At(area_, from), At(member.output, to),
                   (end - from) * element_bytes_);
  });
}

}  // namespace commsched::ucx
