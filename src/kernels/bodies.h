// The kernels of a device: for each its arguments, how many indices it has, and
// what it does for one of them. Compiled for CUDA (kernels.cu), and by the
// host's compiler for the stand-in (test/fakes/gpu).
#ifndef COMMSCHED_SRC_KERNELS_BODIES_H_
#define COMMSCHED_SRC_KERNELS_BODIES_H_

#include <cstdint>

#include "commsched/engine_kernels.h"
#include "commsched/types.h"
#include "kernels/element.h"
#include "kernels/formats.h"
#include "kernels/optimizer.h"

namespace commsched::kernels {

// Of sums of squares.
inline constexpr uint64_t kBlockElements = 256;

// Elements of the types that the engine computes with.

COMMSCHED_ELEMENT float Load(const void* values, commsched_dtype_t dtype,
                             uint64_t i) {
  if (dtype == COMMSCHED_F32) return static_cast<const float*>(values)[i];
  const uint16_t bits = static_cast<const uint16_t*>(values)[i];
  return dtype == COMMSCHED_F16 ? HalfToFloat(bits) : Bfloat16ToFloat(bits);
}

COMMSCHED_ELEMENT void Store(void* values, commsched_dtype_t dtype, uint64_t i,
                             float value) {
  if (dtype == COMMSCHED_F32) {
    static_cast<float*>(values)[i] = value;
  } else {
    static_cast<uint16_t*>(values)[i] =
        dtype == COMMSCHED_F16 ? FloatToHalf(value) : FloatToBfloat16(value);
  }
}

// Of each kernel: Args, plain data that is passed by value; Count(), how many
// indices it has; Run(), which does one of them; and MapPointers(), which calls
// `map` for each pointer in Args. A kernel whose indices are shared by kLanes
// threads, a power of two, has PartOfLane() and Keep() in place of Run().

struct Adamw {
  using Args = commsched_adamw_args_t;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) { return a.count; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    if (a.control->skip != 0) return;
    AdamwStep(a).Apply(Load(a.gradient, a.gradient_dtype, i), a.m[i], a.v[i],
                       a.master[i]);
    if (a.copy != nullptr) Store(a.copy, a.copy_dtype, i, a.master[i]);
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.master), map(a.m), map(a.v), map(a.gradient), map(a.copy);
    map(a.control);
  }
};

struct Sgd {
  using Args = commsched_sgd_args_t;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) { return a.count; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    if (a.control->skip != 0) return;
    float g = SgdGradient(Load(a.gradient, a.gradient_dtype, i),
                          static_cast<float>(a.control->gradient_scale),
                          a.decay, a.master[i]);
    if (a.velocity != nullptr) {
      a.velocity[i] = a.momentum * a.velocity[i] + g;
      g = a.nesterov != 0 ? g + a.momentum * a.velocity[i] : a.velocity[i];
    }
    a.master[i] -= a.lr * g;
    if (a.copy != nullptr) Store(a.copy, a.copy_dtype, i, a.master[i]);
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.master), map(a.velocity), map(a.gradient), map(a.copy);
    map(a.control);
  }
};

struct BlockSquaresArgs {
  const void* values;
  double* out_sums;
  uint64_t count;
  commsched_dtype_t dtype;
};

// An index is a block, which kLanes threads share: each gives a part, parts are
// added pairwise, neighbours first, and the sum is kept. A warp reads whole
// sectors of memory, which a thread per block would not.
struct BlockSquares {
  using Args = BlockSquaresArgs;
  static constexpr uint32_t kLanes = kLanesOfBlock;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) {
    return (a.count + kBlockElements - 1) / kBlockElements;
  }
  static COMMSCHED_ELEMENT double PartOfLane(const Args& a, uint64_t block,
                                             uint32_t lane) {
    const uint64_t begin = block * kBlockElements;
    const uint64_t rest = a.count - begin;
    return SquaresOfLane(
        rest < kBlockElements ? rest : kBlockElements, lane,
        [&](uint64_t i) { return Load(a.values, a.dtype, begin + i); });
  }
  static COMMSCHED_ELEMENT void Keep(const Args& a, uint64_t block,
                                     double sum) {
    a.out_sums[block] = sum;
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.values), map(a.out_sums);
  }
};

struct CombineArgs {
  void* into;
  const void* values;
  uint64_t count;
  commsched_dtype_t into_dtype, dtype;
};

struct Add {
  using Args = CombineArgs;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) { return a.count; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    Store(a.into, a.into_dtype, i,
          Load(a.into, a.into_dtype, i) + Load(a.values, a.dtype, i));
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.into), map(a.values);
  }
};

struct Convert {
  using Args = CombineArgs;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) { return a.count; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    Store(a.into, a.into_dtype, i, Load(a.values, a.dtype, i));
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.into), map(a.values);
  }
};

struct SumRuns {
  using Args = commsched_sum_runs_args_t;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) { return a.count; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    a.out[i] = SumOfRuns(a, i);
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.values), map(a.runs), map(a.first_run), map(a.out);
  }
};

struct DecideStep {
  using Args = commsched_decide_args_t;
  static COMMSCHED_ELEMENT uint64_t Count(const Args&) { return 1; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t) { Decide(a); }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.state), map(a.sums);
  }
};

struct FillArgs {
  double* values;
  double value;
  uint64_t count;
};

struct Fill {
  using Args = FillArgs;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) { return a.count; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    a.values[i] = a.value;
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.values);
  }
};

// out[i] = what reduces inputs[i], inputs[stride + i], ... in the order of the
// tree: the sum that every backend gives which promises one
// (src/comm/reduce.h).
struct ReduceRanksArgs {
  const void* inputs;
  void* out;
  uint64_t count, stride;  // In elements.
  uint32_t num_inputs;
  commsched_dtype_t dtype;
  commsched_reduce_op_t op;
};

// The tree over the 2^kLog inputs from `in` on.
template <typename Format, typename Op, uint32_t kLog>
COMMSCHED_ELEMENT typename Format::Accumulator ReduceBlock(
    const typename Format::Element* in, uint64_t stride) {
  if constexpr (kLog == 0) {
    return Format::Widen(*in);
  } else {
    const auto* const half = in + (stride << (kLog - 1));
    return Op::Of(ReduceBlock<Format, Op, kLog - 1>(in, stride),
                  ReduceBlock<Format, Op, kLog - 1>(half, stride));
  }
}

// A world has at most 4096 ranks (src/comm/world.h): blocks of eight, counted.
inline constexpr uint32_t kMaxBlockBits = 10;

// Counts blocks of eight inputs in binary: where bit k is set, the 2^k blocks
// before those of the lower bits wait for their siblings in `waiting[k]`. No
// index depends on data once the loops are unrolled, so that all of it is in
// registers; a `break` would undo that.
template <typename Format, typename Op>
COMMSCHED_ELEMENT typename Format::Accumulator ReduceElement(
    const ReduceRanksArgs& a, uint64_t i) {
  using Accumulator = typename Format::Accumulator;
  const auto* in = static_cast<const typename Format::Element*>(a.inputs) + i;
  const uint32_t num_blocks = a.num_inputs / 8;
  Accumulator waiting[kMaxBlockBits] = {};
  for (uint32_t b = 0; b < num_blocks; ++b) {
    Accumulator sum = ReduceBlock<Format, Op, 3>(in, a.stride);
    in += 8 * a.stride;
    bool carries = true;
    COMMSCHED_UNROLL
    for (uint32_t k = 0; k < kMaxBlockBits; ++k) {
      const bool waits = carries && (b >> k & 1) == 0;
      carries = carries && !waits;
      if (waits) waiting[k] = sum;
      if (carries) sum = Op::Of(waiting[k], sum);
    }
  }
  // What the end leaves without a sibling, the smallest first.
  Accumulator sum{};
  bool has_sum = false;
  const auto take = [&](Accumulator left) {
    sum = has_sum ? Op::Of(left, sum) : left;
    has_sum = true;
  };
  const uint32_t rest = a.num_inputs % 8;
  if ((rest & 1) != 0) {
    take(ReduceBlock<Format, Op, 0>(in + (rest & 6) * a.stride, a.stride));
  }
  if ((rest & 2) != 0) {
    take(ReduceBlock<Format, Op, 1>(in + (rest & 4) * a.stride, a.stride));
  }
  if ((rest & 4) != 0) take(ReduceBlock<Format, Op, 2>(in, a.stride));
  if (num_blocks == 0) return sum;
  COMMSCHED_UNROLL
  for (uint32_t k = 0; k < kMaxBlockBits; ++k) {
    if ((num_blocks >> k & 1) != 0) take(waiting[k]);
  }
  return sum;
}

template <typename T>
COMMSCHED_ELEMENT T MeanOfIntegers(const ReduceRanksArgs& a, uint64_t i) {
  const T* const in = static_cast<const T*>(a.inputs) + i;
  WideSum<T> sum = 0;
  for (uint32_t r = 0; r < a.num_inputs; ++r) sum += in[r * a.stride];
  return MeanOf<T>(sum, a.num_inputs);
}

template <typename Format>
COMMSCHED_ELEMENT void ReduceOne(const ReduceRanksArgs& a, uint64_t i) {
  using Accumulator = typename Format::Accumulator;
  auto* const out = static_cast<typename Format::Element*>(a.out) + i;
  if constexpr (std::is_integral_v<Accumulator>) {
    if (a.op == COMMSCHED_AVG) {
      *out = MeanOfIntegers<Accumulator>(a, i);
      return;
    }
  }
  Accumulator sum{};
  switch (a.op) {
    case COMMSCHED_MIN:
      sum = ReduceElement<Format, Min>(a, i);
      break;
    case COMMSCHED_MAX:
      sum = ReduceElement<Format, Max>(a, i);
      break;
    case COMMSCHED_PROD:
      sum = ReduceElement<Format, Product>(a, i);
      break;
    case COMMSCHED_SUM:
    case COMMSCHED_AVG:
      sum = ReduceElement<Format, Sum>(a, i);
      break;
  }
  if constexpr (!std::is_integral_v<Accumulator>) {
    if (a.op == COMMSCHED_AVG) sum *= MeanFactor<Accumulator>(a.num_inputs);
  }
  *out = Format::Narrow(sum);
}

struct ReduceRanks {
  using Args = ReduceRanksArgs;
  static COMMSCHED_ELEMENT uint64_t Count(const Args& a) { return a.count; }
  static COMMSCHED_ELEMENT void Run(const Args& a, uint64_t i) {
    switch (a.dtype) {
      case COMMSCHED_F32:
        return ReduceOne<Plain<float>>(a, i);
      case COMMSCHED_F64:
        return ReduceOne<Plain<double>>(a, i);
      case COMMSCHED_F16:
        return ReduceOne<Half>(a, i);
      case COMMSCHED_BF16:
        return ReduceOne<Bfloat16>(a, i);
      case COMMSCHED_I8:
        return ReduceOne<Plain<int8_t>>(a, i);
      case COMMSCHED_I32:
        return ReduceOne<Plain<int32_t>>(a, i);
      case COMMSCHED_I64:
        return ReduceOne<Plain<int64_t>>(a, i);
      case COMMSCHED_U8:
        return ReduceOne<Plain<uint8_t>>(a, i);
    }
  }
  template <typename Map>
  static void MapPointers(Args& a, const Map& map) {
    map(a.inputs), map(a.out);
  }
};

template <typename Kernel>
concept HasLanes = requires {
  Kernel::kLanes;
};

// How many threads an index is done by.
template <typename Kernel>
constexpr uint32_t LanesOf() {
  if constexpr (HasLanes<Kernel>) {
    return Kernel::kLanes;
  } else {
    return 1;
  }
}

// Does index `i` of a kernel on the host, with the bits of a device.
template <typename Kernel>
void RunOnHost(const typename Kernel::Args& args, uint64_t i) {
  if constexpr (HasLanes<Kernel>) {
    double parts[Kernel::kLanes];
    for (uint32_t lane = 0; lane < Kernel::kLanes; ++lane) {
      parts[lane] = Kernel::PartOfLane(args, i, lane);
    }
    for (uint32_t apart = 1; apart < Kernel::kLanes; apart *= 2) {
      for (uint32_t lane = 0; lane < Kernel::kLanes; lane += 2 * apart) {
        parts[lane] += parts[lane + apart];
      }
    }
    Kernel::Keep(args, i, parts[0]);
  } else {
    Kernel::Run(args, i);
  }
}

// X(name in a fat binary, kernel).
#define COMMSCHED_DEVICE_KERNELS(X)        \
  X(commsched_adamw, Adamw)                \
  X(commsched_sgd, Sgd)                    \
  X(commsched_block_squares, BlockSquares) \
  X(commsched_add, Add)                    \
  X(commsched_convert, Convert)            \
  X(commsched_sum_runs, SumRuns)           \
  X(commsched_decide, DecideStep)          \
  X(commsched_fill, Fill)                  \
  X(commsched_reduce_ranks, ReduceRanks)

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_BODIES_H_
