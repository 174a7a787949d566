#ifndef COMMSCHED_SRC_CHECKPOINT_FORMAT_SAFETENSORS_H_
#define COMMSCHED_SRC_CHECKPOINT_FORMAT_SAFETENSORS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/status.h"

namespace commsched::engine {

// The header of a safetensors file. The file is the header's length in 8 bytes,
// little endian; the header, JSON; and the data of the tensors end to end,
// row-major and little endian.

struct Tensor {
  std::string name;
  std::string dtype;  // "F32" and the like.
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // Bytes from the start of the data.
  uint64_t end = 0;

  bool operator==(const Tensor&) const = default;
};

struct TensorHeader {
  std::map<std::string, std::string> metadata;
  std::vector<Tensor> tensors;  // By begin, without holes.

  bool operator==(const TensorHeader&) const = default;
};

// That of the reference implementation.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr uint64_t kLengthBytes = 8;
// What no tensor can be called.
inline constexpr char kMetadataName[] = "__metadata__";

// Bytes of an element; 0 for a dtype that the format does not have.
uint64_t DTypeBytes(const std::string& dtype);

// "[2,3]"
std::string FormatShape(const std::vector<uint64_t>& shape);

// Elements, or fails with INVALID_ARGUMENT if they are more than `most`.
Status CountElements(const std::string& what,
                     const std::vector<uint64_t>& shape, uint64_t most,
                     uint64_t* out_count);

// Reads the length of the header from the file's first kLengthBytes. Fails with
// DATA_LOSS if a file of `file_bytes` has no room for it. `what` names the file
// in the messages of this and the next function.
Status ParseHeaderLength(const std::string& what, const unsigned char* first,
                         uint64_t file_bytes, uint64_t* out_bytes);

// `text` is the header without its length, `data_bytes` what follows it. Fails,
// naming tensor, value and limit, with
//   INVALID_ARGUMENT  no such header: not JSON, an unknown dtype, a tensor
//   whose
//                     shape and bytes differ, a hole or an overlap
//   DATA_LOSS         the data is of another size than the tensors
Status ParseHeader(const std::string& what, const std::string& text,
                   uint64_t data_bytes, TensorHeader* out);

// Returns the header behind its length, padded with spaces to a multiple of 8
// bytes. Texts are UTF-8.
std::string FormatHeader(const TensorHeader& header);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_FORMAT_SAFETENSORS_H_
