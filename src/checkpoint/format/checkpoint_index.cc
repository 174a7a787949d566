#include "checkpoint/format/checkpoint_index.h"

#include <xxhash.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "checkpoint/files.h"
#include "checkpoint/format/json_text.h"
#include "checkpoint/format/safetensors.h"

namespace commsched::engine {
namespace {

using nlohmann::json;

constexpr size_t kMaxRunLength = 64;
constexpr size_t kMaxSliceLength = 96;
constexpr size_t kMaxAxisLength = 64;  // In the name of a slice.
constexpr char kLetters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    "abcdefghijklmnopqrstuvwxyz0123456789_";

// Takes `text` off the front of `rest`.
bool Take(const char* text, std::string& rest) {
  const std::string prefix = text;
  if (rest.compare(0, prefix.size(), prefix) != 0) return false;
  rest.erase(0, prefix.size());
  return true;
}

bool TakeDigits(std::string& rest, uint64_t* out) {
  const size_t length =
      std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (length == 0 || length > 19) return false;
  *out = std::strtoull(rest.substr(0, length).c_str(), nullptr, 10);
  rest.erase(0, length);
  return true;
}

std::string TakeField(std::string& rest) {
  std::string field = rest.substr(0, rest.find('-'));
  rest.erase(0, field.size());
  return field;
}

// SaveId::run.
Status CheckSavedRun(const std::string& run) {
  const size_t dot = run.find('.');
  ENGINE_RETURN_IF_ERROR(CheckRun(run.substr(0, dot)));
  return dot == std::string::npos ? Status() : CheckRun(run.substr(dot + 1));
}

// "step-S-RUN" or "step-S-RUN-SLICE" off the front of `rest`.
bool TakeId(std::string& rest, SaveId* out) {
  SaveId id;
  if (!Take("step-", rest) || !TakeDigits(rest, &id.step)) return false;
  if (!Take("-", rest)) return false;
  id.run = TakeField(rest);
  if (!CheckSavedRun(id.run).ok()) return false;
  std::string after = rest;
  if (Take("-", after)) {
    const std::string slice = TakeField(after);
    if (CheckSlice(slice).ok()) {
      id.slice = slice;
      rest = after;
    }
  }
  *out = std::move(id);
  return true;
}

std::string FormatId(const SaveId& id) {
  char step[32];
  std::snprintf(step, sizeof(step), "step-%08" PRIu64 "-", id.step);
  std::string text = step + id.run;
  if (id.slice.empty()) return text;
  text += '-';
  return text + id.slice;
}

json FormatParts(const CheckpointIndex& index) {
  json parts = json::array();
  for (uint64_t rank = 0; rank < index.parts.size(); ++rank) {
    parts.push_back(
        {{"file", PartName(index.id, rank, index.parts.size())},
         {"bytes", index.parts[rank].bytes},
         {"header_xxh3", FormatHash(index.parts[rank].header_hash)}});
  }
  return parts;
}

Status ParseParts(const std::string& what, const json& list,
                  CheckpointIndex* index) {
  if (list.empty() || list.size() > kMaxCheckpointRanks) {
    return InvalidArgument(
        what + ": 'files' has " + std::to_string(list.size()) +
        " elements; it must be 1 to " + std::to_string(kMaxCheckpointRanks));
  }
  for (uint64_t rank = 0; rank < list.size(); ++rank) {
    const std::string where = what + ": files[" + std::to_string(rank) + "]";
    ENGINE_RETURN_IF_ERROR(
        CheckFields(where, list[rank], {"file", "bytes", "header_xxh3"}));
    std::string file;
    std::string hash;
    CheckpointIndex::Part part;
    ENGINE_RETURN_IF_ERROR(GetString(where, list[rank], "file", &file));
    ENGINE_RETURN_IF_ERROR(
        GetUnsigned(where, list[rank], "bytes", INT64_MAX, &part.bytes));
    ENGINE_RETURN_IF_ERROR(GetString(where, list[rank], "header_xxh3", &hash));
    // Another name could lead anywhere.
    const std::string expected = PartName(index->id, rank, list.size());
    if (file != expected) {
      return InvalidArgument(where + ": 'file' is '" + file +
                             "'; it must be '" + expected + "'");
    }
    if (!ParseHash(hash, &part.header_hash)) {
      return InvalidArgument(where + ": 'header_xxh3' is '" + hash +
                             "', not 16 hexadecimal digits");
    }
    index->parts.push_back(part);
  }
  return Status();
}

Status ParseTensors(const std::string& what, const json& list,
                    CheckpointIndex* index) {
  for (size_t i = 0; i < list.size(); ++i) {
    std::string where = what + ": tensors[" + std::to_string(i) + "]";
    ENGINE_RETURN_IF_ERROR(
        CheckFields(where, list[i], {"name", "dtype", "shape"}));
    CheckpointIndex::Tensor tensor;
    ENGINE_RETURN_IF_ERROR(GetString(where, list[i], "name", &tensor.name));
    where += " '" + tensor.name + "'";
    if (tensor.name == kMetadataName) {
      return InvalidArgument(where + ": no tensor can be called that");
    }
    ENGINE_RETURN_IF_ERROR(GetString(where, list[i], "dtype", &tensor.dtype));
    ENGINE_RETURN_IF_ERROR(GetCounts(where, list[i], "shape", &tensor.shape));
    const uint64_t bytes = DTypeBytes(tensor.dtype);
    if (bytes == 0) {
      return InvalidArgument(where + " has dtype '" + tensor.dtype +
                             "', which the format does not have");
    }
    uint64_t count = 0;
    ENGINE_RETURN_IF_ERROR(
        CountElements(where, tensor.shape, INT64_MAX / bytes, &count));
    index->tensors.push_back(std::move(tensor));
  }
  return Status();
}

Status ParseMetadata(const std::string& what, const json& object,
                     CheckpointIndex* index) {
  if (!object.is_object()) {
    return InvalidArgument(what + ": 'metadata' is not an object");
  }
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) {
      return InvalidArgument(what + ": metadata '" + key + "' is not a text");
    }
    index->metadata.emplace(key, value.get_ref<const std::string&>());
  }
  return Status();
}

// Compares the checksum with that of the content, written as it was hashed.
Status CheckHash(const std::string& what, const json& root) {
  std::string text;
  uint64_t hash = 0;
  ENGINE_RETURN_IF_ERROR(GetString(what, root, "xxh3", &text));
  const std::string content = root.at("checkpoint").dump();
  if (ParseHash(text, &hash) && hash == HashOf(content.data(), content.size()))
    return Status();
  return Status(COMMSCHED_DATA_LOSS,
                what + ": its checksum is '" + text +
                    "', that of its content " +
                    FormatHash(HashOf(content.data(), content.size())));
}

Status ParseId(const std::string& what, const json& content, SaveId* out) {
  SaveId id;
  ENGINE_RETURN_IF_ERROR(
      GetUnsigned(what, content, "step", kMaxStep, &id.step));
  ENGINE_RETURN_IF_ERROR(GetString(what, content, "run", &id.run));
  Status valid = CheckSavedRun(id.run);
  if (valid.ok() && content.contains("slice")) {
    ENGINE_RETURN_IF_ERROR(GetString(what, content, "slice", &id.slice));
    valid = CheckSlice(id.slice);
  }
  if (!valid.ok()) return InvalidArgument(what + ": " + valid.message());
  *out = std::move(id);
  return Status();
}

Status ParseContent(const std::string& what, const json& content,
                    CheckpointIndex* out) {
  std::vector<const char*> fields = {"step",  "run",     "zero_stage",
                                     "files", "tensors", "metadata"};
  if (content.is_object() && content.contains("slice"))
    fields.push_back("slice");
  ENGINE_RETURN_IF_ERROR(CheckFields(what, content, fields));
  CheckpointIndex index;
  ENGINE_RETURN_IF_ERROR(ParseId(what, content, &index.id));
  ENGINE_RETURN_IF_ERROR(
      GetUnsigned(what, content, "zero_stage", 3, &index.zero_stage));
  const json* list = nullptr;
  ENGINE_RETURN_IF_ERROR(GetArray(what, content, "files", &list));
  ENGINE_RETURN_IF_ERROR(ParseParts(what, *list, &index));
  ENGINE_RETURN_IF_ERROR(GetArray(what, content, "tensors", &list));
  ENGINE_RETURN_IF_ERROR(ParseTensors(what, *list, &index));
  ENGINE_RETURN_IF_ERROR(ParseMetadata(what, content.at("metadata"), &index));
  *out = std::move(index);
  return Status();
}

}  // namespace

Status CheckRun(const std::string& run) {
  const bool plain = run.find_first_not_of(kLetters) == std::string::npos;
  if (plain && !run.empty() && run.size() <= kMaxRunLength) return Status();
  return InvalidArgument("run is '" + run + "'; it must be 1 to " +
                         std::to_string(kMaxRunLength) +
                         " letters, digits or '_'");
}

Status CheckSlice(const std::string& slice) {
  const bool plain =
      slice.find_first_not_of(std::string(kLetters) + '.') == std::string::npos;
  if (plain && !slice.empty() && slice.size() <= kMaxSliceLength &&
      slice != "rank" && slice != "index") {
    return Status();
  }
  return InvalidArgument("slice is '" + slice + "'; it must be 1 to " +
                         std::to_string(kMaxSliceLength) +
                         " letters, digits, '_' or '.', and neither 'rank' nor "
                         "'index'");
}

std::string RunOf(const std::string& origin, const std::string& name) {
  return origin.empty() || origin == name ? name : origin + '.' + name;
}

std::string OriginOf(const std::string& run) {
  return run.substr(0, run.find('.'));
}

// An axis may have any name; one that cannot be part of a file's is hashed.
std::string DefaultSlice(const std::string& axis, int32_t first_rank) {
  const bool plain = axis.size() <= kMaxAxisLength &&
                     axis.find_first_not_of(kLetters) == std::string::npos;
  std::string slice =
      plain ? axis : FormatHash(HashOf(axis.data(), axis.size()));
  slice += '.';
  return slice + std::to_string(first_rank);
}

std::string IndexName(const std::string& slice) {
  return slice.empty() ? std::string(kIndexName) : "index-" + slice + ".json";
}

bool ParseIndexName(const std::string& name, std::string* out_slice) {
  std::string slice;
  if (name != kIndexName) {
    std::string rest = name;
    if (!Take("index-", rest)) return false;
    const size_t end = rest.rfind(".json");
    if (end == std::string::npos || end + 5 != rest.size()) return false;
    slice = rest.substr(0, end);
    if (!CheckSlice(slice).ok()) return false;
  }
  *out_slice = std::move(slice);
  return true;
}

std::string PartName(const SaveId& id, uint64_t rank, uint64_t world) {
  char rest[64];
  std::snprintf(rest, sizeof(rest),
                "-rank-%05" PRIu64 "-of-%05" PRIu64 ".safetensors", rank,
                world);
  return FormatId(id) + rest;
}

std::string TemporaryIndexPrefix(const SaveId& id, uint64_t rank) {
  return FormatId(id) + "-index-" + std::to_string(rank);
}

bool ParseSavedName(const std::string& name, SavedName* out) {
  std::string rest = name;
  SavedName saved;
  uint64_t world = 0;
  if (!TakeId(rest, &saved.id)) return false;
  if (Take("-index-", rest)) {
    if (!TakeDigits(rest, &saved.rank) || !IsTemporaryEnding(rest)) {
      return false;
    }
  } else {
    if (!Take("-rank-", rest) || !TakeDigits(rest, &saved.rank)) return false;
    if (!Take("-of-", rest) || !TakeDigits(rest, &world)) return false;
    if (!Take(".safetensors", rest)) return false;
    if (!rest.empty() && !IsTemporaryEnding(rest)) return false;
  }
  *out = std::move(saved);
  return true;
}

std::string FormatHash(uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof(text), "%016" PRIx64, hash);
  return text;
}

bool ParseHash(const std::string& text, uint64_t* out) {
  if (text.size() != 16 ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    return false;
  }
  *out = std::strtoull(text.c_str(), nullptr, 16);
  return true;
}

uint64_t HashOf(const void* data, uint64_t bytes) {
  return XXH3_64bits(data, bytes);
}

// The keys of an object are in byte order, whatever made it, so that the same
// content has the same text and hence the same checksum.
std::string FormatIndex(const CheckpointIndex& index) {
  json tensors = json::array();
  for (const CheckpointIndex::Tensor& tensor : index.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape}});
  }
  json content = {
      {"step", index.id.step},          {"run", index.id.run},
      {"zero_stage", index.zero_stage}, {"files", FormatParts(index)},
      {"tensors", std::move(tensors)},  {"metadata", json::object()}};
  if (!index.id.slice.empty()) content["slice"] = index.id.slice;
  for (const auto& [key, value] : index.metadata) {
    content["metadata"][key] = value;
  }
  const std::string text = content.dump();
  const json root = {{"format", kCheckpointFormat},
                     {"checkpoint", std::move(content)},
                     {"xxh3", FormatHash(HashOf(text.data(), text.size()))}};
  return root.dump(1) + "\n";
}

Status ParseIndex(const std::string& what, const std::string& text,
                  CheckpointIndex* out) {
  json root;
  ENGINE_RETURN_IF_ERROR(ParseJson(what, text, &root));
  ENGINE_RETURN_IF_ERROR(
      CheckFields(what, root, {"format", "checkpoint", "xxh3"}));
  std::string format;
  ENGINE_RETURN_IF_ERROR(GetString(what, root, "format", &format));
  if (format != kCheckpointFormat) {
    return InvalidArgument(what + ": 'format' is '" + format +
                           "'; it must be '" + kCheckpointFormat + "'");
  }
  ENGINE_RETURN_IF_ERROR(CheckHash(what, root));
  return ParseContent(what, root.at("checkpoint"), out);
}

Status ReadIndexFile(const std::string& path, CheckpointIndex* out) {
  std::string text;
  ENGINE_RETURN_IF_ERROR(ReadWhole(path, kMaxIndexBytes, &text));
  return ParseIndex("file '" + path + "'", text, out);
}

}  // namespace commsched::engine
