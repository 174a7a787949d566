// Encodes and decodes what travels through a plan's codec.
#ifndef COMMSCHED_SRC_EXEC_CODEC_RUNNER_H_
#define COMMSCHED_SRC_EXEC_CODEC_RUNNER_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/dtype.h"
#include "commsched/plugin.h"

namespace commsched {

// One part of one collective, between user memory and staging memory.
struct CodedStep {
  enum class Kind : uint8_t {
    kEncode,  // `count` elements to one part
    kDecode,  // the reverse
    kSum      // `parts` parts, `part_stride` bytes apart, to their sum
  };
  Kind kind = Kind::kEncode;
  DType dtype = DType::kF32;  // f32, f16 or bf16
  void* to = nullptr;
  const void* from = nullptr;
  uint64_t count = 0;
  uint32_t parts = 1;
  uint64_t part_stride = 0;
  float scale = 1;  // of kSum: what the sum is multiplied by
};

// What encoding did to the data that this rank sent: the largest error, and the
// root of the mean squared error over that of the data. Infinite if something
// was not finite.
struct CodecError {
  uint64_t launches = 0;
  double max_abs = 0;  // of the latest
  double rms_relative = 0;
  double worst_max_abs = 0;  // of all
  double worst_rms_relative = 0;
};

// Runs coded steps through a codec's table, in chunks that stay in the cache,
// and measures what is lost by decoding what was encoded. Sums are in fp32, in
// order of the parts: equal on all ranks.
//
// Encode, Decode: the issuing thread. ErrorOf: any thread; a reading taken
// while a launch is encoded may mix two launches.
class CodecRunner {
 public:
  // The table outlives the runner.
  CodecRunner(const commsched_codec_t* table, uint32_t num_launches);

  // The steps of `launch` before it is issued.
  void Encode(absl::Span<const CodedStep> steps, uint32_t launch);
  // Those after it is done.
  void Decode(absl::Span<const CodedStep> steps);

  CodecError ErrorOf(uint32_t launch) const;

 private:
  struct Loss {
    double max_abs = 0;
    double squared_error = 0;
    double squared_data = 0;
  };
  struct Slot {
    std::atomic<uint64_t> launches{0};
    std::atomic<double> max_abs{0};
    std::atomic<double> rms_relative{0};
    std::atomic<double> worst_max_abs{0};
    std::atomic<double> worst_rms_relative{0};
  };

  void EncodeOne(const CodedStep& step, Loss* loss);
  void DecodeOne(const CodedStep& step);

  const commsched_codec_t* const table_;
  const uint64_t chunk_;       // elements: whole blocks
  std::vector<float> values_;  // a chunk; of the issuing thread, as the next
  std::vector<float> decoded_;
  std::vector<Slot> slots_;  // by launch
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_CODEC_RUNNER_H_
