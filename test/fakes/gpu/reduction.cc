// What NCCL's collectives compute.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "call.h"
#include "memory.h"

namespace fake_gpu {
namespace {

// Integers wrap around.
template <typename T>
struct Wrapping {
  using type = T;
};
template <>
struct Wrapping<int8_t> {
  using type = uint32_t;
};
template <>
struct Wrapping<uint8_t> {
  using type = uint32_t;
};
template <>
struct Wrapping<int32_t> {
  using type = uint32_t;
};
template <>
struct Wrapping<int64_t> {
  using type = uint64_t;
};

template <typename T>
T Combined(T a, T b, ncclRedOp_t op) {
  using Wide = typename Wrapping<T>::type;
  switch (op) {
    case ncclProd:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    // Of a number and NaN the number, as those of CUDA's math library.
    case ncclMin:
      return a != a || b < a ? b : a;
    case ncclMax:
      return a != a || a < b ? b : a;
    default:
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

// Not in the order of the ranks, which nobody is promised.
template <typename T>
void Reduce(const std::vector<const void*>& inputs, size_t count,
            ncclRedOp_t op, void* output) {
  std::vector<T> sums(count);
  std::memcpy(sums.data(), inputs.back(), count * sizeof(T));
  for (size_t r = inputs.size() - 1; r-- > 0;) {
    const T* input = static_cast<const T*>(inputs[r]);
    for (size_t i = 0; i < count; ++i) {
      sums[i] = Combined<T>(sums[i], input[i], op);
    }
  }
  if (op == ncclAvg) {
    for (T& sum : sums)
      sum = static_cast<T>(sum / static_cast<T>(inputs.size()));
  }
  std::memcpy(output, sums.data(), count * sizeof(T));
}

// Of 16 bits, by way of fp32.
float Widened(uint16_t bits, ncclDataType_t dtype) {
  if (dtype == ncclFloat16) {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof(half));
    return static_cast<float>(half);
  }
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

uint16_t Narrowed(float value, ncclDataType_t dtype) {
  uint16_t bits;
  if (dtype == ncclFloat16) {
    const _Float16 half = static_cast<_Float16>(value);
    std::memcpy(&bits, &half, sizeof(bits));
    return bits;
  }
  uint32_t wide;
  std::memcpy(&wide, &value, sizeof(wide));
  wide += 0x7fff + (wide >> 16 & 1);  // To nearest, ties to even.
  return static_cast<uint16_t>(wide >> 16);
}

void Reduce16(const std::vector<const void*>& inputs, size_t count,
              ncclDataType_t dtype, ncclRedOp_t op, void* output) {
  std::vector<std::vector<float>> wide;
  std::vector<const void*> pointers;
  for (const void* input : inputs) {
    std::vector<float>& each = wide.emplace_back(count);
    for (size_t i = 0; i < count; ++i) {
      each[i] = Widened(static_cast<const uint16_t*>(input)[i], dtype);
    }
  }
  for (const std::vector<float>& each : wide) pointers.push_back(each.data());
  std::vector<float> sums(count);
  Reduce<float>(pointers, count, op, sums.data());
  for (size_t i = 0; i < count; ++i) {
    static_cast<uint16_t*>(output)[i] = Narrowed(sums[i], dtype);
  }
}

template <typename T>
void Scale(double by, size_t count, void* values) {
  for (size_t i = 0; i < count; ++i)
    static_cast<T*>(values)[i] *= static_cast<T>(by);
}

// The products are of the type.
std::vector<char> Scaled(const Call& call, const void* input, size_t count) {
  std::vector<char> values(count * SizeOf(call.dtype));
  std::memcpy(values.data(), input, values.size());
  if (call.dtype == ncclFloat32) {
    Scale<float>(call.scale, count, values.data());
  } else if (call.dtype == ncclFloat64) {
    Scale<double>(call.scale, count, values.data());
  } else {
    auto* const bits = reinterpret_cast<uint16_t*>(values.data());
    for (size_t i = 0; i < count; ++i) {
      bits[i] = Narrowed(
          Widened(bits[i], call.dtype) * static_cast<float>(call.scale),
          call.dtype);
    }
  }
  return values;
}

// `count` elements from `offset` of what all have given, to `output`.
void ReducePart(const std::vector<Call>& calls, size_t offset, size_t count,
                void* output) {
  const Call& any = calls.front();
  if (count == 0) return;
  std::vector<const void*> inputs;
  std::vector<std::vector<char>> scaled;
  for (const Call& call : calls) {
    inputs.push_back(static_cast<const char*>(Twin(call.send)) +
                     offset * SizeOf(any.dtype));
    if (!call.is_scaled) continue;
    scaled.push_back(Scaled(call, inputs.back(), count));
    inputs.back() = scaled.back().data();
  }
  switch (any.dtype) {
    case ncclFloat32:
      return Reduce<float>(inputs, count, any.op, output);
    case ncclFloat64:
      return Reduce<double>(inputs, count, any.op, output);
    case ncclInt32:
      return Reduce<int32_t>(inputs, count, any.op, output);
    case ncclUint32:
      return Reduce<uint32_t>(inputs, count, any.op, output);
    case ncclInt64:
      return Reduce<int64_t>(inputs, count, any.op, output);
    case ncclUint64:
      return Reduce<uint64_t>(inputs, count, any.op, output);
    case ncclInt8:
      return Reduce<int8_t>(inputs, count, any.op, output);
    case ncclUint8:
      return Reduce<uint8_t>(inputs, count, any.op, output);
    default:
      return Reduce16(inputs, count, any.dtype, any.op, output);
  }
}

}  // namespace

double ScalarValue(const void* scalar, ncclDataType_t dtype) {
  const auto as = [&](auto value) {
    std::memcpy(&value, scalar, sizeof(value));
    return value;
  };
  switch (dtype) {
    case ncclFloat32:
      return static_cast<double>(as(float{}));
    case ncclFloat64:
      return as(double{});
    default:
      return static_cast<double>(Widened(as(uint16_t{}), dtype));
  }
}

std::vector<char> Result(const std::vector<Call>& calls, int rank) {
  const Call& mine = calls[static_cast<size_t>(rank)];
  const size_t bytes = mine.count * SizeOf(mine.dtype);
  const size_t ranks = calls.size();
  std::vector<char> result;
  switch (mine.kind) {
    case Kind::kAllReduce:
      result.resize(bytes);
      ReducePart(calls, 0, mine.count, result.data());
      break;
    case Kind::kReduce:
      if (rank != mine.root) break;
      result.resize(bytes);
      ReducePart(calls, 0, mine.count, result.data());
      break;
    case Kind::kReduceScatter:
      result.resize(bytes);
      ReducePart(calls, static_cast<size_t>(rank) * mine.count, mine.count,
                 result.data());
      break;
    case Kind::kAllGather:
      result.resize(bytes * ranks);
      for (size_t r = 0; bytes != 0 && r < ranks; ++r) {
        std::memcpy(result.data() + r * bytes, Twin(calls[r].send), bytes);
      }
      break;
    case Kind::kBroadcast:
      result.resize(bytes);
      if (bytes == 0) break;
      std::memcpy(result.data(),
                  Twin(calls[static_cast<size_t>(mine.root)].send), bytes);
      break;
    default:
      break;
  }
  return result;
}

}  // namespace fake_gpu
