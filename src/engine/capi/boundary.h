// What the C functions share: convert, call, convert back. Nothing is decided
// here but NULLs and the sizes of structs.
#ifndef COMMSCHED_SRC_ENGINE_CAPI_BOUNDARY_H_
#define COMMSCHED_SRC_ENGINE_CAPI_BOUNDARY_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "checkpoint/status.h"
#include "engine/engine.h"

struct commsched_model {
  std::shared_ptr<commsched::engine::Model> model;
};

struct commsched_step_plan {
  commsched::engine::PlannedRole role;
  std::shared_ptr<const commsched::engine::Optimizer> optimizer;
};

struct commsched_engine {
  commsched_engine(const commsched_engine_desc_t& desc,
                   const commsched::engine::DeviceTables& ours)
      : engine(desc, desc.step_plan->role, desc.step_plan->optimizer, ours) {}
  commsched::engine::Engine engine;
};

namespace commsched::engine {

// Keeps the message of a failure where commsched_last_error() finds it.
inline commsched_status_t Report(const Status& status) {
  if (!status.ok()) commsched_set_last_error(status.message().c_str());
  return status.code();
}

// Runs `body`, the C++ side of one function. The only place beside Caught()
// that catches what a caller's thread throws.
template <typename Body>
commsched_status_t AtBoundary(Body&& body) noexcept {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    commsched_set_last_error("out of memory");
    return COMMSCHED_RESOURCE_EXHAUSTED;
  } catch (const std::system_error& e) {
    commsched_set_last_error(e.what());
    return e.code() == std::errc::resource_unavailable_try_again
               ? COMMSCHED_RESOURCE_EXHAUSTED
               : COMMSCHED_INTERNAL;
  } catch (const std::exception& e) {
    commsched_set_last_error(e.what());
    return COMMSCHED_INTERNAL;
  } catch (...) {
    commsched_set_last_error("an exception of unknown type");
    return COMMSCHED_INTERNAL;
  }
}

Status NotNull(const void* pointer, const char* name);

// Tells what `range` says, Engine::ParameterRange or Engine::MasterRange.
template <typename Range>
commsched_status_t TellRange(commsched_engine_t* engine, Range range,
                             uint32_t parameter, uint64_t* out_offset,
                             uint64_t* out_count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_offset, "out_offset"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_count, "out_count"));
    return (engine->engine.*range)(parameter, out_offset, out_count);
  });
}

// Runs `read`, which fills `out_values` with `count` values of an engine.
template <typename Read>
commsched_status_t TellValues(const commsched_engine_t* engine,
                              const float* out_values, uint64_t count,
                              Read&& read) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    if (count > 0) ENGINE_RETURN_IF_ERROR(NotNull(out_values, "out_values"));
    return read();
  });
}

Status CheckReserved(const std::string& field, uint32_t value);

// A greater struct_size than any struct of the ABI has, or one that would cut a
// field, is that of an uninitialised one.
Status CheckStructSize(uint64_t size, const char* name);

// Copies a struct that the caller may have compiled with another version:
// fields it does not know read as 0, fields we do not know must be 0.
template <typename T>
Status CopyIn(const T& from, const char* name, T* out) {
  const uint64_t size = from.struct_size;
  ENGINE_RETURN_IF_ERROR(CheckStructSize(size, name));
  bool known = true;
  const auto* bytes = reinterpret_cast<const unsigned char*>(&from);
  for (uint64_t i = sizeof(T); known && i < size; ++i) known = bytes[i] == 0;
  if (!known) {
    return InvalidArgument(std::string("engine: struct_size of ") + name +
                           " is " + std::to_string(size) +
                           "; this version has " + std::to_string(sizeof(T)) +
                           " bytes and no more fields");
  }
  std::memset(static_cast<void*>(out), 0, sizeof(T));
  std::memcpy(static_cast<void*>(out), &from,
              std::min<uint64_t>(size, sizeof(T)));
  out->struct_size = sizeof(T);
  return Status();
}

// Fills as much of a struct as the caller was compiled with.
template <typename T, typename Fill>
Status FillInfo(T* out_info, Fill&& fill) {
  ENGINE_RETURN_IF_ERROR(NotNull(out_info, "out_info"));
  const uint64_t size = out_info->struct_size;
  ENGINE_RETURN_IF_ERROR(CheckStructSize(size, "out_info"));
  T info;
  ENGINE_RETURN_IF_ERROR(fill(&info));
  std::memcpy(out_info, &info, std::min<uint64_t>(size, sizeof(info)));
  out_info->struct_size = size;
  return Status();
}

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_CAPI_BOUNDARY_H_
