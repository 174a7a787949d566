// The wire format of protocol buffers, as far as traces need it.
#ifndef COMMSCHED_SRC_TRACE_PROTO_WRITER_H_
#define COMMSCHED_SRC_TRACE_PROTO_WRITER_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace commsched {

// One message, field by field: a tag (number << 3 | wire type), then a varint
// (wire type 0) or a length and bytes (wire type 2). The field numbers and
// types are the caller's. Linking libprotobuf into a library that is loaded
// beside a framework's own copy is a known source of trouble; this is all of it
// that writing needs (protobuf.dev/programming-guides/encoding).
//
// Thread-compatible.
class ProtoWriter {
 public:
  void Uint(uint32_t field, uint64_t value) {
    Varint(uint64_t{field} << 3);
    Varint(value);
  }
  // Negative numbers take ten bytes, as int64 does.
  void Int(uint32_t field, int64_t value) {
    Uint(field, static_cast<uint64_t>(value));
  }
  void Bytes(uint32_t field, absl::string_view value) {
    Varint(uint64_t{field} << 3 | 2);
    Varint(value.size());
    bytes_.append(value.data(), value.size());
  }
  void Message(uint32_t field, const ProtoWriter& message) {
    Bytes(field, message.bytes());
  }

  const std::string& bytes() const { return bytes_; }
  void Clear() { bytes_.clear(); }

 private:
  void Varint(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }

  std::string bytes_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_PROTO_WRITER_H_
