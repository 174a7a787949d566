// Fields of a message as bytes, and back.
#ifndef COMMSCHED_SRC_CONTROL_WIRE_H_
#define COMMSCHED_SRC_CONTROL_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace commsched {

// Appends fields: numbers little-endian, texts and lists after their 32-bit
// length. Thread-compatible.
class WireWriter {
 public:
  template <typename... Fields>
  void operator()(const Fields&... fields) {
    (Put(fields), ...);
  }

  std::string Take() { return std::move(bytes_); }

 private:
  void Put(uint32_t number) { PutBytes(number, sizeof(number)); }
  void Put(int32_t number) { Put(static_cast<uint32_t>(number)); }
  void Put(uint64_t number) { PutBytes(number, sizeof(number)); }
  void Put(int64_t number) { Put(static_cast<uint64_t>(number)); }
  void Put(const std::string& text);
  void Put(const std::vector<int32_t>& numbers);
  void Put(const std::vector<std::string>& texts);
  void PutBytes(uint64_t number, size_t num_bytes);

  std::string bytes_;
};

// Takes fields from bytes that anybody may have sent: lengths are compared with
// what is there before memory is taken for them. Fields after the first bad one
// are left as they were. Thread-compatible.
class WireReader {
 public:
  // `bytes` outlives the reader.
  explicit WireReader(absl::string_view bytes) : rest_(bytes) {}

  template <typename... Fields>
  void operator()(Fields&... fields) {
    (Get(&fields), ...);
  }

  // OK if every field was there and nothing follows.
  absl::Status Finish() const;

 private:
  void Get(uint32_t* number);
  void Get(int32_t* number);
  void Get(uint64_t* number);
  void Get(int64_t* number);
  void Get(std::string* text);
  void Get(std::vector<int32_t>* numbers);
  void Get(std::vector<std::string>* texts);
  uint64_t GetBytes(size_t num_bytes);
  // The length of a list whose items have at least `item_bytes`.
  uint32_t GetLength(size_t item_bytes);

  absl::string_view rest_;
  bool bad_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_WIRE_H_
