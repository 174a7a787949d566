// The C side of checkpoints.

#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "checkpoint/saver.h"
#include "commsched/checkpoint.h"
#include "engine/capi/boundary.h"

namespace engine = commsched::engine;
using engine::AtBoundary;
using engine::NotNull;
using engine::Status;

struct commsched_engine_saver {
  std::unique_ptr<engine::Saver> saver;
};

struct commsched_engine_checkpoint {
  std::unique_ptr<engine::Checkpoint> checkpoint;
};

namespace {

using Metadata = std::map<std::string, std::string>;

Status CopyMetadata(const commsched_engine_metadata_t* metadata, uint32_t count,
                    Metadata* out) {
  if (count > 0) ENGINE_RETURN_IF_ERROR(NotNull(metadata, "metadata"));
  for (uint32_t i = 0; i < count; ++i) {
    ENGINE_RETURN_IF_ERROR(NotNull(metadata[i].key, "metadata.key"));
    ENGINE_RETURN_IF_ERROR(NotNull(metadata[i].value, "metadata.value"));
    const std::string key = metadata[i].key;
    if (key.empty()) {
      return engine::InvalidArgument("engine: metadata[" + std::to_string(i) +
                                     "] has an empty key");
    }
    if (!out->emplace(key, metadata[i].value).second) {
      return engine::InvalidArgument("engine: metadata '" + key +
                                     "' appears twice");
    }
  }
  return Status();
}

Status CreateSaver(commsched_engine_t* engine_handle,
                   const commsched_engine_saver_desc_t* desc,
                   commsched_engine_saver_t** out_saver) {
  ENGINE_RETURN_IF_ERROR(NotNull(engine_handle, "engine"));
  ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
  ENGINE_RETURN_IF_ERROR(NotNull(out_saver, "out_saver"));
  commsched_engine_saver_desc_t copy;
  ENGINE_RETURN_IF_ERROR(engine::CopyIn(*desc, "desc", &copy));
  ENGINE_RETURN_IF_ERROR(NotNull(copy.folder, "desc.folder"));
  ENGINE_RETURN_IF_ERROR(NotNull(copy.run, "desc.run"));
  auto handle = std::make_unique<commsched_engine_saver>();
  const engine::Saver::Options options = {.folder = copy.folder,
                                          .run = copy.run,
                                          .slice = copy.slice,
                                          .overwrite = copy.overwrite != 0};
  engine::Snapshot snapshot;
  ENGINE_RETURN_IF_ERROR(
      engine_handle->engine.MakeSnapshot(copy.whole != 0, &snapshot));
  ENGINE_RETURN_IF_ERROR(
      engine::Saver::Create(std::move(snapshot), options, &handle->saver));
  *out_saver = handle.release();
  return Status();
}

Status OpenCheckpoint(const char* folder, const char* slice,
                      commsched_engine_checkpoint_t** out_checkpoint) {
  ENGINE_RETURN_IF_ERROR(NotNull(folder, "folder"));
  ENGINE_RETURN_IF_ERROR(NotNull(out_checkpoint, "out_checkpoint"));
  auto handle = std::make_unique<commsched_engine_checkpoint>();
  ENGINE_RETURN_IF_ERROR(
      engine::Checkpoint::Open(folder, slice, &handle->checkpoint));
  *out_checkpoint = handle.release();
  return Status();
}

}  // namespace

commsched_status_t commsched_engine_saver_create(
    commsched_engine_t* engine, const commsched_engine_saver_desc_t* desc,
    commsched_engine_saver_t** out_saver) {
  return AtBoundary([&] { return CreateSaver(engine, desc, out_saver); });
}

void commsched_engine_saver_destroy(commsched_engine_saver_t* saver) {
  delete saver;
}

commsched_status_t commsched_engine_saver_save(
    commsched_engine_saver_t* saver,
    const commsched_engine_metadata_t* metadata, uint32_t num_metadata) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(saver, "saver"));
    Metadata copy;
    ENGINE_RETURN_IF_ERROR(CopyMetadata(metadata, num_metadata, &copy));
    return saver->saver->Save(std::move(copy));
  });
}

commsched_status_t commsched_engine_saver_wait(
    commsched_engine_saver_t* saver) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(saver, "saver"));
    return saver->saver->Wait();
  });
}

commsched_status_t commsched_engine_checkpoint_open(
    const char* folder, commsched_engine_checkpoint_t** out_checkpoint) {
  return AtBoundary(
      [&] { return OpenCheckpoint(folder, nullptr, out_checkpoint); });
}

commsched_status_t commsched_engine_checkpoint_open_slice(
    const char* folder, const char* slice,
    commsched_engine_checkpoint_t** out_checkpoint) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(slice, "slice"));
    return OpenCheckpoint(folder, slice, out_checkpoint);
  });
}

void commsched_engine_checkpoint_close(
    commsched_engine_checkpoint_t* checkpoint) {
  delete checkpoint;
}

commsched_status_t commsched_engine_checkpoint_get_info(
    const commsched_engine_checkpoint_t* checkpoint,
    commsched_engine_checkpoint_info_t* out_info) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(checkpoint, "checkpoint"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_info, "out_info"));
    const uint64_t size = out_info->struct_size;
    ENGINE_RETURN_IF_ERROR(engine::CheckStructSize(size, "out_info"));
    const engine::CheckpointIndex& index = checkpoint->checkpoint->index();
    auto info = commsched_engine_checkpoint_info_init();
    info.step = index.id.step;
    info.num_ranks = index.parts.size();
    info.zero_stage = index.zero_stage;
    info.num_tensors = index.tensors.size();
    for (const auto& part : index.parts) info.bytes += part.bytes;
    std::memcpy(out_info, &info, std::min<uint64_t>(size, sizeof(info)));
    out_info->struct_size = size;
    return Status();
  });
}

const char* commsched_engine_checkpoint_metadata(
    const commsched_engine_checkpoint_t* checkpoint, const char* key) {
  if (checkpoint == nullptr || key == nullptr) return nullptr;
  const Metadata& metadata = checkpoint->checkpoint->index().metadata;
  const auto found =
      std::find_if(metadata.begin(), metadata.end(),
                   [key](const auto& entry) { return entry.first == key; });
  return found == metadata.end() ? nullptr : found->second.c_str();
}

commsched_status_t commsched_engine_checkpoint_load(
    const commsched_engine_checkpoint_t* checkpoint,
    commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(checkpoint, "checkpoint"));
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.Restore(*checkpoint->checkpoint);
  });
}

commsched_status_t commsched_engine_master_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint64_t* out_offset, uint64_t* out_count) {
  return engine::TellRange(engine, &engine::Engine::MasterRange, parameter,
                           out_offset, out_count);
}

commsched_status_t commsched_engine_gather_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint32_t root, float* out_values, uint64_t count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.GatherParameter(parameter, root, out_values, count);
  });
}

commsched_status_t commsched_engine_get_master_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    float* out_values, uint64_t count) {
  return commsched::engine::TellValues(engine, out_values, count, [&] {
    return engine->engine.ReadPiece("get_master_range", parameter,
                                    commsched::engine::kValueKind, out_values,
                                    count);
  });
}

commsched_status_t commsched_engine_get_state(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const char* name, float* out_values, uint64_t count) {
  return commsched::engine::TellValues(engine, out_values, count, [&] {
    ENGINE_RETURN_IF_ERROR(NotNull(name, "name"));
    return engine->engine.GetState(parameter, name, out_values, count);
  });
}

commsched_status_t commsched_engine_checkpoint_export(
    const commsched_engine_checkpoint_t* checkpoint, const char* path) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(checkpoint, "checkpoint"));
    ENGINE_RETURN_IF_ERROR(NotNull(path, "path"));
    return checkpoint->checkpoint->Export(path);
  });
}
