#ifndef COMMSCHED_EXAMPLES_TRAINER_DATA_H_
#define COMMSCHED_EXAMPLES_TRAINER_DATA_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched::trainer {

// A text as bytes: the last tenth is held out for validation.
//
// Immutable, hence thread-safe.
class Dataset {
 public:
  explicit Dataset(std::vector<uint8_t> text);

  // Moving a vector keeps its elements where they are, so the spans stay good.
  Dataset(Dataset&&) = default;
  Dataset& operator=(Dataset&&) = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  std::span<const uint8_t> train() const { return train_; }
  std::span<const uint8_t> validation() const { return validation_; }

 private:
  std::vector<uint8_t> text_;
  std::span<const uint8_t> train_;
  std::span<const uint8_t> validation_;
};

// Of a text, which is kept in memory, once for all ranks; at most a quarter of
// the machine's.
inline constexpr int64_t kMaxTextBytes = int64_t{1} << 32;

// "kjv" is the King James text, printed by the program `bible` of Debian's
// package bible-kjv; anything else is the path of a file or pipe. Fails, naming
// the source, with
//   kNotFound            there is no such file, or no program `bible`
//   kInvalidArgument     the text is shorter than 10 windows of seq + 1 bytes;
//                        it is a folder or a device
//   kResourceExhausted   it is longer than `max_bytes`
//   kUnavailable         `bible` failed, or reading did
absl::StatusOr<Dataset> LoadDataset(absl::string_view source, int64_t seq,
                                    int64_t max_bytes = kMaxTextBytes);

// Fills the windows that training and validation look at: inputs are `seq`
// consecutive bytes, targets the same one byte later.
//
// Which text the g-th sequence of step s is depends on (seed, s, g) alone, so
// ranks and micro-batches can share a step's sequences out in any way.
//
// Thread-safe.
class Sampler {
 public:
  // `dataset` outlives the sampler and has more than seq bytes in each part.
  Sampler(const Dataset& dataset, int64_t seq, uint64_t seed)
      : dataset_(dataset), seq_(seq), seed_(seed) {}

  // Sequences first, ..., first + count - 1 of `step`; (count, seq) each.
  void FillTraining(int64_t step, int64_t first, int64_t count, uint8_t* inputs,
                    uint8_t* targets) const;

  // Windows first, ..., first + count - 1 of `total`, which are spread evenly
  // over the validation text; the same ones whatever the seed.
  void FillValidation(int64_t total, int64_t first, int64_t count,
                      uint8_t* inputs, uint8_t* targets) const;

 private:
  void Copy(std::span<const uint8_t> text, int64_t start, int64_t row,
            uint8_t* inputs, uint8_t* targets) const;

  const Dataset& dataset_;
  const int64_t seq_;
  const uint64_t seed_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_DATA_H_
