#ifndef COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_BYTES_H_
#define COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_BYTES_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/base/optimization.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/identity/canonical_plan.h"
#include "xxhash.h"

namespace commsched {

// The sink (plan/canonical_plan.h) that hashes: little endian on every host,
// and each string and list with its length, so that no two plans share their
// bytes.
class CanonicalBytes {
 public:
  void Line(CanonicalLine line, uint32_t /*index*/) { AddWord(line); }
  template <typename Value>
  void Number(const char* /*label*/, Value value) {
    AddWord(value);
  }
  template <typename Value>
  void Number(const char* /*label*/, Value value,
              std::type_identity_t<Value> /*hidden*/) {
    AddWord(value);
  }
  void Flag(const char* /*label*/, bool value) { AddWord(value); }
  template <typename Value, typename NameOf>
  void Enum(const char* /*label*/, Value value, NameOf /*name_of*/) {
    AddWord(value);
  }
  void Text(const char* /*label*/, absl::string_view text) {
    AddWord(text.size());
    Append(text.data(), text.size());
  }
  template <typename Id>
  void Ref(const char* /*label*/, Id id, const std::string& /*name*/) {
    AddWord(id.value());
  }
  template <typename Item, typename Visit>
  void List(const char* /*label*/, absl::Span<const Item> items, Visit visit) {
    AddWord(items.size());
    for (const Item& item : items) visit(item);
  }
  void Shared(const SharedLines& shared) {
    Append(shared.hash.data(), shared.hash.size());
  }
  void Close(const char* /*text*/) {}

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
  ABSL_ATTRIBUTE_ALWAYS_INLINE void AddWord(Value value) {
    uint64_t word = static_cast<uint64_t>(value);
    if constexpr (std::endian::native == std::endian::big) {
      word = __builtin_bswap64(word);
    }
    Append(&word, sizeof(word));
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

#endif  // COMMSCHED_SRC_PLAN_IDENTITY_CANONICAL_BYTES_H_
