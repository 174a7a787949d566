#include <string>
#include <vector>

#include "checkpoint/format/checkpoint_part.h"
#include "checkpoint/format/safetensors.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {
namespace {

using engine::PartPiece;
using engine::SaveId;
using engine::Status;
using engine::Tensor;
using engine::TensorHeader;

const char kFile[] = "file 'f'";

void RequireRefusal(const Status& status) {
  Require(status.code() == COMMSCHED_INVALID_ARGUMENT ||
          status.code() == COMMSCHED_DATA_LOSS);
  Require(status.message().find(kFile) == 0);
}

void CheckLength(const unsigned char* first, uint64_t file_bytes) {
  uint64_t bytes = 0;
  const Status status =
      engine::ParseHeaderLength(kFile, first, file_bytes, &bytes);
  if (!status.ok()) return RequireRefusal(status);
  Require(bytes <= engine::kMaxHeaderBytes && bytes + 8 <= file_bytes);
}

// Whatever the header says, no piece lies outside the data.
size_t CheckPart(const TensorHeader& header, uint64_t data_bytes) {
  std::vector<PartPiece> pieces;
  const Status status = engine::ReadPartHeader(kFile, SaveId{7, "run", ""}, 0,
                                               2, header, &pieces);
  if (!status.ok()) {
    RequireRefusal(status);
    return 0;
  }
  for (const PartPiece& piece : pieces) {
    const uint64_t element = engine::DTypeBytes(piece.dtype);
    Require(element > 0 && piece.offset <= data_bytes);
    Require(piece.count <= (data_bytes - piece.offset) / element);
  }
  return 1;
}

}  // namespace

size_t FuzzSafetensors(const uint8_t* data, size_t size) {
  unsigned char first[engine::kLengthBytes] = {};
  Source source(data, size);
  source.Fill(first, sizeof(first));
  CheckLength(first, size);
  uint64_t data_bytes = 0;
  for (size_t i = sizeof(first); i-- > 0;) {
    data_bytes = data_bytes << 8 | first[i];
  }
  const std::string text(
      reinterpret_cast<const char*>(data) + std::min(size, sizeof(first)),
      size - std::min(size, sizeof(first)));
  TensorHeader header;
  const Status status = engine::ParseHeader(kFile, text, data_bytes, &header);
  if (!status.ok()) {
    RequireRefusal(status);
    return 0;
  }
  uint64_t end = 0;
  for (const Tensor& tensor : header.tensors) {
    Require(tensor.begin == end && tensor.end >= end);
    end = tensor.end;
  }
  Require(end == data_bytes);
  TensorHeader again;
  const std::string written = engine::FormatHeader(header).substr(8);
  Require(engine::ParseHeader(kFile, written, data_bytes, &again).ok());
  Require(again == header);
  return 1 + CheckPart(header, data_bytes);
}

}  // namespace commsched::test
