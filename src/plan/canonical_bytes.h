#ifndef COMMSCHED_SRC_PLAN_CANONICAL_BYTES_H_
#define COMMSCHED_SRC_PLAN_CANONICAL_BYTES_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/base/optimization.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/plan.h"
#include "xxhash.h"

namespace commsched {

// Bytes that two ranks must agree on: little endian on every host, and each
// string and list with its length, so that no two plans share them.
class CanonicalBytes {
 public:
  void Add(uint64_t value) { AddEach(value); }
  // Several numbers, enumerators and ids, one after the other.
  template <typename... Values>
  void AddEach(Values... values) {
    const uint64_t words[] = {Word(values)...};
    Append(words, sizeof(words));
  }
  void Add(absl::string_view text) {
    Add(uint64_t{text.size()});
    Append(text.data(), text.size());
  }
  template <typename Tag>
  void Add(StrongId<Tag> id) {
    Add(uint64_t{id.value()});
  }
  void Add(absl::Span<const OpId> ids) { AddList(ids); }
  void Add(absl::Span<const LaunchId> ids) { AddList(ids); }
  void Add(const std::vector<uint64_t>& values) {
    Add(uint64_t{values.size()});
    for (uint64_t value : values) Add(value);
  }
  void Add(absl::Span<const Wait> waits) {
    Add(uint64_t{waits.size()});
    for (const Wait& wait : waits) {
      AddEach(wait.producer.kind, wait.producer.index, wait.distance,
              wait.cause);
    }
  }
  void Add(const Access& access) {
    const Region& region = access.region;
    AddEach(access.buffer, access.mode, region.kind, region.group,
            region.offset, region.count);
    if (region.kind != RegionKind::kTile) return;
    AddEach(region.rows, region.stride);
  }
  // What both kinds of fingerprint cover of a launch.
  void Add(const Piece& piece) {
    Add(uint64_t{piece.of});
    if (piece.of == 1) return;
    AddEach(piece.index, piece.offset, piece.count);
  }
  void Add(const std::array<uint8_t, 16>& fingerprint) {
    Append(fingerprint.data(), fingerprint.size());
  }

  // XXH3-128, big endian, of all that was added.
  std::array<uint8_t, 16> Hash() {
    XXH128_hash_t value;
    if (state_ == nullptr) {
      value = XXH3_128bits(bytes_.data(), used_);
    } else {
      Flush();
      value = XXH3_128bits_digest(state_.get());
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, value);
    std::array<uint8_t, 16> hash;
    static_assert(sizeof(canonical.digest) == sizeof(hash));
    std::copy(std::begin(canonical.digest), std::end(canonical.digest),
              hash.begin());
    return hash;
  }

 private:
  // Large plans are hashed in pieces: their bytes would not fit any cache.
  static constexpr size_t kChunk = 64 << 10;

  struct FreeState {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };

  template <typename Value>
  static uint64_t Word(Value value) {
    uint64_t word = static_cast<uint64_t>(value);
    if constexpr (std::endian::native == std::endian::big) {
      word = __builtin_bswap64(word);
    }
    return word;
  }
  template <typename Tag>
  static uint64_t Word(StrongId<Tag> id) {
    return Word(id.value());
  }

  template <typename Id>
  void AddList(absl::Span<const Id> ids) {
    Add(uint64_t{ids.size()});
    for (Id id : ids) Add(id);
  }

  // Inline, as most that is added is a few words.
  ABSL_ATTRIBUTE_ALWAYS_INLINE void Append(const void* bytes, size_t size) {
    if (ABSL_PREDICT_FALSE(bytes_.size() - used_ < size)) MakeRoom(size);
    std::memcpy(bytes_.data() + used_, bytes, size);
    used_ += size;
  }

  ABSL_ATTRIBUTE_NOINLINE void MakeRoom(size_t size) {
    if (used_ + size > kChunk && used_ > 0) Flush();
    bytes_.resize(std::max(used_ + size, std::min(2 * bytes_.size(), kChunk)));
  }

  void Flush() {
    if (state_ == nullptr) {
      state_.reset(XXH3_createState());
      if (state_ == nullptr) throw std::bad_alloc();
      XXH3_128bits_reset(state_.get());
    }
    XXH3_128bits_update(state_.get(), bytes_.data(), used_);
    used_ = 0;
  }

  std::vector<char> bytes_ = std::vector<char>(512);
  size_t used_ = 0;                                 // of them: not hashed yet
  std::unique_ptr<XXH3_state_t, FreeState> state_;  // of what was; may be null
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_CANONICAL_BYTES_H_
