#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/format/checkpoint_index.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {
namespace {

using engine::CheckpointIndex;
using engine::SavedName;
using engine::Status;

const char kWhat[] = "file 'f'";

// The index whose content the text is, if that is JSON; else the text.
std::string WithChecksum(const std::string& text) {
  const auto content = nlohmann::json::parse(text, nullptr, false);
  if (content.is_discarded()) return text;
  const std::string dump = content.dump();
  const uint64_t hash = engine::HashOf(dump.data(), dump.size());
  const nlohmann::json root = {{"format", engine::kCheckpointFormat},
                               {"checkpoint", content},
                               {"xxh3", engine::FormatHash(hash)}};
  return root.dump();
}

size_t CheckName(const std::string& name) {
  std::string slice;
  if (engine::ParseIndexName(name, &slice)) {
    Require(engine::IndexName(slice) == name);
    return 1;
  }
  SavedName saved;
  if (!engine::ParseSavedName(name, &saved)) return 0;
  Require(name.find('/') == std::string::npos);
  Require(engine::CheckRun(engine::OriginOf(saved.id.run)).ok());
  if (!saved.id.slice.empty()) {
    Require(engine::CheckSlice(saved.id.slice).ok());
  }
  return 1;
}

size_t CheckIndex(const std::string& text) {
  CheckpointIndex index;
  const Status status = engine::ParseIndex(kWhat, text, &index);
  if (!status.ok()) {
    Require(status.code() == COMMSCHED_INVALID_ARGUMENT ||
            status.code() == COMMSCHED_DATA_LOSS);
    Require(status.message().find(kWhat) == 0);
    return 0;
  }
  CheckpointIndex again;
  Require(engine::ParseIndex(kWhat, engine::FormatIndex(index), &again).ok());
  Require(again == index);
  for (uint64_t rank = 0; rank < index.parts.size(); ++rank) {
    SavedName saved;
    Require(engine::ParseSavedName(
        engine::PartName(index.id, rank, index.parts.size()), &saved));
    Require(saved.id == index.id && saved.rank == rank);
  }
  return 1;
}

}  // namespace

size_t FuzzCheckpointIndex(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  return CheckName(text) + CheckIndex(text) + CheckIndex(WithChecksum(text));
}

}  // namespace commsched::test
