// Each kernel of src/kernels gives on a device the bits that the processor's
// loop gives, whatever its inputs.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/cuda_runtime.h"
#include "kernels/cuda_kernels.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/launcher.h"

namespace commsched::gpu_check {
namespace {

using Random = std::mt19937_64;

constexpr uint64_t kArenaBytes = uint64_t{4} << 20;

// Bits of which one in four is drawn from `specials`, one in four is random,
// and the others are those of a moderate number.
template <typename Bits>
Bits Draw(Random& random, const std::vector<Bits>& specials, Bits moderate) {
  switch (random() % 4) {
    case 0:
      return specials[random() % specials.size()];
    case 1:
      return static_cast<Bits>(random());
    default:
      return moderate;
  }
}

double Moderate(Random& random) {
  return std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random),
                    static_cast<int>(random() % 16) - 8);
}

// Zeros, infinities, NaN, and the least and the greatest of denormal and normal
// numbers, of either sign.
template <typename Bits, typename Float>
std::vector<Bits> SpecialsOf() {
  using Limits = std::numeric_limits<Float>;
  std::vector<Bits> specials;
  for (const Float value :
       {Float{0}, Limits::denorm_min(), Limits::min(), Limits::max(),
        Limits::infinity(), Limits::quiet_NaN(),
        std::nextafter(Limits::min(), Float{0}), Float{1}}) {
    specials.push_back(std::bit_cast<Bits>(value));
    specials.push_back(std::bit_cast<Bits>(-value));
  }
  return specials;
}

void DrawElement(commsched_dtype_t dtype, Random& random, std::byte* at) {
  const auto put = [at](auto bits) { std::memcpy(at, &bits, sizeof(bits)); };
  static const auto& f32 = *new auto(SpecialsOf<uint32_t, float>());
  static const auto& f64 = *new auto(SpecialsOf<uint64_t, double>());
  static const auto& f16 = *new std::vector<uint16_t>{
      0,      0x8000, 1,      0x8001, 0x03ff, 0x0400,
      0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x7c01};
  static const auto& bf16 = *new std::vector<uint16_t>{
      0,      0x8000, 1,      0x8001, 0x007f, 0x0080,
      0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x7f81};
  const auto moderate = static_cast<float>(Moderate(random));
  switch (dtype) {
    case COMMSCHED_F32:
      return put(Draw(random, f32, std::bit_cast<uint32_t>(moderate)));
    case COMMSCHED_F64:
      return put(Draw(random, f64, std::bit_cast<uint64_t>(Moderate(random))));
    case COMMSCHED_F16:
      return put(Draw(random, f16, FloatToHalf(moderate)));
    case COMMSCHED_BF16:
      return put(Draw(random, bf16, FloatToBfloat16(moderate)));
    case COMMSCHED_I32:
      return put(static_cast<uint32_t>(random()));
    case COMMSCHED_I64:
      return put(static_cast<uint64_t>(random()));
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return put(static_cast<uint8_t>(random()));
  }
}

uint64_t BytesOf(commsched_dtype_t dtype) {
  switch (dtype) {
    case COMMSCHED_F64:
    case COMMSCHED_I64:
      return 8;
    case COMMSCHED_F32:
    case COMMSCHED_I32:
      return 4;
    case COMMSCHED_F16:
    case COMMSCHED_BF16:
      return 2;
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return 1;
  }
  return 0;
}

bool IsNan(commsched_dtype_t dtype, const std::byte* at) {
  double value = 0;
  if (dtype == COMMSCHED_F64) {
    std::memcpy(&value, at, sizeof(value));
  } else if (dtype == COMMSCHED_F32 || dtype == COMMSCHED_F16 ||
             dtype == COMMSCHED_BF16) {
    value = kernels::Load(at, dtype, 0);
  }
  return std::isnan(value);
}

// All memory of one run of a kernel, once for the processor and once on the
// device.
class Arena {
 public:
  // Room for `count` elements of random bits.
  template <typename T>
  T* Draw(commsched_dtype_t dtype, uint64_t count, Random& random) {
    Region region = {used_, dtype, count};
    std::byte* const begin = bytes_.data() + used_;
    for (uint64_t i = 0; i < count; ++i) {
      DrawElement(dtype, random, begin + i * BytesOf(dtype));
    }
    used_ += (count * BytesOf(dtype) + 15) / 16 * 16;
    regions_.push_back(region);
    return reinterpret_cast<T*>(begin);
  }
  // What only is read.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    std::byte* const begin = bytes_.data() + used_;
    std::memcpy(begin, values.data(), values.size() * sizeof(T));
    used_ += (values.size() * sizeof(T) + 15) / 16 * 16;
    return reinterpret_cast<T*>(begin);
  }

  std::vector<std::byte> Bytes() const {
    return {bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(used_)};
  }
  // Where on the device, where the arena is at `base`, what is at `pointer`.
  template <typename T>
  T* OnDevice(T* pointer, void* base) const {
    if (pointer == nullptr) return nullptr;
    const auto offset = reinterpret_cast<uintptr_t>(pointer) -
                        reinterpret_cast<uintptr_t>(bytes_.data());
    return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(base) + offset);
  }

  // Of the arena after the processor's run with `device`, what the other gave.
  // Of a NaN it does not matter which.
  absl::Status Compare(const std::vector<std::byte>& device) const {
    for (const Region& region : regions_) {
      const uint64_t size = BytesOf(region.dtype);
      for (uint64_t i = 0; i < region.count; ++i) {
        const uint64_t at = region.begin + i * size;
        const std::byte* const mine = bytes_.data() + at;
        const std::byte* const its = device.data() + at;
        if (std::memcmp(mine, its, size) == 0) continue;
        if (IsNan(region.dtype, mine) && IsNan(region.dtype, its)) continue;
        return absl::InternalError(absl::StrCat(
            "element ", i, " of ", region.count, " of dtype ", region.dtype,
            " is ", Hex(its, size), " on the device and ", Hex(mine, size),
            " on the processor"));
      }
    }
    return absl::OkStatus();
  }

 private:
  struct Region {
    uint64_t begin;
    commsched_dtype_t dtype;
    uint64_t count;
  };

  static std::string Hex(const std::byte* at, uint64_t size) {
    uint64_t bits = 0;
    std::memcpy(&bits, at, size);
    return absl::StrCat("0x", absl::Hex(bits));
  }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(kArenaBytes);
  uint64_t used_ = 0;
  std::vector<Region> regions_;
};

// A device, with memory for an arena.
class Parity {
 public:
  ~Parity() {
    if (stream_ != nullptr) cuda_->StreamDestroy(stream_);
    if (memory_ != nullptr) (void)cuda_->driver.Free(memory_);
  }

  absl::Status Make() {
    ASSIGN_OR_RETURN(cuda_, CudaRuntime::Get());
    ASSIGN_OR_RETURN(const Launcher* launcher, Launcher::Get());
    RETURN_IF_ERROR(cuda_->Check("cudaSetDevice", cuda_->SetDevice(0)));
    const std::string why = kernels_.Load(&launcher->cuda());
    if (!why.empty()) return absl::InternalError(why);
    RETURN_IF_ERROR(cuda_->Check(
        "cudaStreamCreateWithPriority",
        cuda_->StreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0)));
    return cuda_->Check("cuMemAlloc",
                        cuda_->driver.Allocate(kArenaBytes, &memory_));
  }

  // The arguments point into the arena.
  template <typename Kernel>
  absl::Status Run(Arena& arena, const typename Kernel::Args& args) {
    std::vector<std::byte> bytes = arena.Bytes();
    RETURN_IF_ERROR(cuda_->Check(
        "cudaMemcpy", cuda_->Memcpy(memory_, bytes.data(), bytes.size(),
                                    cudaMemcpyHostToDevice)));
    // It may return before it has ended, and stream_ does not wait for it.
    RETURN_IF_ERROR(cuda_->Check("cudaStreamSynchronize",
                                 cuda_->StreamSynchronize(nullptr)));
    typename Kernel::Args there = args;
    Kernel::MapPointers(there, [&](auto& pointer) {
      pointer = arena.OnDevice(pointer, memory_);
    });
    const std::string why = kernels_.Launch<Kernel>(there, stream_);
    if (!why.empty()) return absl::InternalError(why);
    const uint64_t count = Kernel::Count(args);
    for (uint64_t i = 0; i < count; ++i) kernels::RunOnHost<Kernel>(args, i);
    RETURN_IF_ERROR(cuda_->Check("cudaStreamSynchronize",
                                 cuda_->StreamSynchronize(stream_)));
    RETURN_IF_ERROR(cuda_->Check(
        "cudaMemcpy", cuda_->Memcpy(bytes.data(), memory_, bytes.size(),
                                    cudaMemcpyDeviceToHost)));
    return arena.Compare(bytes);
  }

 private:
  const CudaRuntime* cuda_ = nullptr;
  kernels::CudaKernels kernels_;
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
};

commsched_dtype_t DrawFloat(Random& random) {
  constexpr commsched_dtype_t kTypes[] = {COMMSCHED_F32, COMMSCHED_F16,
                                          COMMSCHED_BF16};
  return kTypes[random() % 3];
}

// Not a multiple of anything, and now and then more than a grid's threads.
uint64_t DrawCount(Random& random) {
  return random() % 8 == 0 ? 20'000 + random() % 999 : 1 + random() % 999;
}

commsched_step_control_t* DrawControl(Arena& arena, Random& random) {
  return arena.Put<commsched_step_control_t>(
      {{.gradient_scale = Moderate(random),
        .correction1 = 1 - std::pow(0.9, 1.0 + double(random() % 9)),
        .correction2 = 1 - std::pow(0.95, 1.0 + double(random() % 9)),
        .skip = random() % 8 == 0 ? 1.0 : 0.0}});
}

absl::Status RunAdamw(Parity& parity, Arena& arena, Random& random) {
  const uint64_t count = DrawCount(random);
  commsched_adamw_args_t args = {};
  args.count = count;
  args.master = arena.Draw<float>(COMMSCHED_F32, count, random);
  args.m = arena.Draw<float>(COMMSCHED_F32, count, random);
  args.v = arena.Draw<float>(COMMSCHED_F32, count, random);
  args.gradient_dtype = DrawFloat(random);
  args.gradient = arena.Draw<void>(args.gradient_dtype, count, random);
  args.copy_dtype = DrawFloat(random);
  if (random() % 2 == 0) {
    args.copy = arena.Draw<void>(args.copy_dtype, count, random);
  }
  args.lr = 0.01f, args.beta1 = 0.9f, args.beta2 = 0.95f;
  args.epsilon = 1e-8f, args.decay = 0.1f;
  args.control = DrawControl(arena, random);
  return parity.Run<kernels::Adamw>(arena, args);
}

absl::Status RunSgd(Parity& parity, Arena& arena, Random& random) {
  const uint64_t count = DrawCount(random);
  commsched_sgd_args_t args = {};
  args.count = count;
  args.master = arena.Draw<float>(COMMSCHED_F32, count, random);
  if (random() % 2 == 0) {
    args.velocity = arena.Draw<float>(COMMSCHED_F32, count, random);
  }
  args.gradient_dtype = DrawFloat(random);
  args.gradient = arena.Draw<void>(args.gradient_dtype, count, random);
  args.copy_dtype = DrawFloat(random);
  if (random() % 2 == 0) {
    args.copy = arena.Draw<void>(args.copy_dtype, count, random);
  }
  args.lr = 0.01f, args.momentum = 0.9f, args.decay = 0.1f;
  args.nesterov = random() % 2;
  args.control = DrawControl(arena, random);
  return parity.Run<kernels::Sgd>(arena, args);
}

absl::Status RunBlockSquares(Parity& parity, Arena& arena, Random& random) {
  const uint64_t count = DrawCount(random);
  const commsched_dtype_t dtype = DrawFloat(random);
  const void* const values = arena.Draw<void>(dtype, count, random);
  auto* const sums = arena.Draw<double>(
      COMMSCHED_F64,
      (count + kernels::kBlockElements - 1) / kernels::kBlockElements, random);
  return parity.Run<kernels::BlockSquares>(arena, {values, sums, count, dtype});
}

template <typename Kernel>
absl::Status RunCombine(Parity& parity, Arena& arena, Random& random) {
  const uint64_t count = DrawCount(random);
  kernels::CombineArgs args = {};
  args.count = count;
  args.into_dtype = DrawFloat(random);
  args.dtype = DrawFloat(random);
  args.into = arena.Draw<void>(args.into_dtype, count, random);
  args.values = arena.Draw<void>(args.dtype, count, random);
  return parity.Run<Kernel>(arena, args);
}

absl::Status RunSumRuns(Parity& parity, Arena& arena, Random& random) {
  constexpr uint64_t kValues = 5000;
  const uint64_t count = 1 + random() % 300;
  std::vector<commsched_run_t> runs;
  std::vector<uint64_t> first_run = {0};
  for (uint64_t i = 0; i < count; ++i) {
    for (uint64_t r = random() % 4; r > 0; --r) {
      const uint64_t begin = random() % kValues;
      runs.push_back(
          {begin, random() % std::min<uint64_t>(kValues - begin, 50)});
    }
    first_run.push_back(runs.size());
  }
  runs.push_back({0, 0});  // Never none.
  commsched_sum_runs_args_t args = {};
  args.values = arena.Draw<double>(COMMSCHED_F64, kValues, random);
  args.runs = arena.Put(runs);
  args.first_run = arena.Put(first_run);
  args.out = arena.Draw<double>(COMMSCHED_F64, count, random);
  args.count = count;
  return parity.Run<kernels::SumRuns>(arena, args);
}

absl::Status RunDecide(Parity& parity, Arena& arena, Random& random) {
  static_assert(sizeof(commsched_step_state_t) == 9 * sizeof(double));
  commsched_decide_args_t args = {};
  args.state = reinterpret_cast<commsched_step_state_t*>(
      arena.Draw<double>(COMMSCHED_F64, 9, random));
  args.state->scale = std::ldexp(1, static_cast<int>(random() % 25));
  args.state->good_steps = double(random() % 5);
  args.state->skipped_steps = double(random() % 5);
  args.state->skipped_in_row = double(random() % 5);
  args.count = 1 + random() % 99;
  if (random() % 4 != 0) {
    auto* const sums = arena.Draw<double>(COMMSCHED_F64, args.count, random);
    if (random() % 4 != 0) {  // Most steps are finite.
      for (uint64_t i = 0; i < args.count; ++i) {
        sums[i] = Moderate(random) * Moderate(random);
      }
      sums[0] = 1e3;
    }
    args.sums = sums;
  }
  args.clip_norm = random() % 2 == 0 ? 0 : 1;
  args.beta1 = 0.9, args.beta2 = 0.999;
  args.step = 5 + double(random() % 5000);
  args.window = double(random() % 4);
  args.max_skipped_in_row = 3 + double(random() % 4);
  return parity.Run<kernels::DecideStep>(arena, args);
}

absl::Status RunFill(Parity& parity, Arena& arena, Random& random) {
  const uint64_t count = DrawCount(random);
  auto* const values = arena.Draw<double>(COMMSCHED_F64, count, random);
  return parity.Run<kernels::Fill>(arena, {values, Moderate(random), count});
}

absl::Status RunReduceRanks(Parity& parity, Arena& arena, Random& random) {
  kernels::ReduceRanksArgs args = {};
  args.count = DrawCount(random);
  args.stride = args.count + random() % 7;
  args.num_inputs = 1 + random() % 8;
  args.dtype = random() % 8;
  args.op = random() % 5;
  args.inputs =
      arena.Draw<void>(args.dtype, args.stride * args.num_inputs, random);
  args.out = arena.Draw<void>(args.dtype, args.count, random);
  return parity.Run<kernels::ReduceRanks>(arena, args);
}

struct Case {
  const char* kernel;
  absl::Status (*run)(Parity& parity, Arena& arena, Random& random);
};

constexpr Case kCases[] = {
    {"adamw", RunAdamw},
    {"sgd", RunSgd},
    {"block_squares", RunBlockSquares},
    {"add", RunCombine<kernels::Add>},
    {"convert", RunCombine<kernels::Convert>},
    {"sum_runs", RunSumRuns},
    {"decide", RunDecide},
    {"fill", RunFill},
    {"reduce_ranks", RunReduceRanks},
};

}  // namespace

void CheckKernels(const Options& options, Results* results) {
  const int num_runs = options.quick ? 10 : 100;
  Parity parity;
  const absl::Status made = parity.Make();
  for (const Case& each : kCases) {
    absl::Status status = made;
    for (int i = 0; i < num_runs && status.ok(); ++i) {
      Arena arena;
      Random random(options.seed + static_cast<uint64_t>(i));
      status = each.run(parity, arena, random);
      if (status.ok()) continue;
      status = absl::Status(
          status.code(), absl::StrCat("seed ", options.seed + uint64_t(i), ": ",
                                      status.message()));
    }
    results->Add(
        absl::StrCat("kernel ", each.kernel, " gives the processor's bits"),
        status, absl::StrCat(num_runs, " runs"));
  }
}

}  // namespace commsched::gpu_check
