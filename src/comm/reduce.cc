#include "comm/reduce.h"

#include <algorithm>
#include <bit>
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

using kernels::And;
using kernels::Bfloat16;
using kernels::Half;
using kernels::Max;
using kernels::MeanFactor;
using kernels::MeanOf;
using kernels::Min;
using kernels::Or;
using kernels::Plain;
using kernels::Product;
using kernels::ScaledSum;
using kernels::Sum;
using kernels::WideSum;
using kernels::Xor;

// Inputs are combined a tile at a time, so that accumulators stay in the
// first-level cache or registers. The sizes of tiles are constants: there are
// no calls and no scalar tails in a tile.
constexpr uint64_t kTileBytes = 256;
constexpr uint64_t kLineBytes = 64;
// Inputs whose subtree is summed up in registers, if there are as many.
constexpr int kWidestLeaf = 8;

bool IsMean(const Reduction& reduction) {
  return reduction.op == ReduceOp::kAvg;
}

COMMSCHED_ELEMENT const void* DataOf(const Reduction& reduction, int input) {
  return reduction.pieces != nullptr ? reduction.pieces[input].data
                                     : reduction.inputs[input];
}

COMMSCHED_ELEMENT uint32_t SizeOf(const Reduction& reduction) {
  return reduction.size != 0 ? reduction.size
                             : static_cast<uint32_t>(reduction.num_inputs);
}

COMMSCHED_ELEMENT bool IsPartial(const Reduction& reduction, int input) {
  return reduction.pieces != nullptr && reduction.pieces[input].is_partial != 0;
}

// Positions: [begin, end).
struct Node {
  uint32_t begin = 0;
  uint32_t end = 0;
  COMMSCHED_ELEMENT uint32_t size() const { return end - begin; }
};

COMMSCHED_ELEMENT Node NodeOf(const Reduction& reduction, int input) {
  if (reduction.pieces == nullptr) {
    const auto position = static_cast<uint32_t>(input);
    return {position, position + 1};
  }
  return {reduction.pieces[input].lo, reduction.pieces[input].hi};
}

// Whether a node and the next one are the halves of an aligned block.
COMMSCHED_ELEMENT bool AreSiblings(Node left, Node right) {
  return left.size() == right.size() && left.begin % (2 * left.size()) == 0;
}

// How many inputs from `first` on make a block: 8, 4, 2 or 1.
COMMSCHED_ELEMENT int LeafWidth(const Reduction& reduction, int first) {
  int rest = reduction.num_inputs - first;
  const uint32_t begin = NodeOf(reduction, first).begin;
  if (reduction.pieces != nullptr) {
    int raw = 0;
    while (raw < std::min(rest, kWidestLeaf) &&
           !IsPartial(reduction, first + raw)) {
      ++raw;
    }
    rest = std::max(raw, 1);
  }
  int width = kWidestLeaf;
  while (width > rest || begin % static_cast<uint32_t>(width) != 0) width /= 2;
  return width;
}

template <typename Format>
COMMSCHED_ELEMENT const typename Format::Element* InputAt(
    const Reduction& reduction, int input, uint64_t first) {
  return static_cast<const typename Format::Element*>(
             DataOf(reduction, input)) +
         first;
}

// What the first kWidth inputs are together, as the tree of as many has it.
template <typename Format, typename Op, int kWidth>
COMMSCHED_ELEMENT typename Format::Accumulator TreeOf(
    const typename Format::Element* const* in, uint64_t i) {
  if constexpr (kWidth == 1) {
    return Format::Widen(in[0][i]);
  } else {
    constexpr auto kLeft =
        static_cast<int>(std::bit_floor(static_cast<uint32_t>(kWidth) - 1));
    return Op::Of(TreeOf<Format, Op, kLeft>(in, i),
                  TreeOf<Format, Op, kWidth - kLeft>(in + kLeft, i));
  }
}

template <typename Format, typename Op, uint64_t kCount, int kWidth>
COMMSCHED_ELEMENT void LoadLeaf(const Reduction& reduction, int input,
                                uint64_t first,
                                typename Format::Accumulator* __restrict sum) {
  const typename Format::Element* in[kWidth];
  for (int w = 0; w < kWidth; ++w) {
    in[w] = InputAt<Format>(reduction, input + w, first);
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    sum[i] = TreeOf<Format, Op, kWidth>(in, i);
  }
}

// Loads the block that begins with input `input` to `sum`. Returns how many
// inputs that were.
template <typename Format, typename Op, uint64_t kCount>
COMMSCHED_ELEMENT int LoadBlock(const Reduction& reduction, int input,
                                uint64_t first,
                                typename Format::Accumulator* __restrict sum) {
  using Accumulator = typename Format::Accumulator;
  if (IsPartial(reduction, input)) {
    const auto* const in =
        static_cast<const Accumulator*>(DataOf(reduction, input)) + first;
    for (uint64_t i = 0; i < kCount; ++i) sum[i] = in[i];
    return 1;
  }
  // Sums are what is mostly asked for.
  const bool is_sum = std::is_same_v<Op, Sum>;
  switch (is_sum ? LeafWidth(reduction, input) : 1) {
    case 8:
      LoadLeaf<Format, Op, kCount, 8>(reduction, input, first, sum);
      return 8;
    case 4:
      LoadLeaf<Format, Op, kCount, 4>(reduction, input, first, sum);
      return 4;
    case 2:
      LoadLeaf<Format, Op, kCount, 2>(reduction, input, first, sum);
      return 2;
    default:
      LoadLeaf<Format, Op, kCount, 1>(reduction, input, first, sum);
      if constexpr (std::is_same_v<Op, ScaledSum>) {
        const auto scale = static_cast<Accumulator>(reduction.scale);
        for (uint64_t i = 0; i < kCount; ++i) sum[i] *= scale;
      }
      return 1;
  }
}

// Blocks that wait for their siblings, the latest one last: at most one of each
// size.
template <typename Accumulator, uint64_t kCount>
struct Waiting {
  static constexpr int kMost = 32;
  alignas(64) Accumulator sums[kMost][kCount];
  Node nodes[kMost];
  int count = 0;
};

// The last one that waits, and `sum`, to `sum`.
template <typename Op, typename Accumulator, uint64_t kCount>
COMMSCHED_ELEMENT void AddToLast(Waiting<Accumulator, kCount>* waiting,
                                 Accumulator* __restrict sum) {
  const Accumulator* __restrict const left = waiting->sums[--waiting->count];
  for (uint64_t i = 0; i < kCount; ++i) sum[i] = Op::Of(left[i], sum[i]);
}

template <typename Format, typename Op, uint64_t kCount>
COMMSCHED_ELEMENT void CombineTile(
    const Reduction& reduction, uint64_t first,
    Waiting<typename Format::Accumulator, kCount>* waiting,
    typename Format::Accumulator* __restrict sum) {
  for (int input = 0;;) {
    const Node begin = NodeOf(reduction, input);
    input += LoadBlock<Format, Op, kCount>(reduction, input, first, sum);
    Node node = {begin.begin, NodeOf(reduction, input - 1).end};
    while (waiting->count != 0 &&
           AreSiblings(waiting->nodes[waiting->count - 1], node)) {
      node.begin = waiting->nodes[waiting->count - 1].begin;
      AddToLast<Op>(waiting, sum);
    }
    if (input == reduction.num_inputs) break;
    waiting->nodes[waiting->count] = node;
    auto* __restrict const kept = waiting->sums[waiting->count++];
    for (uint64_t i = 0; i < kCount; ++i) kept[i] = sum[i];
  }
  // Those that the end of the group leaves without a sibling.
  while (waiting->count != 0) AddToLast<Op>(waiting, sum);
}

template <typename Format, uint64_t kCount>
COMMSCHED_ELEMENT void StoreTile(
    const Reduction& reduction, uint64_t first,
    const typename Format::Accumulator* accumulators) {
  using Accumulator = typename Format::Accumulator;
  auto* __restrict sum = accumulators;
  if (reduction.result_is_partial) {
    auto* __restrict out = static_cast<Accumulator*>(reduction.result) + first;
    for (uint64_t i = 0; i < kCount; ++i) out[i] = sum[i];
    return;
  }
  auto* __restrict out =
      static_cast<typename Format::Element*>(reduction.result) + first;
  if (!IsMean(reduction)) {
    for (uint64_t i = 0; i < kCount; ++i) out[i] = Format::Narrow(sum[i]);
  } else if constexpr (!std::is_integral_v<Accumulator>) {
    const auto factor = MeanFactor<Accumulator>(SizeOf(reduction));
    for (uint64_t i = 0; i < kCount; ++i) {
      out[i] = Format::Narrow(sum[i] * factor);
    }
  }
}

// The sum of few inputs, which stays in registers.
template <typename Format, uint64_t kCount, int kInputs>
COMMSCHED_ELEMENT void AddFew(const Reduction& reduction, uint64_t first) {
  using Accumulator = typename Format::Accumulator;
  constexpr uint64_t kAtOnce =
      std::min<uint64_t>(kCount, kLineBytes / sizeof(typename Format::Element));
  const typename Format::Element* in[kInputs];
  for (int i = 0; i < kInputs; ++i)
    in[i] = InputAt<Format>(reduction, i, first);
  auto* const out =
      static_cast<typename Format::Element*>(reduction.result) + first;
  const bool is_mean = IsMean(reduction);
  for (uint64_t begin = 0; begin < kCount; begin += kAtOnce) {
    Accumulator sum[kAtOnce];
    for (uint64_t i = 0; i < kAtOnce; ++i) {
      sum[i] = TreeOf<Format, Sum, kInputs>(in, begin + i);
    }
    if (is_mean) {
      for (uint64_t i = 0; i < kAtOnce; ++i) {
        sum[i] *= MeanFactor<Accumulator>(kInputs);
      }
    }
    for (uint64_t i = 0; i < kAtOnce; ++i) {
      out[begin + i] = Format::Narrow(sum[i]);
    }
  }
}

// Whether that is what is asked for, and done.
template <typename Format, uint64_t kCount>
COMMSCHED_ELEMENT bool AddedFew(const Reduction& reduction, uint64_t first) {
  if (reduction.op != ReduceOp::kSum && !IsMean(reduction)) return false;
  if (reduction.pieces != nullptr) return false;
  switch (reduction.num_inputs) {
    case 2:
      AddFew<Format, kCount, 2>(reduction, first);
      return true;
    case 3:
      AddFew<Format, kCount, 3>(reduction, first);
      return true;
    case 4:
      AddFew<Format, kCount, 4>(reduction, first);
      return true;
    case 5:
      AddFew<Format, kCount, 5>(reduction, first);
      return true;
    case 6:
      AddFew<Format, kCount, 6>(reduction, first);
      return true;
    case 7:
      AddFew<Format, kCount, 7>(reduction, first);
      return true;
    case 8:
      AddFew<Format, kCount, 8>(reduction, first);
      return true;
  }
  return false;
}

// As many bytes of what is next as the tile at `first` has.
template <typename Format, uint64_t kCount>
COMMSCHED_ELEMENT void PrefetchTile(const Reduction& reduction,
                                    uint64_t first) {
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
COMMSCHED_ELEMENT void ReduceTile(
    const Reduction& reduction, uint64_t first,
    Waiting<typename Format::Accumulator, kCount>* waiting,
    typename Format::Accumulator* sum) {
  if (kCount > 1 && reduction.next_inputs != nullptr) {
    PrefetchTile<Format, kCount>(reduction, first);
  }
  if (AddedFew<Format, kCount>(reduction, first)) return;
  switch (reduction.op) {
    case ReduceOp::kSum:
    case ReduceOp::kAvg:
      CombineTile<Format, Sum, kCount>(reduction, first, waiting, sum);
      break;
    case ReduceOp::kMin:
      CombineTile<Format, Min, kCount>(reduction, first, waiting, sum);
      break;
    case ReduceOp::kMax:
      CombineTile<Format, Max, kCount>(reduction, first, waiting, sum);
      break;
    case ReduceOp::kProd:
      CombineTile<Format, Product, kCount>(reduction, first, waiting, sum);
      break;
    case ReduceOp::kPremulSum:
      if constexpr (!std::is_integral_v<typename Format::Accumulator>) {
        CombineTile<Format, ScaledSum, kCount>(reduction, first, waiting, sum);
      }
      break;
    case ReduceOp::kBand:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      break;  // ReduceBits()
  }
  StoreTile<Format, kCount>(reduction, first, sum);
}

// Reduces from `first` on as many whole tiles as there are. Returns where that
// ends.
template <typename Format, uint64_t kElements>
COMMSCHED_ELEMENT uint64_t ReduceTiles(const Reduction& reduction,
                                       uint64_t first) {
  using Accumulator = typename Format::Accumulator;
  alignas(64) Accumulator sum[kElements] = {};
  Waiting<Accumulator, kElements> waiting;
  for (; reduction.count - first >= kElements; first += kElements) {
    ReduceTile<Format, kElements>(reduction, first, &waiting, sum);
  }
  return first;
}

template <typename Op, uint64_t kElements>
COMMSCHED_ELEMENT uint64_t CombineBits(const Reduction& reduction,
                                       uint64_t first) {
  alignas(64) uint8_t bits[kElements] = {};
  Waiting<uint8_t, kElements> waiting;
  for (; reduction.count - first >= kElements; first += kElements) {
    CombineTile<Plain<uint8_t>, Op, kElements>(reduction, first, &waiting,
                                               bits);
    StoreTile<Plain<uint8_t>, kElements>(reduction, first, bits);
  }
  return first;
}

template <typename Op>
COMMSCHED_ELEMENT void CombineAllBits(const Reduction& reduction) {
  uint64_t first = CombineBits<Op, kTileBytes>(reduction, 0);
  first = CombineBits<Op, kTileBytes / 8>(reduction, first);
  CombineBits<Op, 1>(reduction, first);
}

// Of any integers: `count` is bytes.
COMMSCHED_ELEMENT void ReduceBits(const Reduction& reduction) {
  if (reduction.op == ReduceOp::kBand) return CombineAllBits<And>(reduction);
  if (reduction.op == ReduceOp::kBor) return CombineAllBits<Or>(reduction);
  CombineAllBits<Xor>(reduction);
}

template <typename Format>
COMMSCHED_ELEMENT void ReduceAll(const Reduction& reduction) {
  constexpr uint64_t kElements = kTileBytes / sizeof(typename Format::Element);
  uint64_t first = ReduceTiles<Format, kElements>(reduction, 0);
  first = ReduceTiles<Format, kElements / 8>(reduction, first);
  ReduceTiles<Format, 1>(reduction, first);
}

// Means of integers, whose sums are wider than the elements, and exact: their
// order is all one.
template <typename T, uint64_t kCount>
COMMSCHED_ELEMENT uint64_t MeanTiles(const Reduction& reduction,
                                     uint64_t first) {
  using Wide = WideSum<T>;
  const uint32_t size = SizeOf(reduction);
  alignas(64) Wide sums[kCount];
  for (; reduction.count - first >= kCount; first += kCount) {
    for (uint64_t i = 0; i < kCount; ++i) sums[i] = 0;
    for (int input = 0; input < reduction.num_inputs; ++input) {
      if (IsPartial(reduction, input)) {
        const auto* const in =
            static_cast<const Wide*>(DataOf(reduction, input)) + first;
        for (uint64_t i = 0; i < kCount; ++i) sums[i] += in[i];
      } else {
        const auto* const in = InputAt<Plain<T>>(reduction, input, first);
        for (uint64_t i = 0; i < kCount; ++i) sums[i] += in[i];
      }
    }
    if (reduction.result_is_partial) {
      auto* const out = static_cast<Wide*>(reduction.result) + first;
      for (uint64_t i = 0; i < kCount; ++i) out[i] = sums[i];
    } else {
      auto* const out = static_cast<T*>(reduction.result) + first;
      for (uint64_t i = 0; i < kCount; ++i) out[i] = MeanOf<T>(sums[i], size);
    }
  }
  return first;
}

template <typename T>
COMMSCHED_ELEMENT void ReduceIntegers(const Reduction& reduction) {
  if (!IsMean(reduction)) return ReduceAll<Plain<T>>(reduction);
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
COMMSCHED_DEFINE_REDUCE(BytesOfBits, ReduceBits)

}  // namespace

bool IsTreeNode(uint32_t lo, uint32_t hi, uint32_t size) {
  if (lo >= hi || hi > size) return false;
  if (std::has_single_bit(hi - lo) && lo % (hi - lo) == 0) return true;
  if (hi != size) return false;
  // Those that end with the group: the right half of the right half ...
  uint32_t begin = 0;
  while (begin < lo) begin += std::bit_floor(size - begin - 1);
  return begin == lo;
}

uint64_t PartialBytes(DType dtype, ReduceOp op) {
  const bool is_mean = op == ReduceOp::kAvg;
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return sizeof(float);
    case DType::kF64:
      return sizeof(double);
    case DType::kI8:
    case DType::kU8:
      return is_mean ? sizeof(WideSum<int8_t>) : sizeof(int8_t);
    case DType::kI32:
      return is_mean ? sizeof(WideSum<int32_t>) : sizeof(int32_t);
    case DType::kI64:
      return is_mean ? sizeof(WideSum<int64_t>) : sizeof(int64_t);
    // Not computed with.
    case DType::kI16:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kC64:
    case DType::kC128:
    case DType::kBool:
      break;
  }
  return 0;
}

void Reduce(DType dtype, const Reduction& reduction) {
  if (IsBitwise(reduction.op)) {
    Reduction of_bytes = reduction;
    of_bytes.count *= DTypeSize(dtype);
    return ReduceBytesOfBits(of_bytes);
  }
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
    // Not computed with.
    case DType::kI16:
    case DType::kU16:
    case DType::kU32:
    case DType::kU64:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kC64:
    case DType::kC128:
    case DType::kBool:
      break;
  }
}

}  // namespace commsched
