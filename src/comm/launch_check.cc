#include "comm/launch_check.h"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/checked_math.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

// Elements of `count` parts from `first`, each `step` after the one before.
absl::optional<uint64_t> SumParts(const commsched_member_t& member,
                                  int64_t first, int64_t count, int64_t step) {
  if (member.counts == nullptr) {
    return CheckedMul(member.count, static_cast<uint64_t>(count));
  }
  absl::optional<uint64_t> sum = 0;
  for (int64_t i = 0; i < count && sum.has_value(); ++i) {
    sum = CheckedAdd(*sum, member.counts[first + i * step]);
  }
  return sum;
}

// Elements from the beginning of `num_parts` equal parts to the end of the last
// one. They are apart by `stride`, or dense if that is 0.
absl::optional<uint64_t> Span(uint64_t count, uint64_t stride, int num_parts) {
  if (count == 0) return 0;
  const auto to_last = CheckedMul(stride == 0 ? count : stride,
                                  static_cast<uint64_t>(num_parts - 1));
  return to_last ? CheckedAdd(*to_last, count) : to_last;
}

// Launches ended behind their members until 0.2.
constexpr size_t kFirstLaunchBytes =
    offsetof(commsched_launch_t, members) + sizeof(commsched_launch_t::members);

bool HasScale(const commsched_launch_t& launch) {
  return launch.struct_size >=
         offsetof(commsched_launch_t, scale) + sizeof(launch.scale);
}

uint64_t BitsOf(double value) { return std::bit_cast<uint64_t>(value); }

// With all digits, which two that differ need.
std::string ScaleText(double scale) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.17g", scale);
  return text;
}

struct Elements {
  absl::optional<uint64_t> input = 0;
  absl::optional<uint64_t> output = 0;
  absl::optional<uint64_t> input_shift = 0;
  absl::optional<uint64_t> output_shift = 0;
  bool may_be_in_place = true;
};

// Elements in front of the part of `rank`.
absl::optional<uint64_t> Shift(const commsched_member_t& member,
                               uint64_t stride, int rank) {
  if (member.counts != nullptr) return SumParts(member, 0, rank, 1);
  return CheckedMul(stride == 0 ? member.count : stride,
                    static_cast<uint64_t>(rank));
}

Elements ElementsOf(const commsched_launch_t& launch,
                    const commsched_member_t& member, int rank, int size) {
  const bool uneven = member.counts != nullptr;
  Elements elements;
  switch (launch.kind) {
    case COMMSCHED_ALL_REDUCE:
      elements.input = elements.output = member.count;
      break;
    case COMMSCHED_BROADCAST:
      elements.input = rank == launch.root ? member.count : 0;
      elements.output = member.count;
      break;
    case COMMSCHED_REDUCE:
      elements.input = member.count;
      elements.output = rank == launch.root ? member.count : 0;
      break;
    case COMMSCHED_REDUCE_SCATTER:
      elements.input = uneven ? SumParts(member, 0, size, 1)
                              : Span(member.count, member.input_stride, size);
      elements.output = PartElements(member, rank);
      elements.input_shift = Shift(member, member.input_stride, rank);
      break;
    case COMMSCHED_ALL_GATHER:
      elements.input = PartElements(member, rank);
      elements.output = uneven ? SumParts(member, 0, size, 1)
                               : Span(member.count, member.output_stride, size);
      elements.output_shift = Shift(member, member.output_stride, rank);
      break;
    case COMMSCHED_ALL_TO_ALL:
      elements.may_be_in_place = false;
      if (HasOwnCounts(launch)) {
        elements.input = SumParts(member, 0, size, 1);
        elements.output = SumParts(member, size, size, 1);
        break;
      }
      elements.input = uneven ? SumParts(member, int64_t{rank} * size, size, 1)
                              : Span(member.count, member.input_stride, size);
      elements.output = uneven ? SumParts(member, rank, size, size)
                               : Span(member.count, member.output_stride, size);
      break;
    case COMMSCHED_SEND:
      elements.input = member.direction == COMMSCHED_SEND ? member.count : 0;
      elements.output = member.direction == COMMSCHED_RECV ? member.count : 0;
      elements.may_be_in_place = false;
      break;
  }
  return elements;
}

absl::Status CheckAddress(const char* which, const void* address,
                          uint64_t bytes, uint64_t element_bytes) {
  if (bytes == 0) return absl::OkStatus();
  if (address == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("its ", which, " of ", bytes, " bytes is NULL"));
  }
  const auto value = reinterpret_cast<uintptr_t>(address);
  if (value % element_bytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("its ", which, " at 0x", absl::Hex(value),
                     " is not aligned to ", element_bytes, " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckOverlap(const commsched_member_t& member,
                          const Extents& extents) {
  if (extents.input_bytes == 0 || extents.output_bytes == 0) {
    return absl::OkStatus();
  }
  const auto input = reinterpret_cast<uintptr_t>(member.input);
  const auto output = reinterpret_cast<uintptr_t>(member.output);
  const bool apart = input + extents.input_bytes <= output ||
                     output + extents.output_bytes <= input;
  const bool in_place =
      extents.may_be_in_place &&
      input + extents.input_shift == output + extents.output_shift;
  if (apart || in_place) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "its input at 0x", absl::Hex(input), " (", extents.input_bytes,
      " bytes) and output at 0x", absl::Hex(output), " (", extents.output_bytes,
      " bytes) overlap other than in place"));
}

// Sides whose parts are apart by less than they hold.
absl::Status CheckStride(const char* which, const commsched_member_t& member,
                         uint64_t stride) {
  if (stride == 0) return absl::OkStatus();
  if (member.counts != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its ", which, " has both a stride (", stride, ") and counts"));
  }
  if (stride >= member.count) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its ", which, " has a stride of ", stride,
                   " elements, less than its parts of ", member.count));
}

absl::Status CheckStrides(commsched_collective_t kind,
                          const commsched_member_t& member) {
  if (SplitsInput(KindOf(kind))) {
    RETURN_IF_ERROR(CheckStride("input", member, member.input_stride));
  }
  if (SplitsOutput(KindOf(kind))) {
    RETURN_IF_ERROR(CheckStride("output", member, member.output_stride));
  }
  return absl::OkStatus();
}

absl::Status CheckPeer(const commsched_member_t& member, int rank, int size) {
  if (member.direction != COMMSCHED_SEND &&
      member.direction != COMMSCHED_RECV) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its direction is ", member.direction, ", neither send nor recv"));
  }
  if (member.peer >= 0 && member.peer < size && member.peer != rank) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "its peer ", member.peer, " is not another member of 0..", size - 1));
}

// What it sends to itself, and gets.
absl::Status CheckOwnCounts(const commsched_member_t& member, int rank,
                            int size) {
  if (member.counts == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its counts are NULL; a launch with own counts has ", 2 * size));
  }
  const uint64_t sent = member.counts[rank];
  const uint64_t expected = member.counts[size + rank];
  if (sent == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("its counts have rank ", rank, " of the group send ", sent,
                   " elements to itself, and get ", expected));
}

absl::Status CheckMember(const commsched_launch_t& launch,
                         const commsched_member_t& member, int rank, int size) {
  if (member.counts != nullptr && !HasParts(KindOf(launch.kind))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it has counts, but ", CollectiveName(launch.kind), " has no parts"));
  }
  if (launch.kind == COMMSCHED_SEND) {
    RETURN_IF_ERROR(CheckPeer(member, rank, size));
  }
  if (HasOwnCounts(launch)) {
    RETURN_IF_ERROR(CheckOwnCounts(member, rank, size));
  }
  RETURN_IF_ERROR(CheckStrides(launch.kind, member));
  const auto element_bytes =
      static_cast<uint64_t>(DTypeSize(static_cast<DType>(launch.dtype)));
  ASSIGN_OR_RETURN(const Extents extents,
                   ExtentsOf(launch, member, rank, size));
  RETURN_IF_ERROR(
      CheckAddress("input", member.input, extents.input_bytes, element_bytes));
  RETURN_IF_ERROR(CheckAddress("output", member.output, extents.output_bytes,
                               element_bytes));
  return CheckOverlap(member, extents);
}

// Tells in a few instructions that a member is sound, as nearly all are, and a
// list has many: equal dense parts, far from overflow, aligned, apart or in
// place. The others need CheckMember().
class Glance {
 public:
  // `launch` has a sound head.
  Glance(const commsched_launch_t& launch, int size)
      : possible_(launch.kind != COMMSCHED_SEND && !HasOwnCounts(launch) &&
                  size <= UINT16_MAX),
        may_be_in_place_(!HasParts(KindOf(launch.kind))) {
    const auto num_parts = static_cast<uint64_t>(size);
    input_bytes_ = output_bytes_ = DTypeSize(static_cast<DType>(launch.dtype));
    misaligned_bits_ = input_bytes_ - 1;
    if (launch.kind == COMMSCHED_REDUCE_SCATTER) input_bytes_ *= num_parts;
    if (launch.kind == COMMSCHED_ALL_GATHER) output_bytes_ *= num_parts;
    if (launch.kind == COMMSCHED_ALL_TO_ALL) {
      input_bytes_ *= num_parts;
      output_bytes_ *= num_parts;
    }
  }

  bool FindsSound(const commsched_member_t& member) const {
    constexpr uint64_t kMaxCount = UINT32_MAX;
    const auto input = reinterpret_cast<uintptr_t>(member.input);
    const auto output = reinterpret_cast<uintptr_t>(member.output);
    if (!possible_ || member.counts != nullptr || member.input_stride != 0 ||
        member.output_stride != 0 || member.count > kMaxCount || input == 0 ||
        output == 0 || ((input | output) & misaligned_bits_) != 0) {
      return false;
    }
    return input + member.count * input_bytes_ <= output ||
           output + member.count * output_bytes_ <= input ||
           (may_be_in_place_ && input == output);
  }

 private:
  const bool possible_;
  const bool may_be_in_place_;
  uint64_t input_bytes_;  // Of one element of `count`.
  uint64_t output_bytes_;
  uintptr_t misaligned_bits_;
};

absl::Status CheckFlags(const commsched_launch_t& launch) {
  constexpr uint32_t kKnown =
      COMMSCHED_LAUNCH_TAGGED | COMMSCHED_LAUNCH_OWN_COUNTS;
  const char* wrong = nullptr;
  if ((launch.flags & ~kKnown) != 0) {
    wrong = "unknown";
  } else if (IsTagged(launch) && launch.kind != COMMSCHED_SEND) {
    wrong = "tagged, which only sends and receives are";
  } else if (HasOwnCounts(launch) && launch.kind != COMMSCHED_ALL_TO_ALL) {
    wrong = "with own counts, which only all_to_all has";
  }
  if (wrong == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      CollectiveName(launch.kind), " has flags ", launch.flags, ": ", wrong));
}

absl::Status CheckHead(const commsched_launch_t& launch, uint32_t max_members,
                       int size) {
  if (launch.kind == COMMSCHED_RECV) {
    return absl::InvalidArgumentError(
        "recv is not a kind of launch: receives are members of send launches");
  }
  if (launch.kind > COMMSCHED_RECV) {
    return absl::InvalidArgumentError(
        absl::StrCat(CollectiveName(launch.kind), " is unknown"));
  }
  RETURN_IF_ERROR(CheckFlags(launch));
  if (launch.kind == COMMSCHED_BARRIER) return absl::OkStatus();
  ASSIGN_OR_RETURN(const DType dtype, DTypeFromInt(launch.dtype));
  if (!IsComputed(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dtype ", DTypeName(dtype), " is no launch's: it travels as one of ",
        ComputedDTypeNames()));
  }
  if (IsReducing(KindOf(launch.kind))) {
    ASSIGN_OR_RETURN(const ReduceOp op, ReduceOpFromInt(launch.reduce_op));
    RETURN_IF_ERROR(CheckReducible(dtype, op));
    if (op == ReduceOp::kPremulSum && !HasScale(launch)) {
      return absl::InvalidArgumentError(
          absl::StrCat("premul_sum of a launch of ", launch.struct_size,
                       " bytes, which ends before its scale; it must have ",
                       sizeof(launch)));
    }
  }
  if (IsRooted(KindOf(launch.kind)) &&
      (launch.root < 0 || launch.root >= size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("root ", launch.root, " is not in 0..", size - 1));
  }
  if (launch.num_members < 1 || launch.num_members > max_members ||
      launch.members == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("a launch of ", launch.num_members,
                     " members; it must have 1..", max_members));
  }
  return absl::OkStatus();
}

// Of a member whose `counts` are not NULL.
int64_t NumCounts(const commsched_launch_t& launch, int size) {
  return HasOwnCounts(launch) ? int64_t{2} * size
                              : NumParts(KindOf(launch.kind), size);
}

std::string CountsText(const commsched_member_t& member, int64_t num_parts) {
  if (member.counts == nullptr) {
    return absl::StrCat("equal parts of ", member.count);
  }
  constexpr int64_t kMaxShown = 64;
  const auto shown = static_cast<size_t>(std::min(num_parts, kMaxShown));
  return absl::StrCat(
      "parts of ",
      absl::StrJoin(absl::MakeConstSpan(member.counts, shown), ","),
      num_parts > kMaxShown ? ",..." : "");
}

bool SameCounts(const commsched_member_t& a, const commsched_member_t& b,
                int64_t num_parts) {
  if ((a.counts == nullptr) != (b.counts == nullptr)) return false;
  if (a.counts == nullptr) return a.count == b.count;
  return std::equal(a.counts, a.counts + num_parts, b.counts);
}

// What differs, and its text on both sides.
struct Difference {
  std::string what;
  std::string a, b;
};

Difference DifferenceOfHeads(const commsched_launch_t& a,
                             const commsched_launch_t& b) {
  const auto dtype = [](const commsched_launch_t& launch) {
    return std::string(DTypeName(static_cast<DType>(launch.dtype)));
  };
  const auto op = [](const commsched_launch_t& launch) {
    return std::string(ReduceOpName(static_cast<ReduceOp>(launch.reduce_op)));
  };
  if (a.kind != b.kind) {
    return {"kind", CollectiveName(a.kind), CollectiveName(b.kind)};
  }
  if (a.dtype != b.dtype) return {"dtype", dtype(a), dtype(b)};
  if (a.reduce_op != b.reduce_op) return {"reduction", op(a), op(b)};
  if (BitsOf(a.scale) != BitsOf(b.scale)) {
    return {"scale", ScaleText(a.scale), ScaleText(b.scale)};
  }
  if (a.root != b.root) {
    return {"root", absl::StrCat(a.root), absl::StrCat(b.root)};
  }
  if (a.deterministic != b.deterministic) {
    return {"deterministic", absl::StrCat(a.deterministic),
            absl::StrCat(b.deterministic)};
  }
  if (a.flags != b.flags) {
    return {"flags", absl::StrCat(a.flags), absl::StrCat(b.flags)};
  }
  return {"number of members", absl::StrCat(a.num_members),
          absl::StrCat(b.num_members)};
}

Difference DifferenceOf(const commsched_launch_t& a,
                        const commsched_launch_t& b, int size) {
  Difference head = DifferenceOfHeads(a, b);
  if (head.a != head.b) return head;
  const int64_t num_parts = NumParts(KindOf(a.kind), size);
  for (uint32_t m = 0; m < a.num_members && !HasOwnCounts(a); ++m) {
    if (SameCounts(a.members[m], b.members[m], num_parts)) continue;
    const absl::string_view what =
        num_parts == 1 ? "count of member " : "counts of member ";
    return {absl::StrCat(what, m), CountsText(a.members[m], num_parts),
            CountsText(b.members[m], num_parts)};
  }
  return {"nothing", "", ""};
}

}  // namespace

std::string CollectiveName(commsched_collective_t kind) {
  if (kind <= COMMSCHED_RECV)
    return std::string(CollectiveKindName(KindOf(kind)));
  return absl::StrCat("collective ", kind);
}

absl::StatusOr<Extents> ExtentsOf(const commsched_launch_t& launch,
                                  const commsched_member_t& member, int rank,
                                  int size) {
  const auto element_bytes =
      static_cast<uint64_t>(DTypeSize(static_cast<DType>(launch.dtype)));
  const Elements elements = ElementsOf(launch, member, rank, size);
  const auto bytes = [&](absl::optional<uint64_t> count) {
    return count.has_value() ? CheckedMul(*count, element_bytes)
                             : absl::optional<uint64_t>();
  };
  const auto input = bytes(elements.input);
  const auto output = bytes(elements.output);
  constexpr uint64_t kMaxBytes = INT64_MAX;
  if (!input || !output || *input > kMaxBytes || *output > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("its ", CountsText(member, NumCounts(launch, size)),
                     " elements overflow"));
  }
  // A shift lies within its side, unless there is nothing on that side.
  return Extents{*input, *output, bytes(elements.input_shift).value_or(0),
                 bytes(elements.output_shift).value_or(0),
                 elements.may_be_in_place};
}

absl::Status CheckLaunch(const commsched_launch_t& launch, uint32_t max_members,
                         int rank, int size) {
  RETURN_IF_ERROR(CheckHead(launch, max_members, size));
  if (launch.kind == COMMSCHED_BARRIER) return absl::OkStatus();
  const Glance glance(launch, size);
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    if (glance.FindsSound(launch.members[m])) continue;
    const absl::Status checked =
        CheckMember(launch, launch.members[m], rank, size);
    if (checked.ok()) continue;
    return absl::Status(checked.code(),
                        absl::StrCat(CollectiveName(launch.kind), " member ", m,
                                     ": ", checked.message()));
  }
  return absl::OkStatus();
}

commsched_launch_t Normalized(const commsched_launch_t& launch) {
  commsched_launch_t result = {};
  std::memcpy(&result, &launch, kFirstLaunchBytes);
  if (!IsReducing(KindOf(launch.kind))) {
    result.reduce_op = 0;
    result.deterministic = 0;
  }
  if (result.reduce_op == COMMSCHED_PREMUL_SUM) result.scale = launch.scale;
  if (!IsRooted(KindOf(launch.kind))) result.root = 0;
  if (!IsTagged(launch)) result.tag = 0;
  if (launch.kind == COMMSCHED_BARRIER) {
    result.dtype = 0;
    result.num_members = 0;
    result.members = nullptr;
  }
  return result;
}

uint64_t SignatureOf(const commsched_launch_t& launch, int size) {
  const uint64_t head[] = {
      launch.kind,          launch.dtype,
      launch.reduce_op,     static_cast<uint64_t>(launch.root),
      launch.deterministic, launch.num_members,
      launch.flags,         BitsOf(launch.scale)};
  uint64_t hash = XXH3_64bits(head, sizeof(head));
  // Counts of successive members with equal parts, hashed together.
  uint64_t equal[64];
  size_t num_equal = 0;
  const auto add_equal = [&] {
    hash = XXH3_64bits_withSeed(equal, num_equal * sizeof(equal[0]), hash);
    num_equal = 0;
  };
  const int64_t num_parts = NumParts(KindOf(launch.kind), size);
  for (uint32_t m = 0; m < launch.num_members; ++m) {
    if (HasOwnCounts(launch)) break;
    const commsched_member_t& member = launch.members[m];
    if (member.counts == nullptr) {
      equal[num_equal++] = member.count;
      if (num_equal == std::size(equal)) add_equal();
    } else {
      add_equal();
      // The complement keeps one uneven part apart from an equal one.
      hash = XXH3_64bits_withSeed(
          member.counts, static_cast<size_t>(num_parts) * sizeof(uint64_t),
          ~hash);
    }
  }
  add_equal();
  return hash;
}

std::string DescribeDifference(const commsched_launch_t& a, int rank_a,
                               const commsched_launch_t& b, int rank_b,
                               int size) {
  const Difference difference = DifferenceOf(a, b, size);
  return absl::StrCat("rank ", rank_a, " has ", difference.what, " ",
                      difference.a, ", rank ", rank_b, " has ", difference.b);
}

}  // namespace commsched
