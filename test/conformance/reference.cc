#include "test/conformance/reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "test/support/tree_sum.h"

namespace commsched {
namespace {

// 16-bit formats by arithmetic on values, not on bits as the library does.
// `mantissa_bits` without the hidden one; `min_exponent` of a normal number.
struct SmallFloat {
  int mantissa_bits;
  int exponent_bits;

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }

  double Decode(uint16_t bits) const {
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) {
      return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                           : sign * std::numeric_limits<double>::infinity();
    }
    const bool subnormal = exponent == 0;
    const int hidden = subnormal ? 0 : 1 << mantissa_bits;
    return sign * std::ldexp(mantissa + hidden, (subnormal ? 1 : exponent) -
                                                    bias() - mantissa_bits);
  }

  uint16_t Encode(double value) const {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const uint16_t infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
    if (std::isnan(value)) return sign | infinity | 1;
    const double magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return sign | infinity;
    int exponent = magnitude == 0 ? 1 - bias() : std::ilogb(magnitude);
    exponent = std::max(exponent, 1 - bias());
    // Units of the last place; nearbyint() rounds ties to even.
    const auto units = static_cast<int64_t>(
        std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent)));
    // A carry into the exponent, or out of subnormals, adds up by itself.
    const int64_t bits =
        units + (static_cast<int64_t>(exponent + bias() - 1) << mantissa_bits);
    return sign | static_cast<uint16_t>(std::min<int64_t>(bits, infinity));
  }
};

constexpr SmallFloat kHalf = {10, 5};
constexpr SmallFloat kBfloat16 = {7, 8};

template <typename T>
T At(const Bytes& bytes, uint64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void Put(Bytes& bytes, uint64_t index, T value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

// Integers: modulo 2^bits in the widest type, then cut.
template <typename T>
T CombineInts(commsched_reduce_op_t op, T a, T b) {
  switch (op) {
    case COMMSCHED_MIN:
      return a < b ? a : b;
    case COMMSCHED_MAX:
      return a > b ? a : b;
    case COMMSCHED_PROD:
      return static_cast<T>(static_cast<uint64_t>(a) *
                            static_cast<uint64_t>(b));
    case COMMSCHED_BAND:
      return static_cast<T>(a & b);
    case COMMSCHED_BOR:
      return static_cast<T>(a | b);
    case COMMSCHED_BXOR:
      return static_cast<T>(a ^ b);
  }
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <typename T>
T CombineFloats(commsched_reduce_op_t op, T a, T b) {
  const bool extreme = op == COMMSCHED_MIN || op == COMMSCHED_MAX;
  if (extreme && (std::isnan(a) || std::isnan(b))) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  switch (op) {
    case COMMSCHED_MIN:
      return b < a ? b : a;
    case COMMSCHED_MAX:
      return b > a ? b : a;
    case COMMSCHED_PROD:
      return a * b;
  }
  return a + b;
}

// The mean of the exact sum, truncated towards zero, as long division of that
// sum gives it: no type need be wide enough for the sum.
template <typename T>
T MeanOfInts(const std::vector<Bytes>& inputs, uint64_t index, int64_t size) {
  int64_t quotient = 0, remainder = 0;
  for (const Bytes& input : inputs) {
    const auto value = static_cast<int64_t>(At<T>(input, index));
    quotient += value / size;
    remainder += value % size;
  }
  quotient += remainder / size;
  remainder %= size;
  if (quotient > 0 && remainder < 0) --quotient;
  if (quotient < 0 && remainder > 0) ++quotient;
  return static_cast<T>(quotient);
}

template <typename T>
void ReduceInts(const Shape& shape, const std::vector<Bytes>& inputs,
                uint64_t from, uint64_t count, Bytes& out) {
  for (uint64_t i = 0; i < count; ++i) {
    if (shape.reduce_op == COMMSCHED_AVG) {
      Put(out, i, MeanOfInts<T>(inputs, from + i, shape.size));
      continue;
    }
    T sum = At<T>(inputs[0], from + i);
    for (int r = 1; r < shape.size; ++r) {
      sum = CombineInts(shape.reduce_op, sum, At<T>(inputs[r], from + i));
    }
    Put(out, i, sum);
  }
}

// Sums in `Sum`, with elements decoded and encoded by `format` if it is given.
template <typename Sum, typename Element>
void ReduceFloats(const Shape& shape, const std::vector<Bytes>& inputs,
                  uint64_t from, uint64_t count, const SmallFloat* format,
                  Bytes& out) {
  const auto decode = [&](int rank, uint64_t index) {
    const Element element = At<Element>(inputs[rank], index);
    Sum value;
    if constexpr (std::is_integral_v<Element>) {
      value = static_cast<Sum>(format->Decode(element));
    } else {
      value = element;
    }
    if (shape.reduce_op != COMMSCHED_PREMUL_SUM) return value;
    // By way of memory: never fused with the sum.
    volatile Sum product = value * static_cast<Sum>(shape.scale);
    return Sum{product};
  };
  for (uint64_t i = 0; i < count; ++i) {
    Sum sum = test::OverTree(
        0, shape.size, [&](int rank) -> Sum { return decode(rank, from + i); },
        [&](Sum a, Sum b) { return CombineFloats(shape.reduce_op, a, b); });
    if (shape.reduce_op == COMMSCHED_AVG) {
      const Sum factor = Sum{1} / static_cast<Sum>(shape.size);
      sum = sum * factor;
    }
    if constexpr (std::is_integral_v<Element>) {
      Put<Element>(out, i, format->Encode(sum));
    } else {
      Put<Element>(out, i, sum);
    }
  }
}

Bytes Reduced(const Shape& shape, const std::vector<Bytes>& inputs,
              uint64_t from, uint64_t count) {
  Bytes out(count * ElementBytes(shape.dtype));
  switch (shape.dtype) {
    case COMMSCHED_F32:
      ReduceFloats<float, float>(shape, inputs, from, count, nullptr, out);
      break;
    case COMMSCHED_F64:
      ReduceFloats<double, double>(shape, inputs, from, count, nullptr, out);
      break;
    case COMMSCHED_F16:
      ReduceFloats<float, uint16_t>(shape, inputs, from, count, &kHalf, out);
      break;
    case COMMSCHED_BF16:
      ReduceFloats<float, uint16_t>(shape, inputs, from, count, &kBfloat16,
                                    out);
      break;
    case COMMSCHED_I8:
      ReduceInts<int8_t>(shape, inputs, from, count, out);
      break;
    case COMMSCHED_I32:
      ReduceInts<int32_t>(shape, inputs, from, count, out);
      break;
    case COMMSCHED_I64:
      ReduceInts<int64_t>(shape, inputs, from, count, out);
      break;
    case COMMSCHED_U8:
      ReduceInts<uint8_t>(shape, inputs, from, count, out);
      break;
  }
  return out;
}

uint64_t SumOfParts(const MemberCase& member, int64_t first, int64_t count,
                    int64_t stride) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += member.Part(first + i * stride);
  return sum;
}

Bytes Slice(const Bytes& bytes, uint64_t from, uint64_t size) {
  return Bytes(bytes.begin() + static_cast<int64_t>(from),
               bytes.begin() + static_cast<int64_t>(from + size));
}

// What `rank` receives from everybody.
Bytes Received(const Shape& shape, const MemberCase& member,
               const std::vector<Bytes>& inputs, int rank) {
  const uint64_t element = ElementBytes(shape.dtype);
  Bytes out;
  for (int64_t sender = 0; sender < shape.size; ++sender) {
    const uint64_t from =
        SumOfParts(member, sender * shape.size, rank, 1) * element;
    const Bytes part = Slice(inputs[sender], from,
                             member.Part(sender * shape.size + rank) * element);
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

double ValueOf(commsched_dtype_t dtype, const Bytes& bytes, uint64_t index) {
  switch (dtype) {
    case COMMSCHED_F32:
      return At<float>(bytes, index);
    case COMMSCHED_F64:
      return At<double>(bytes, index);
    case COMMSCHED_F16:
      return kHalf.Decode(At<uint16_t>(bytes, index));
    case COMMSCHED_BF16:
      return kBfloat16.Decode(At<uint16_t>(bytes, index));
  }
  return 0;
}

// Unit in the last place of numbers near 1.
double Epsilon(commsched_dtype_t dtype) {
  switch (dtype) {
    case COMMSCHED_F64:
      return std::numeric_limits<double>::epsilon();
    case COMMSCHED_F16:
      return 0x1p-10;
    case COMMSCHED_BF16:
      return 0x1p-7;
  }
  return std::numeric_limits<float>::epsilon();
}

bool IsFloating(commsched_dtype_t dtype) { return dtype <= COMMSCHED_BF16; }

}  // namespace

uint64_t ElementBytes(commsched_dtype_t dtype) {
  static constexpr uint64_t kBytes[] = {4, 8, 2, 2, 1, 4, 8, 1};
  return kBytes[dtype];
}

uint64_t PartOffset(const MemberCase& member, int rank) {
  return SumOfParts(member, 0, rank, 1);
}

uint64_t InputElements(const Shape& shape, const MemberCase& member, int rank) {
  switch (shape.kind) {
    case COMMSCHED_REDUCE_SCATTER:
      return SumOfParts(member, 0, shape.size, 1);
    case COMMSCHED_ALL_GATHER:
      return member.Part(rank);
    case COMMSCHED_ALL_TO_ALL:
      return SumOfParts(member, int64_t{rank} * shape.size, shape.size, 1);
    case COMMSCHED_BROADCAST:
      return rank == shape.root ? member.count : 0;
    case COMMSCHED_BARRIER:
      return 0;
  }
  return member.count;
}

uint64_t OutputElements(const Shape& shape, const MemberCase& member,
                        int rank) {
  switch (shape.kind) {
    case COMMSCHED_REDUCE_SCATTER:
      return member.Part(rank);
    case COMMSCHED_ALL_GATHER:
      return SumOfParts(member, 0, shape.size, 1);
    case COMMSCHED_ALL_TO_ALL:
      return SumOfParts(member, rank, shape.size, shape.size);
    case COMMSCHED_REDUCE:
      return rank == shape.root ? member.count : 0;
    case COMMSCHED_BARRIER:
      return 0;
  }
  return member.count;
}

std::vector<Bytes> ReferenceOutputs(const Shape& shape,
                                    const MemberCase& member,
                                    const std::vector<Bytes>& inputs) {
  Bytes everything;
  for (const Bytes& input : inputs) {
    everything.insert(everything.end(), input.begin(), input.end());
  }
  std::vector<Bytes> outputs;
  for (int rank = 0; rank < shape.size; ++rank) {
    const uint64_t count = OutputElements(shape, member, rank);
    switch (shape.kind) {
      case COMMSCHED_ALL_REDUCE:
      case COMMSCHED_REDUCE:
        outputs.push_back(Reduced(shape, inputs, 0, count));
        break;
      case COMMSCHED_REDUCE_SCATTER:
        outputs.push_back(
            Reduced(shape, inputs, PartOffset(member, rank), count));
        break;
      case COMMSCHED_ALL_GATHER:
        outputs.push_back(everything);
        break;
      case COMMSCHED_BROADCAST:
        outputs.push_back(inputs[shape.root]);
        break;
      case COMMSCHED_ALL_TO_ALL:
        outputs.push_back(Received(shape, member, inputs, rank));
        break;
      default:
        outputs.emplace_back();
    }
  }
  return outputs;
}

bool SameElements(commsched_dtype_t dtype, const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return false;
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0) return true;
  if (!IsFloating(dtype)) return false;
  const uint64_t element = ElementBytes(dtype);
  for (uint64_t i = 0; i < a.size() / element; ++i) {
    const bool same = std::memcmp(a.data() + i * element,
                                  b.data() + i * element, element) == 0;
    const bool both_nan =
        std::isnan(ValueOf(dtype, a, i)) && std::isnan(ValueOf(dtype, b, i));
    if (!same && !both_nan) return false;
  }
  return true;
}

bool CloseElements(commsched_dtype_t dtype, int size, const Bytes& a,
                   const Bytes& b, bool any_for_nan) {
  if (!IsFloating(dtype)) return SameElements(dtype, a, b);
  if (a.size() != b.size()) return false;
  for (uint64_t i = 0; i < a.size() / ElementBytes(dtype); ++i) {
    const double x = ValueOf(dtype, a, i);
    const double y = ValueOf(dtype, b, i);
    if (std::isnan(y) && (std::isnan(x) || any_for_nan)) continue;
    if (x == y) continue;
    const double scale = 4 * size + std::fabs(x) + std::fabs(y);
    if (!(std::fabs(x - y) <= size * Epsilon(dtype) * scale)) return false;
  }
  return true;
}

}  // namespace commsched
