#include "checkpoint/format/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "checkpoint/format/json_text.h"

namespace commsched::engine {
namespace {

using nlohmann::json;

constexpr uint64_t kAlignment = 8;

struct DType {
  const char* name;
  uint64_t bytes;
};
constexpr DType kDTypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};

Status ParseMetadata(const std::string& what, const json& value,
                     std::map<std::string, std::string>* out) {
  if (!value.is_object()) {
    return InvalidArgument(what + ": '" + kMetadataName + "' is not an object");
  }
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string()) {
      return InvalidArgument(what + ": '" + kMetadataName + "': '" + key +
                             "' is not a text");
    }
    out->emplace(key, text.get_ref<const std::string&>());
  }
  return Status();
}

// The tensor by itself; where it lies among the others is for CheckCover.
Status ParseTensor(const std::string& what, const json& value,
                   uint64_t data_bytes, Tensor* out) {
  ENGINE_RETURN_IF_ERROR(
      CheckFields(what, value, {"dtype", "shape", "data_offsets"}));
  ENGINE_RETURN_IF_ERROR(GetString(what, value, "dtype", &out->dtype));
  ENGINE_RETURN_IF_ERROR(GetCounts(what, value, "shape", &out->shape));
  std::vector<uint64_t> offsets;
  ENGINE_RETURN_IF_ERROR(GetCounts(what, value, "data_offsets", &offsets));
  if (offsets.size() != 2 || offsets[0] > offsets[1]) {
    return InvalidArgument(what + ": data_offsets " + FormatShape(offsets) +
                           " are no begin and end");
  }
  out->begin = offsets[0];
  out->end = offsets[1];
  if (out->end > data_bytes) {
    return Status(COMMSCHED_DATA_LOSS,
                  what + " ends at byte " + std::to_string(out->end) +
                      " of the data, of which there are " +
                      std::to_string(data_bytes) + ": cut off?");
  }
  const uint64_t element = DTypeBytes(out->dtype);
  if (element == 0) {
    return InvalidArgument(what + " has dtype '" + out->dtype +
                           "', which the format does not have");
  }
  uint64_t count = 0;
  ENGINE_RETURN_IF_ERROR(
      CountElements(what, out->shape, data_bytes / element, &count));
  if (count * element == out->end - out->begin) return Status();
  return InvalidArgument(
      what + " has shape " + FormatShape(out->shape) + " of " + out->dtype +
      ", " + std::to_string(count * element) + " bytes, but " +
      std::to_string(out->end - out->begin) + " bytes of data");
}

// Tensors lie end to end and fill the data.
Status CheckCover(const std::string& what, const std::vector<Tensor>& tensors,
                  uint64_t data_bytes) {
  uint64_t end = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.begin != end) {
      return InvalidArgument(what + ": tensor '" + tensor.name +
                             "' begins at byte " +
                             std::to_string(tensor.begin) + "; the one before" +
                             " ends at " + std::to_string(end));
    }
    end = tensor.end;
  }
  if (end == data_bytes) return Status();
  return Status(COMMSCHED_DATA_LOSS, what + ": the tensors end at byte " +
                                         std::to_string(end) +
                                         " of the data, of which there are " +
                                         std::to_string(data_bytes));
}

}  // namespace

uint64_t DTypeBytes(const std::string& dtype) {
  for (const DType& each : kDTypes) {
    if (dtype == each.name) return each.bytes;
  }
  return 0;
}

std::string FormatShape(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (uint64_t extent : shape) {
    if (text.size() > 1) text += ",";
    text += std::to_string(extent);
  }
  return text + "]";
}

Status CountElements(const std::string& what,
                     const std::vector<uint64_t>& shape, uint64_t most,
                     uint64_t* out_count) {
  uint64_t count = 1;
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) count = 0;
  for (uint64_t extent : shape) {
    if (count > 0 && extent > most / count) {
      return InvalidArgument(what + " has shape " + FormatShape(shape) +
                             "; the limit is " + std::to_string(most) +
                             " elements");
    }
    count *= extent;
  }
  *out_count = count;
  return Status();
}

Status ParseHeaderLength(const std::string& what, const unsigned char* first,
                         uint64_t file_bytes, uint64_t* out_bytes) {
  uint64_t bytes = 0;
  for (uint64_t i = kLengthBytes; i-- > 0;) bytes = bytes << 8 | first[i];
  if (bytes > kMaxHeaderBytes) {
    return InvalidArgument(what + " says that its header has " +
                           std::to_string(bytes) + " bytes; the limit is " +
                           std::to_string(kMaxHeaderBytes) +
                           ": no safetensors file?");
  }
  if (file_bytes < kLengthBytes || bytes > file_bytes - kLengthBytes) {
    return Status(COMMSCHED_DATA_LOSS,
                  what + " says that its header has " + std::to_string(bytes) +
                      " bytes; the file has " + std::to_string(file_bytes) +
                      ": cut off?");
  }
  *out_bytes = bytes;
  return Status();
}

Status ParseHeader(const std::string& what, const std::string& text,
                   uint64_t data_bytes, TensorHeader* out) {
  json root;
  ENGINE_RETURN_IF_ERROR(ParseJson(what, text, &root));
  if (!root.is_object()) {
    return InvalidArgument(what + ": the header is not an object");
  }
  TensorHeader header;
  for (const auto& [key, value] : root.items()) {
    if (key == kMetadataName) {
      ENGINE_RETURN_IF_ERROR(ParseMetadata(what, value, &header.metadata));
      continue;
    }
    Tensor tensor;
    tensor.name = key;
    ENGINE_RETURN_IF_ERROR(ParseTensor(what + ": tensor '" + key + "'", value,
                                       data_bytes, &tensor));
    header.tensors.push_back(std::move(tensor));
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const Tensor& a, const Tensor& b) {
                     return std::pair(a.begin, a.end) <
                            std::pair(b.begin, b.end);
                   });
  ENGINE_RETURN_IF_ERROR(CheckCover(what, header.tensors, data_bytes));
  *out = std::move(header);
  return Status();
}

std::string FormatHeader(const TensorHeader& header) {
  json root = json::object();
  if (!header.metadata.empty()) root[kMetadataName] = header.metadata;
  for (const Tensor& tensor : header.tensors) {
    root[tensor.name] = {{"dtype", tensor.dtype},
                         {"shape", tensor.shape},
                         {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = root.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  std::string length;
  for (uint64_t i = 0; i < kLengthBytes; ++i) {
    length.push_back(static_cast<char>(text.size() >> (8 * i) & 0xff));
  }
  return length + text;
}

}  // namespace commsched::engine
