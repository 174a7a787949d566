#ifndef COMMSCHED_SRC_PLAN_CANONICAL_BYTES_H_
#define COMMSCHED_SRC_PLAN_CANONICAL_BYTES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/plan.h"
#include "xxhash.h"

namespace commsched {

// Bytes that two ranks must agree on: little endian on every host, and each
// string and list with its length, so that no two plans share them.
class CanonicalBytes {
 public:
  void Add(uint64_t value) {
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> 8 * i);
    bytes_.append(bytes, sizeof(bytes));
    if (bytes_.size() >= kChunk) Flush();
  }
  void Add(absl::string_view text) {
    Add(uint64_t{text.size()});
    bytes_.append(text.data(), text.size());
  }
  template <typename Tag>
  void Add(StrongId<Tag> id) {
    Add(uint64_t{id.value()});
  }
  template <typename Tag>
  void Add(const std::vector<StrongId<Tag>>& ids) {
    Add(uint64_t{ids.size()});
    for (StrongId<Tag> id : ids) Add(id);
  }
  void Add(const std::vector<uint64_t>& values) {
    Add(uint64_t{values.size()});
    for (uint64_t value : values) Add(value);
  }
  void Add(const std::vector<Wait>& waits) {
    Add(uint64_t{waits.size()});
    for (const Wait& wait : waits) {
      Add(static_cast<uint64_t>(wait.producer.kind));
      Add(uint64_t{wait.producer.index});
      Add(static_cast<uint64_t>(wait.distance));
      Add(static_cast<uint64_t>(wait.cause));
    }
  }
  void Add(const Access& access) {
    Add(access.buffer);
    Add(static_cast<uint64_t>(access.mode));
    Add(static_cast<uint64_t>(access.region.kind));
    Add(access.region.group);
    Add(access.region.offset);
    Add(access.region.count);
    if (access.region.kind != RegionKind::kTile) return;
    Add(access.region.rows);
    Add(access.region.stride);
  }
  // What both kinds of fingerprint cover of a launch.
  void Add(const Piece& piece) {
    Add(uint64_t{piece.of});
    if (piece.of == 1) return;
    Add(uint64_t{piece.index});
    Add(piece.offset);
    Add(piece.count);
  }
  void Add(const std::array<uint8_t, 16>& fingerprint) {
    bytes_.append(reinterpret_cast<const char*>(fingerprint.data()),
                  fingerprint.size());
  }

  // XXH3-128, big endian, of all that was added.
  std::array<uint8_t, 16> Hash() {
    XXH128_hash_t value;
    if (state_ == nullptr) {
      value = XXH3_128bits(bytes_.data(), bytes_.size());
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

  void Flush() {
    if (state_ == nullptr) {
      state_.reset(XXH3_createState());
      if (state_ == nullptr) throw std::bad_alloc();
      XXH3_128bits_reset(state_.get());
    }
    XXH3_128bits_update(state_.get(), bytes_.data(), bytes_.size());
    bytes_.clear();
  }

  std::string bytes_;                               // not hashed yet
  std::unique_ptr<XXH3_state_t, FreeState> state_;  // of what was; may be null
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_PLAN_CANONICAL_BYTES_H_
