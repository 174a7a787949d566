#include "test/conformance/collective_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "test/support/launches.h"

namespace commsched {
namespace {

constexpr uint64_t kGuardBytes = 64;
constexpr std::byte kGuard{0xA5};

bool IsReducingKind(commsched_collective_t kind) {
  return kind == COMMSCHED_ALL_REDUCE || kind == COMMSCHED_REDUCE_SCATTER ||
         kind == COMMSCHED_REDUCE;
}

template <typename T>
void PutElement(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

// Values of a size that products of many do not leave fp16; now and then a
// special one. 16-bit values are made of bits, with a moderate exponent.
void FillElement(commsched_dtype_t dtype, std::byte* at,
                 std::mt19937_64& random) {
  const uint64_t bits = random();
  const bool special = bits % 64 == 0;
  const double unit =
      static_cast<double>(static_cast<int64_t>(random()) >> 11) * 0x1p-52;
  switch (dtype) {
    case COMMSCHED_F32:
      PutElement(at,
                 special ? __builtin_nanf("") : static_cast<float>(unit * 4));
      break;
    case COMMSCHED_F64:
      PutElement(at, special ? __builtin_nan("") : unit * 4);
      break;
    case COMMSCHED_F16:  // Sign, exponent 2^-15..2^1, any mantissa.
      PutElement(at, static_cast<uint16_t>(
                         special ? 0x7e00
                                 : (bits & 0x8000) | ((bits >> 20) % 17 << 10) |
                                       (bits & 0x3ff)));
      break;
    case COMMSCHED_BF16:  // Sign, exponent 2^-14..2^1, any mantissa.
      PutElement(
          at, static_cast<uint16_t>(
                  special ? 0x7fc0
                          : (bits & 0x8000) | ((113 + (bits >> 20) % 16) << 7) |
                                (bits & 0x7f)));
      break;
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      PutElement(at, static_cast<uint8_t>(bits));
      break;
    case COMMSCHED_I32:
      PutElement(at, static_cast<uint32_t>(bits));
      break;
    case COMMSCHED_I64:
      PutElement(at, bits);
      break;
  }
}

bool IsSumOfFloats(const Shape& shape) {
  const bool sums = shape.reduce_op == COMMSCHED_SUM ||
                    shape.reduce_op == COMMSCHED_AVG ||
                    shape.reduce_op == COMMSCHED_PREMUL_SUM;
  return IsReducingKind(shape.kind) && sums && shape.dtype <= COMMSCHED_BF16;
}

// A number of a floating-point type: (-1)^sign * 1.mantissa * 2^exponent.
void PutNumber(commsched_dtype_t dtype, std::byte* at, bool is_negative,
               int exponent, uint64_t mantissa) {
  const auto small = [&](int mantissa_bits, int bias) {
    return static_cast<uint16_t>((is_negative ? 0x8000 : 0) |
                                 ((exponent + bias) << mantissa_bits) |
                                 (mantissa & ((1 << mantissa_bits) - 1)));
  };
  const double value =
      std::ldexp(1 + static_cast<double>(mantissa & 0x7fffff) * 0x1p-23,
                 exponent) *
      (is_negative ? -1 : 1);
  switch (dtype) {
    case COMMSCHED_F32:
      PutElement(at, static_cast<float>(value));
      break;
    case COMMSCHED_F64:
      PutElement(at, value);
      break;
    case COMMSCHED_F16:
      PutElement(at, small(10, 15));
      break;
    case COMMSCHED_BF16:
      PutElement(at, small(7, 127));
      break;
  }
}

// Exponents such that a sum of a large and a small number, of the type in which
// `dtype` is summed, loses some or all of the small one.
struct Exponents {
  int large;
  int least_small;
  int most_small;
};

Exponents ExponentsOf(commsched_dtype_t dtype) {
  if (dtype == COMMSCHED_F64) return {50, -12, 0};
  if (dtype == COMMSCHED_F16) return {14, -14, -7};
  return {20, -12, 0};
}

// The same element of all ranks, `at`.
void FillCancelling(commsched_dtype_t dtype, std::vector<std::byte*> at,
                    std::mt19937_64& random) {
  const Exponents exponents = ExponentsOf(dtype);
  const auto num_small =
      static_cast<uint64_t>(exponents.most_small - exponents.least_small + 1);
  std::shuffle(at.begin(), at.end(), random);
  size_t num_large = 0;
  if (at.size() > 2) num_large = 2 * (1 + random() % ((at.size() - 1) / 2));
  for (size_t i = 0; i < num_large; i += 2) {
    const uint64_t mantissa = random();
    PutNumber(dtype, at[i], false, exponents.large, mantissa);
    PutNumber(dtype, at[i + 1], true, exponents.large, mantissa);
  }
  for (size_t i = num_large; i < at.size(); ++i) {
    const int exponent =
        exponents.least_small + static_cast<int>(random() % num_small);
    PutNumber(dtype, at[i], random() % 2 == 0, exponent, random());
  }
}

bool CanBeInPlace(commsched_collective_t kind) {
  return kind != COMMSCHED_ALL_TO_ALL && kind != COMMSCHED_BARRIER;
}

// Another one on every rank: strides are a rank's own affair.
uint64_t StrideOf(const MemberCase& member, int rank) {
  return member.gap == 0 ? 0 : member.count + member.gap + rank % 3;
}

}  // namespace

Bytes CollectiveCase::Gathered(const Bytes& arena, const Side& side) {
  Bytes dense;
  for (uint64_t p = 0; p < side.num_parts; ++p) {
    const auto begin = arena.begin() + static_cast<int64_t>(
                                           side.offset + p * side.stride_bytes);
    dense.insert(dense.end(), begin,
                 begin + static_cast<int64_t>(side.part_bytes));
  }
  return dense;
}

void CollectiveCase::Scatter(const std::byte* dense, const Side& side,
                             Bytes* arena) {
  for (uint64_t p = 0; p < side.num_parts && side.part_bytes != 0; ++p) {
    std::memcpy(arena->data() + side.offset + p * side.stride_bytes,
                dense + p * side.part_bytes, side.part_bytes);
  }
}

CollectiveCase::Side CollectiveCase::SideOf(const MemberCase& member, int rank,
                                            uint64_t elements,
                                            bool has_parts) const {
  const uint64_t element = ElementBytes(shape_.dtype);
  if (!has_parts || member.gap == 0) {
    return {kGuardBytes, 1, elements * element, 0};
  }
  return {kGuardBytes, static_cast<uint64_t>(shape_.size),
          member.count * element, StrideOf(member, rank) * element};
}

CollectiveCase::Memory CollectiveCase::LayOut(const MemberCase& member,
                                              int rank) const {
  const bool scatters = shape_.kind == COMMSCHED_REDUCE_SCATTER ||
                        shape_.kind == COMMSCHED_ALL_TO_ALL;
  const bool gathers = shape_.kind == COMMSCHED_ALL_GATHER ||
                       shape_.kind == COMMSCHED_ALL_TO_ALL;
  Memory memory;
  memory.input =
      SideOf(member, rank, InputElements(shape_, member, rank), scatters);
  memory.output =
      SideOf(member, rank, OutputElements(shape_, member, rank), gathers);
  uint64_t used = kGuardBytes;
  if (in_place_ && CanBeInPlace(shape_.kind)) {
    const uint64_t before = member.gap == 0 ? PartOffset(member, rank)
                                            : StrideOf(member, rank) * rank;
    const uint64_t part = before * ElementBytes(shape_.dtype);
    if (shape_.kind == COMMSCHED_ALL_GATHER) memory.input.offset += part;
    if (shape_.kind == COMMSCHED_REDUCE_SCATTER) memory.output.offset += part;
    used += std::max(memory.input.bytes(), memory.output.bytes());
  } else {
    // Rounded up: the output must be aligned.
    memory.output.offset += (memory.input.bytes() + kGuardBytes) / 8 * 8 + 8;
    used = memory.output.offset + memory.output.bytes();
  }
  memory.arena.assign(used + kGuardBytes, kGuard);
  return memory;
}

std::vector<Bytes> CollectiveCase::DrawInputs(const MemberCase& member,
                                              Values values,
                                              std::mt19937_64& random) const {
  const uint64_t element = ElementBytes(shape_.dtype);
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < shape_.size; ++rank) {
    Bytes& input =
        inputs.emplace_back(InputElements(shape_, member, rank) * element);
    for (uint64_t i = 0; i < input.size(); i += element) {
      FillElement(shape_.dtype, input.data() + i, random);
    }
  }
  if (values == Values::kModerate || !IsSumOfFloats(shape_)) return inputs;
  for (uint64_t i = 0; i < inputs[0].size(); i += element) {
    std::vector<std::byte*> at;
    for (Bytes& input : inputs) at.push_back(input.data() + i);
    FillCancelling(shape_.dtype, std::move(at), random);
  }
  return inputs;
}

CollectiveCase::CollectiveCase(const Shape& shape,
                               std::vector<MemberCase> members, bool in_place,
                               bool deterministic, std::mt19937_64& random,
                               Values values)
    : shape_(shape),
      members_(std::move(members)),
      in_place_(in_place),
      deterministic_(deterministic),
      ranks_(shape.size) {
  for (const MemberCase& member : members_) {
    const std::vector<Bytes> inputs = DrawInputs(member, values, random);
    for (int rank = 0; rank < shape.size; ++rank) {
      Memory memory = LayOut(member, rank);
      Scatter(inputs[rank].data(), memory.input, &memory.arena);
      memory.initial = memory.arena;
      ranks_[rank].memories.push_back(std::move(memory));
    }
    std::vector<Bytes> outputs = ReferenceOutputs(shape, member, inputs);
    for (int rank = 0; rank < shape.size; ++rank) {
      ranks_[rank].memories.back().expected = std::move(outputs[rank]);
    }
  }
  for (int r = 0; r < shape.size; ++r) {
    Rank& rank = ranks_[r];
    for (size_t m = 0; m < members_.size(); ++m) {
      Memory& memory = rank.memories[m];
      rank.members.push_back(
          {.input = memory.arena.data() + memory.input.offset,
           .output = memory.arena.data() + memory.output.offset,
           .count = members_[m].count,
           .counts =
               members_[m].counts.empty() ? nullptr : members_[m].counts.data(),
           .input_stride = StrideOf(members_[m], r),
           .output_stride = StrideOf(members_[m], r),
           .peer = 0,
           .direction = 0});
    }
    rank.launch = LaunchOf(shape.kind, shape.dtype, shape.reduce_op, shape.root,
                           deterministic ? 1u : 0u,
                           static_cast<uint32_t>(rank.members.size()),
                           rank.members.data());
    rank.launch.scale = shape.scale;
  }
}

absl::Status CollectiveCase::CheckMember(int rank, size_t member) const {
  const Memory& memory = ranks_[rank].memories[member];
  const Bytes output = Gathered(memory.arena, memory.output);
  const bool exact = deterministic_ || !IsReducingKind(shape_.kind);
  const bool is_extreme =
      shape_.reduce_op == COMMSCHED_MIN || shape_.reduce_op == COMMSCHED_MAX;
  const bool right =
      exact ? SameElements(shape_.dtype, output, memory.expected)
            : CloseElements(shape_.dtype, shape_.size, output, memory.expected,
                            is_extreme && !shape_.keeps_nan);
  if (!right) {
    return absl::InternalError(absl::StrCat("rank ", rank, ", member ", member,
                                            ": wrong output of ", Describe()));
  }
  Bytes around = memory.arena;
  Scatter(Gathered(memory.initial, memory.output).data(), memory.output,
          &around);
  if (around != memory.initial) {
    return absl::InternalError(
        absl::StrCat("rank ", rank, ", member ", member,
                     ": bytes outside the output changed by ", Describe()));
  }
  return absl::OkStatus();
}

absl::Status CollectiveCase::Check(int rank) const {
  for (size_t m = 0; m < members_.size(); ++m) {
    if (absl::Status status = CheckMember(rank, m); !status.ok()) return status;
  }
  return absl::OkStatus();
}

Bytes CollectiveCase::Outputs(int rank) const {
  Bytes outputs;
  for (const Memory& memory : ranks_[rank].memories) {
    const Bytes output = Gathered(memory.arena, memory.output);
    outputs.insert(outputs.end(), output.begin(), output.end());
  }
  return outputs;
}

void CollectiveCase::Reset(int rank) {
  for (Memory& memory : ranks_[rank].memories) {
    std::memcpy(memory.arena.data(), memory.initial.data(),
                memory.initial.size());
  }
}

std::string CollectiveCase::Describe() const {
  std::string text = absl::StrCat(
      "kind ", shape_.kind, " dtype ", shape_.dtype, " op ", shape_.reduce_op,
      " scale ", shape_.scale, " root ", shape_.root, " size ", shape_.size,
      in_place_ ? " in place" : "", deterministic_ ? " deterministic" : "");
  for (const MemberCase& member : members_) {
    absl::StrAppend(
        &text, " [", member.count, member.counts.empty() ? "" : "; counts ",
        absl::StrJoin(member.counts, ","), "; gap ", member.gap, "]");
  }
  return text;
}

Shape RandomShape(int size, std::mt19937_64& random) {
  Shape shape;
  shape.kind = static_cast<commsched_collective_t>(random() % 7);
  shape.dtype = static_cast<commsched_dtype_t>(random() % 8);
  shape.reduce_op = static_cast<commsched_reduce_op_t>(random() % 5);
  shape.root = static_cast<int32_t>(random() % size);
  shape.size = size;
  return shape;
}

MemberCase RandomMember(const Shape& shape, uint64_t max_elements,
                        std::mt19937_64& random) {
  MemberCase member;
  member.count = random() % 8 == 0 ? 0 : random() % max_elements;
  int64_t num_parts = 0;
  if (shape.kind == COMMSCHED_REDUCE_SCATTER ||
      shape.kind == COMMSCHED_ALL_GATHER) {
    num_parts = shape.size;
  } else if (shape.kind == COMMSCHED_ALL_TO_ALL) {
    num_parts = int64_t{shape.size} * shape.size;
  }
  if (num_parts == 0 || random() % 2 == 0) return member;
  member.count = 0;
  for (int64_t p = 0; p < num_parts; ++p) {
    member.counts.push_back(random() % 4 == 0 ? 0 : random() % max_elements);
  }
  return member;
}

}  // namespace commsched
