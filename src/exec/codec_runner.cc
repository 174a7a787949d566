#include "exec/codec_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/float16.h"

namespace commsched {
namespace {

constexpr uint64_t kChunk = COMMSCHED_CODEC_MAX_BLOCK_ELEMENTS;

void ToFloats(const void* from, DType dtype, uint64_t count, float* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  const uint16_t* halves = static_cast<const uint16_t*>(from);
  for (uint64_t i = 0; i < count; ++i) {
    to[i] = dtype == DType::kF16 ? HalfToFloat(halves[i])
                                 : Bfloat16ToFloat(halves[i]);
  }
}

void FromFloats(const float* from, DType dtype, uint64_t count, void* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from, count * sizeof(float));
    return;
  }
  uint16_t* halves = static_cast<uint16_t*>(to);
  for (uint64_t i = 0; i < count; ++i) {
    halves[i] =
        dtype == DType::kF16 ? FloatToHalf(from[i]) : FloatToBfloat16(from[i]);
  }
}

double OrInfinite(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::infinity() : value;
}

double RmsRelative(double squared_error, double squared_data) {
  if (squared_error == 0) return 0;
  return OrInfinite(std::sqrt(squared_error / squared_data));
}

void Raise(std::atomic<double>* worst, double value) {
  if (value > worst->load(std::memory_order_relaxed)) {
    worst->store(value, std::memory_order_relaxed);
  }
}

}  // namespace

CodecRunner::CodecRunner(const commsched_codec_t* table, uint32_t num_launches)
    : table_(table),
      chunk_(kChunk / table->block_elements * table->block_elements),
      values_(chunk_),
      decoded_(chunk_),
      slots_(num_launches) {}

void CodecRunner::Encode(absl::Span<const CodedStep> steps, uint32_t launch) {
  Loss loss;
  for (const CodedStep& step : steps) EncodeOne(step, &loss);
  const double rms = RmsRelative(loss.squared_error, loss.squared_data);
  Slot& slot = slots_[launch];
  slot.max_abs.store(loss.max_abs, std::memory_order_relaxed);
  slot.rms_relative.store(rms, std::memory_order_relaxed);
  Raise(&slot.worst_max_abs, loss.max_abs);
  Raise(&slot.worst_rms_relative, rms);
  // One writer: a load and a store, not a locked add.
  slot.launches.store(slot.launches.load(std::memory_order_relaxed) + 1,
                      std::memory_order_relaxed);
}

void CodecRunner::Decode(absl::Span<const CodedStep> steps) {
  for (const CodedStep& step : steps) DecodeOne(step);
}

void CodecRunner::EncodeOne(const CodedStep& step, Loss* loss) {
  const char* from = static_cast<const char*>(step.from);
  char* to = static_cast<char*>(step.to);
  const uint64_t size = static_cast<uint64_t>(DTypeSize(step.dtype));
  for (uint64_t done = 0; done < step.count; done += chunk_) {
    const uint64_t count = std::min(chunk_, step.count - done);
    ToFloats(from + done * size, step.dtype, count, values_.data());
    table_->encode(values_.data(), count, to);
    table_->decode(to, count, decoded_.data());
    to += chunk_ / table_->block_elements * table_->block_bytes;
    for (uint64_t i = 0; i < count; ++i) {
      const double value = values_[i];
      const double error = std::abs(value - decoded_[i]);
      if (!(error <= loss->max_abs)) loss->max_abs = OrInfinite(error);
      loss->squared_error += error * error;
      loss->squared_data += value * value;
    }
  }
}

void CodecRunner::DecodeOne(const CodedStep& step) {
  char* to = static_cast<char*>(step.to);
  const uint64_t size = static_cast<uint64_t>(DTypeSize(step.dtype));
  const uint64_t chunk_bytes =
      chunk_ / table_->block_elements * table_->block_bytes;
  const char* from = static_cast<const char*>(step.from);
  for (uint64_t done = 0; done < step.count; done += chunk_) {
    const uint64_t count = std::min(chunk_, step.count - done);
    table_->decode(from, count, values_.data());
    for (uint32_t part = 1; part < step.parts; ++part) {
      if (table_->decode_add != nullptr) {
        table_->decode_add(from + part * step.part_stride, count,
                           values_.data());
        continue;
      }
      table_->decode(from + part * step.part_stride, count, decoded_.data());
      for (uint64_t i = 0; i < count; ++i) values_[i] += decoded_[i];
    }
    if (step.scale != 1) {
      for (uint64_t i = 0; i < count; ++i) values_[i] *= step.scale;
    }
    FromFloats(values_.data(), step.dtype, count, to + done * size);
    from += chunk_bytes;
  }
}

CodecError CodecRunner::ErrorOf(uint32_t launch) const {
  const Slot& slot = slots_[launch];
  CodecError error;
  error.launches = slot.launches.load(std::memory_order_relaxed);
  error.max_abs = slot.max_abs.load(std::memory_order_relaxed);
  error.rms_relative = slot.rms_relative.load(std::memory_order_relaxed);
  error.worst_max_abs = slot.worst_max_abs.load(std::memory_order_relaxed);
  error.worst_rms_relative =
      slot.worst_rms_relative.load(std::memory_order_relaxed);
  return error;
}

}  // namespace commsched
