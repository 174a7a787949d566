#include "ucx/algorithms/packing.h"

#include <cstring>

namespace commsched::ucx {

Packing::Packing(const LaunchTask& task, Operation* operation)
    : task_(task),
      op_(*operation),
      element_bytes_(ElementBytes(task.launch.dtype)) {
  if (HasParts()) {
    FindBegins();
    return;
  }
  for (uint32_t m = 0; m < task.launch.num_members; ++m) {
    count_ += task.launch.members[m].count;
  }
}

void Packing::FindBegins() {
  const auto size = static_cast<size_t>(task_.layout.size());
  op_.part_begins.assign(size + 1, 0);
  op_.part_fills.assign(size, 0);
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    const commsched_member_t& member = task_.launch.members[m];
    for (int rank = 0; rank < task_.layout.size(); ++rank) {
      op_.part_begins[static_cast<size_t>(task_.layout.PlaceOf(rank)) + 1] +=
          PartCount(member, rank);
    }
  }
  for (size_t place = 0; place < size; ++place) {
    op_.part_begins[place + 1] += op_.part_begins[place];
  }
  count_ = op_.part_begins[size];
}

void Packing::Move(const void* from, void* to, uint64_t count) const {
  if (task_.measures || from == to || count == 0) return;
  std::memmove(to, from, Bytes(count));
}

bool Packing::IsInputPacked() const {
  if (task_.launch.num_members != 1) return false;
  if (!HasParts()) return true;
  const commsched_member_t& member = task_.launch.members[0];
  const bool is_dense = member.counts != nullptr || member.input_stride == 0 ||
                        member.input_stride == member.count;
  return is_dense && task_.layout.PlacesAreRanks();
}

bool Packing::IsInPlace() const {
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    const commsched_member_t& member = task_.launch.members[m];
    const auto input = reinterpret_cast<uintptr_t>(member.input);
    const auto output = reinterpret_cast<uintptr_t>(member.output);
    if (input <= output ? output < input + Bytes(count_)
                        : input < output + Bytes(count_)) {
      return true;
    }
  }
  return false;
}

void Packing::PackInputs(char* to) const {
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    const commsched_member_t& member = task_.launch.members[m];
    if (!HasParts()) {
      Move(member.input, to, member.count);
      to += Bytes(member.count);
      continue;
    }
    ForParts(m, [&](int rank, char* part, uint64_t fill, uint64_t count) {
      const int place = task_.layout.PlaceOf(rank);
      Move(part, to + Bytes(Begin(place) + fill), count);
    });
  }
}

void Packing::PackOwnPart(char* to) const {
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    const commsched_member_t& member = task_.launch.members[m];
    const uint64_t count = PartCount(member, task_.rank);
    Move(member.input, to, count);
    to += Bytes(count);
  }
}

void Packing::CopyOwnPartOut(const char* from, Builder* build) const {
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    const commsched_member_t& member = task_.launch.members[m];
    const uint64_t bytes = Bytes(PartCount(member, task_.rank));
    build->AddCopy(from, member.output, bytes);
    from += bytes;
  }
}

void Packing::CopyOut(const char* from, Builder* build, int first_place) const {
  const uint64_t first = HasParts() ? Begin(first_place) : 0;
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    const commsched_member_t& member = task_.launch.members[m];
    if (!HasParts()) {
      build->AddCopy(from, member.output, Bytes(member.count));
      from += Bytes(member.count);
      continue;
    }
    ForParts(m, [&](int rank, char* part, uint64_t fill, uint64_t count) {
      const uint64_t begin = Begin(task_.layout.PlaceOf(rank)) + fill;
      const uint64_t turned =
          begin >= first ? begin - first : begin + count_ - first;
      build->AddCopy(from + Bytes(turned), part, Bytes(count));
    });
  }
}

void Packing::CopyInputsToOutputs() const {
  for (uint32_t m = 0; m < task_.launch.num_members; ++m) {
    const commsched_member_t& member = task_.launch.members[m];
    Move(member.input, member.output, member.count);
  }
}

}  // namespace commsched::ucx
