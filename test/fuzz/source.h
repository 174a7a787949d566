// What a fuzz entry makes its structs of.
#ifndef COMMSCHED_TEST_FUZZ_SOURCE_H_
#define COMMSCHED_TEST_FUZZ_SOURCE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace commsched::test {

// Takes values from the front of the input, then zeros.
class Source {
 public:
  Source(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  void Fill(void* to, size_t bytes) {
    const size_t taken = std::min(bytes, size_);
    if (taken > 0) std::memcpy(to, data_, taken);
    std::memset(static_cast<char*>(to) + taken, 0, bytes - taken);
    data_ += taken;
    size_ -= taken;
  }

  template <typename T>
  T Take() {
    T value;
    Fill(&value, sizeof(value));
    return value;
  }

  // A number that is small as a rule, and any at all now and then.
  uint64_t TakeNumber() {
    const uint8_t head = Take<uint8_t>();
    if (head < 0xf0) return head;
    if (head < 0xf8) return uint64_t{1} << (Take<uint8_t>() & 63);
    return Take<uint64_t>();
  }

  std::string TakeText() {
    std::string text(Take<uint8_t>() & 127, '\0');
    Fill(text.data(), text.size());
    return text;
  }

  size_t size() const { return size_; }
  const uint8_t* data() const { return data_; }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Ends the process: a fuzzer, unlike gtest, knows no softer failure.
inline void Require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_FUZZ_SOURCE_H_
