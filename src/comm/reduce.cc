#include "comm/reduce.h"

#include <type_traits>

#include "kernels/formats.h"

// Compiled for several instruction sets, the best one is bound when the library
// is loaded. Not under sanitizers: they are not ready at that time. No kernel
// has a product that is added to something, so there is nothing to contract
// into a fused operation, and all clones give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COMMSCHED_VECTOR_CLONES \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define COMMSCHED_VECTOR_CLONES
#endif

namespace commsched {
namespace {

using kernels::Bfloat16;
using kernels::Half;
using kernels::Max;
using kernels::MeanFactor;
using kernels::MeanOf;
using kernels::Min;
using kernels::Plain;
using kernels::Product;
using kernels::Sum;
using kernels::WideSum;

// Inputs are combined a tile at a time, so that accumulators stay in the
// first-level cache or registers. The sizes of tiles are constants: there are
// no calls and no scalar tails in a tile.
constexpr uint64_t kTileBytes = 256;

template <typename Format>
COMMSCHED_ELEMENT const typename Format::Element* InputAt(
    const Reduction& reduction, int input, uint64_t first) {
  return static_cast<const typename Format::Element*>(reduction.inputs[input]) +
         first;
}

// Loads the first input, or the sum of the first four: sums are what is mostly
// asked for, and so the memory of four inputs is under way at once. Returns how
// many inputs that is.
template <typename Format, uint64_t kCount>
COMMSCHED_ELEMENT int LoadTile(const Reduction& reduction, uint64_t first,
                               typename Format::Accumulator* __restrict sum) {
  const auto* const a = InputAt<Format>(reduction, 0, first);
  const bool sums =
      reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kAvg;
  if (!sums || reduction.num_inputs < 4) {
    for (uint64_t i = 0; i < kCount; ++i) sum[i] = Format::Widen(a[i]);
    return 1;
  }
  const auto* const b = InputAt<Format>(reduction, 1, first);
  const auto* const c = InputAt<Format>(reduction, 2, first);
  const auto* const d = InputAt<Format>(reduction, 3, first);
  for (uint64_t i = 0; i < kCount; ++i) {
    sum[i] = Sum::Of(Sum::Of(Sum::Of(Format::Widen(a[i]), Format::Widen(b[i])),
                             Format::Widen(c[i])),
                     Format::Widen(d[i]));
  }
  return 4;
}

template <typename Format, typename Op, uint64_t kCount>
COMMSCHED_ELEMENT void CombineTile(
    const Reduction& reduction, int next, uint64_t first,
    typename Format::Accumulator* __restrict sum) {
  for (; next < reduction.num_inputs; ++next) {
    const auto* const in = InputAt<Format>(reduction, next, first);
    for (uint64_t i = 0; i < kCount; ++i) {
      sum[i] = Op::Of(sum[i], Format::Widen(in[i]));
    }
  }
}

template <typename Format, uint64_t kCount>
COMMSCHED_ELEMENT void StoreTile(
    const Reduction& reduction, uint64_t first,
    const typename Format::Accumulator* accumulators) {
  using Accumulator = typename Format::Accumulator;
  auto* __restrict out =
      static_cast<typename Format::Element*>(reduction.result) + first;
  auto* __restrict sum = accumulators;
  if (reduction.op != ReduceOp::kAvg) {
    for (uint64_t i = 0; i < kCount; ++i) out[i] = Format::Narrow(sum[i]);
  } else if constexpr (!std::is_integral_v<Accumulator>) {
    const auto factor =
        MeanFactor<Accumulator>(static_cast<uint32_t>(reduction.num_inputs));
    for (uint64_t i = 0; i < kCount; ++i) {
      out[i] = Format::Narrow(sum[i] * factor);
    }
  }
}

// As many bytes of what is next as the tile at `first` has.
template <typename Format, uint64_t kCount>
COMMSCHED_ELEMENT void PrefetchTile(const Reduction& reduction,
                                    uint64_t first) {
  constexpr uint64_t kLineBytes = 64;
  constexpr uint64_t kElementBytes = sizeof(typename Format::Element);
  const auto prefetch = [&](const void* memory) {
    const char* const tile =
        static_cast<const char*>(memory) + first * kElementBytes;
    for (uint64_t b = 0; b < kCount * kElementBytes; b += kLineBytes) {
      __builtin_prefetch(tile + b);
    }
  };
  for (int i = 0; i < reduction.num_inputs; ++i) {
    prefetch(reduction.next_inputs[i]);
  }
  prefetch(reduction.next_result);
}

template <typename Format, uint64_t kCount>
COMMSCHED_ELEMENT void ReduceTile(const Reduction& reduction, uint64_t first,
                                  typename Format::Accumulator* accumulators) {
  if (kCount > 1 && reduction.next_inputs != nullptr) {
    PrefetchTile<Format, kCount>(reduction, first);
  }
  const int next = LoadTile<Format, kCount>(reduction, first, accumulators);
  switch (reduction.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      CombineTile<Format, Sum, kCount>(reduction, next, first, accumulators);
      break;
    case ReduceOp::kMin:
      CombineTile<Format, Min, kCount>(reduction, next, first, accumulators);
      break;
    case ReduceOp::kMax:
      CombineTile<Format, Max, kCount>(reduction, next, first, accumulators);
      break;
    case ReduceOp::kProd:
      CombineTile<Format, Product, kCount>(reduction, next, first,
                                           accumulators);
      break;
  }
  StoreTile<Format, kCount>(reduction, first, accumulators);
}

// Reduces from `first` on as many whole tiles as there are. Returns where that
// ends.
template <typename Format, uint64_t kElements>
COMMSCHED_ELEMENT uint64_t ReduceTiles(const Reduction& reduction,
                                       uint64_t first) {
  alignas(64) typename Format::Accumulator accumulators[kElements];
  for (; reduction.count - first >= kElements; first += kElements) {
    ReduceTile<Format, kElements>(reduction, first, accumulators);
  }
  return first;
}

template <typename Format>
COMMSCHED_ELEMENT void ReduceAll(const Reduction& reduction) {
  constexpr uint64_t kElements = kTileBytes / sizeof(typename Format::Element);
  uint64_t first = ReduceTiles<Format, kElements>(reduction, 0);
  first = ReduceTiles<Format, kElements / 8>(reduction, first);
  ReduceTiles<Format, 1>(reduction, first);
}

// Means of integers, whose sums are wider than the elements.
template <typename T, uint64_t kCount>
COMMSCHED_ELEMENT uint64_t MeanTiles(const Reduction& reduction,
                                     uint64_t first) {
  const auto num_inputs = static_cast<uint32_t>(reduction.num_inputs);
  alignas(64) WideSum<T> sums[kCount];
  for (; reduction.count - first >= kCount; first += kCount) {
    for (uint64_t i = 0; i < kCount; ++i) sums[i] = 0;
    for (int input = 0; input < reduction.num_inputs; ++input) {
      const auto* const in = InputAt<Plain<T>>(reduction, input, first);
      for (uint64_t i = 0; i < kCount; ++i) sums[i] += in[i];
    }
    auto* const out = static_cast<T*>(reduction.result) + first;
    for (uint64_t i = 0; i < kCount; ++i) {
      out[i] = MeanOf<T>(sums[i], num_inputs);
    }
  }
  return first;
}

template <typename T>
COMMSCHED_ELEMENT void ReduceIntegers(const Reduction& reduction) {
  if (reduction.op != ReduceOp::kAvg) return ReduceAll<Plain<T>>(reduction);
  const uint64_t first =
      MeanTiles<T, kTileBytes / sizeof(WideSum<T>)>(reduction, 0);
  MeanTiles<T, 1>(reduction, first);
}

// The clones themselves: attributes do not go on templates.
#define COMMSCHED_DEFINE_REDUCE(Name, Function)                           \
  COMMSCHED_VECTOR_CLONES void Reduce##Name(const Reduction& reduction) { \
    Function(reduction);                                                  \
  }

COMMSCHED_DEFINE_REDUCE(F32, ReduceAll<Plain<float>>)
COMMSCHED_DEFINE_REDUCE(F64, ReduceAll<Plain<double>>)
COMMSCHED_DEFINE_REDUCE(F16, ReduceAll<Half>)
COMMSCHED_DEFINE_REDUCE(BF16, ReduceAll<Bfloat16>)
COMMSCHED_DEFINE_REDUCE(I8, ReduceIntegers<int8_t>)
COMMSCHED_DEFINE_REDUCE(I32, ReduceIntegers<int32_t>)
COMMSCHED_DEFINE_REDUCE(I64, ReduceIntegers<int64_t>)
COMMSCHED_DEFINE_REDUCE(U8, ReduceIntegers<uint8_t>)

}  // namespace

void Reduce(DType dtype, const Reduction& reduction) {
  switch (dtype) {
    case DType::kF32:
      return ReduceF32(reduction);
    case DType::kF64:
      return ReduceF64(reduction);
    case DType::kF16:
      return ReduceF16(reduction);
    case DType::kBF16:
      return ReduceBF16(reduction);
    case DType::kI8:
      return ReduceI8(reduction);
    case DType::kI32:
      return ReduceI32(reduction);
    case DType::kI64:
      return ReduceI64(reduction);
    case DType::kU8:
      return ReduceU8(reduction);
  }
}

}  // namespace commsched
