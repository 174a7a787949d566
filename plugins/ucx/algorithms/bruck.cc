// Small all-to-alls of many ranks of a host: Bruck's algorithm with two digits,
// so that a rank sends some 2 sqrt(n) messages instead of n - 1.
//
// What a rank has for the one `far * radix + near` behind it is moved by `near`
// ranks first, with all else that has the same `near`, and then by
// `far * radix` ranks, with all else that has the same `far`. So a rank has a
// message for each `near` and one for each `far`, but 0.
#include <algorithm>
#include <cstring>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"

namespace commsched::ucx {
namespace {

// Of all parts of a rank. Each is copied four times and travels twice.
constexpr uint64_t kMostBruckBytes = 256 << 10;
// With fewer ranks the second round costs more than the messages that it saves.
constexpr int kFewestRanks = 9;

// The least whose square is not less than `size`.
int RadixOf(int size) {
  int radix = 1;
  while (radix * radix < size) ++radix;
  return radix;
}

class Bruck {
 public:
  Bruck(const LaunchTask& task, Operation* operation)
      : task_(task),
        member_(task.launch.members[0]),
        rank_(task.rank),
        size_(task.layout.size()),
        radix_(RadixOf(size_)),
        num_far_((size_ + radix_ - 1) / radix_),
        element_(ElementBytes(task.launch.dtype)),
        block_bytes_(member_.count * element_),
        op_(*operation),
        build_(element_, element_, operation) {}

  static bool Fits(const LaunchShape& shape, const Layout& layout);
  static Cost CostOf(const CostContext& context);
  static Crossing CrossingOf(const CostContext& /*context*/) { return {}; }

  uint64_t ScratchBytes() const {
    return ScratchBytesOf(kNumAreas * AreaBytes());
  }

  void Build() {
    build_.SetScratch({}, ScratchBytes());
    build_.BeginSteps(kOwnSums);
    // Copies of blocks that are next to each other today are one.
    if (task_.measures) op_.copies.reserve(NumCopies());
    PackInputs();
    Near();
    Far();
    build_.Finish();
  }

 private:
  // Blocks of `size_` ranks each: what is moved near and far, sent and
  // received.
  enum Area { kNearOut, kNearIn, kFarOut, kFarIn, kNumAreas };

  uint64_t AreaBytes() const {
    return static_cast<uint64_t>(size_) * block_bytes_;
  }
  size_t NumCopies() const { return 2 * static_cast<size_t>(size_); }
  int Behind(int distance) const { return (rank_ + distance) % size_; }
  int Before(int distance) const { return (rank_ - distance + size_) % size_; }
  int NumFar(int near) const { return (size_ - near + radix_ - 1) / radix_; }
  int NumNear(int far) const { return std::min(radix_, size_ - far * radix_); }

  // In an area, what has the same `near` lies together, or the same `far`.
  char* BlockAt(Area area, int index) const {
    return op_.scratch.address + area * AreaBytes() +
           static_cast<uint64_t>(index) * block_bytes_;
  }
  char* NearBlock(Area area, int near, int far) const {
    // Before it, those with a smaller `near`; the last `far` has not all.
    const int last = size_ - (num_far_ - 1) * radix_;
    return BlockAt(area, near * (num_far_ - 1) + std::min(near, last) + far);
  }
  char* FarBlock(Area area, int near, int far) const {
    return BlockAt(area, far * radix_ + near);
  }

  char* PartOf(bool is_input, int rank) const {
    const void* const base = is_input ? member_.input : member_.output;
    const uint64_t stride =
        is_input ? member_.input_stride : member_.output_stride;
    const uint64_t begin = static_cast<uint64_t>(rank) *
                           (stride == 0 ? member_.count : stride) * element_;
    // As a number: nothing is at `base` where a launch is only measured.
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(base) + begin);
  }

  void PackInputs() const {
    if (task_.measures || block_bytes_ == 0) return;
    for (int distance = 0; distance < size_; ++distance) {
      const int near = distance % radix_;
      const int far = distance / radix_;
      const char* const from = PartOf(true, Behind(distance));
      if (distance == 0) {
        std::memmove(PartOf(false, rank_), from, block_bytes_);
      } else {
        std::memcpy(near != 0 ? NearBlock(kNearOut, near, far)
                              : FarBlock(kFarOut, near, far),
                    from, block_bytes_);
      }
    }
  }

  // The last step copies what `rank` has for this one.
  void CopyOut(const char* from, int rank) {
    build_.AddCopy(from, PartOf(false, rank), block_bytes_);
  }

  void Near() {
    const uint32_t step = build_.AddStep();
    for (int near = 1; near < radix_; ++near) {
      const int peer = Before(near);
      build_.Receive(peer, kSmall, NearBlock(kNearIn, near, 0),
                     static_cast<uint64_t>(NumFar(near)) * block_bytes_, step);
      CopyOut(NearBlock(kNearIn, near, 0), peer);
      for (int far = 1; far < NumFar(near); ++far) {
        build_.AddCopy(NearBlock(kNearIn, near, far),
                       FarBlock(kFarOut, near, far), block_bytes_);
      }
    }
    for (int near = 1; near < radix_; ++near) {
      build_.Send(Behind(near), kSmall, NearBlock(kNearOut, near, 0),
                  static_cast<uint64_t>(NumFar(near)) * block_bytes_);
    }
    for (int far = 1; far < num_far_; ++far) {
      build_.SendOn(Behind(far * radix_), kForwarded, FarBlock(kFarOut, 0, far),
                    static_cast<uint64_t>(NumNear(far)) * block_bytes_);
    }
  }

  void Far() {
    const uint32_t step = build_.AddStep();
    for (int far = 1; far < num_far_; ++far) {
      build_.Receive(Before(far * radix_), kForwarded, FarBlock(kFarIn, 0, far),
                     static_cast<uint64_t>(NumNear(far)) * block_bytes_, step);
      for (int near = 0; near < NumNear(far); ++near) {
        CopyOut(FarBlock(kFarIn, near, far), Before(far * radix_ + near));
      }
    }
  }

  const LaunchTask& task_;
  const commsched_member_t& member_;
  const int rank_;
  const int size_;
  const int radix_;
  const int num_far_;
  const uint64_t element_;
  const uint64_t block_bytes_;  // What a rank has for another.
  Operation& op_;
  Builder build_;
};

bool Bruck::Fits(const LaunchShape& shape, const Layout& layout) {
  return shape.kind == COMMSCHED_ALL_TO_ALL && shape.has_one_size &&
         layout.num_hosts() == 1 && layout.size() >= kFewestRanks &&
         shape.bytes() <= kMostBruckBytes;
}

// Messages go out one after the other, and those of the second round when all
// of the first have come.
Cost Bruck::CostOf(const CostContext& context) {
  const LinkLevel& within = context.links.host;
  const int size = context.layout.size();
  const int radix = RadixOf(size);
  const int64_t messages = 2 * (radix - 1 + (size + radix - 1) / radix - 1);
  constexpr uint64_t kNumCopies = 4;
  return {messages * within.message_ns + 2 * within.latency_ns +
              TransferNs(within, kNumCopies * context.shape.bytes()),
          messages};
}

}  // namespace

const Algorithm kBruck = {
    .name = "bruck",
    .does =
        "all-to-all of up to 256 KiB, of one member without counts, of more "
        "than "
        "8 ranks on one host",
    .fits = &Bruck::Fits,
    .cost = &Bruck::CostOf,
    .crossing = &Bruck::CrossingOf,
    .scratch_bytes = &ScratchBytesWith<Bruck>,
    .build = &BuildWith<Bruck>,
};

}  // namespace commsched::ucx
