// The C side of the engine: convert, call, convert back. Nothing is decided
// here but NULLs and the sizes of structs.

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "engine.h"

namespace engine = commsched::engine;
using engine::Status;

struct commsched_engine {
  explicit commsched_engine(const commsched_engine_desc_t& desc)
      : engine(desc) {}
  engine::Engine engine;
};

namespace {

// The message of the last failed call of this thread.
std::string& LastError() {
  thread_local std::string message;
  return message;
}

commsched_status_t Report(const Status& status) {
  if (!status.ok()) LastError() = status.message();
  return status.code();
}

// Runs `body`, the C++ side of one function. The only place that catches.
template <typename Body>
commsched_status_t AtBoundary(Body&& body) noexcept {
  try {
    return Report(body());
  } catch (const std::bad_alloc&) {
    LastError() = "out of memory";  // Short enough to need none.
    return COMMSCHED_RESOURCE_EXHAUSTED;
  } catch (const std::exception& e) {
    LastError() = e.what();
    return COMMSCHED_INTERNAL;
  } catch (...) {
    LastError() = "an exception of unknown type";
    return COMMSCHED_INTERNAL;
  }
}

Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return Status();
  return engine::InvalidArgument(std::string("engine: ") + name + " is NULL");
}

// No struct of the ABI is larger; a greater struct_size is an uninitialised
// one.
constexpr uint64_t kMaxStructSize = 4096;

Status CheckStructSize(uint64_t size, const char* name) {
  // A size that is no multiple of 8 would cut a field.
  if (size >= sizeof(size) && size <= kMaxStructSize &&
      size % sizeof(size) == 0) {
    return Status();
  }
  return engine::InvalidArgument(
      std::string("engine: struct_size of ") + name + " is " +
      std::to_string(size) + ", not a multiple of " +
      std::to_string(sizeof(size)) + " in " + std::to_string(sizeof(size)) +
      ".." + std::to_string(kMaxStructSize) + "; make it with its _init()");
}

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
    return engine::InvalidArgument(
        std::string("engine: struct_size of ") + name + " is " +
        std::to_string(size) + "; this version has " +
        std::to_string(sizeof(T)) + " bytes and no more fields");
  }
  std::memset(static_cast<void*>(out), 0, sizeof(T));
  std::memcpy(static_cast<void*>(out), &from,
              std::min<uint64_t>(size, sizeof(T)));
  out->struct_size = sizeof(T);
  return Status();
}

Status Create(const commsched_engine_desc_t* desc,
              commsched_engine_t** out_engine) {
  ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
  ENGINE_RETURN_IF_ERROR(NotNull(out_engine, "out_engine"));
  commsched_engine_desc_t copy;
  commsched_engine_kernels_t kernels;
  commsched_plan_options_t plan;
  commsched_cost_profile_t profile;
  ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
  if (copy.kernels != nullptr) {
    ENGINE_RETURN_IF_ERROR(CopyIn(*copy.kernels, "kernels", &kernels));
    copy.kernels = &kernels;
  }
  if (copy.plan != nullptr) {
    ENGINE_RETURN_IF_ERROR(CopyIn(*copy.plan, "plan", &plan));
    copy.plan = &plan;
  }
  if (copy.profile != nullptr) {
    ENGINE_RETURN_IF_ERROR(CopyIn(*copy.profile, "profile", &profile));
    copy.profile = &profile;
  }
  ENGINE_RETURN_IF_ERROR(engine::Engine::CheckDesc(copy));
  *out_engine = new commsched_engine(copy);
  return Status();
}

}  // namespace

const char* commsched_engine_last_error(void) { return LastError().c_str(); }

commsched_status_t commsched_engine_create(const commsched_engine_desc_t* desc,
                                           commsched_engine_t** out_engine) {
  return AtBoundary([&] { return Create(desc, out_engine); });
}

void commsched_engine_destroy(commsched_engine_t* engine) { delete engine; }

commsched_status_t commsched_engine_add_module(
    commsched_engine_t* engine, const char* name, double forward_flops,
    double backward_flops, commsched_module_id_t* out_module) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_module, "out_module"));
    return engine->engine.AddModule(name, forward_flops, backward_flops,
                                    out_module);
  });
}

commsched_status_t commsched_engine_add_parameter(
    commsched_engine_t* engine, commsched_module_id_t module, const char* name,
    const uint64_t* dims, uint32_t num_dims,
    commsched_parameter_id_t* out_parameter) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(dims, "dims"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_parameter, "out_parameter"));
    return engine->engine.AddParameter(module, name, dims, num_dims,
                                       out_parameter);
  });
}

commsched_status_t commsched_engine_use_parameter(
    commsched_engine_t* engine, commsched_module_id_t module,
    commsched_parameter_id_t parameter) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.UseParameter(module, parameter);
  });
}

commsched_status_t commsched_engine_prepare(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.Prepare();
  });
}

commsched_status_t commsched_engine_build(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.Build();
  });
}

commsched_status_t commsched_engine_set_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const float* values, uint64_t count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(values, "values"));
    return engine->engine.SetParameter(parameter, values, count);
  });
}

commsched_status_t commsched_engine_parameter_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint64_t* out_offset, uint64_t* out_count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_offset, "out_offset"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_count, "out_count"));
    return engine->engine.ParameterRange(parameter, out_offset, out_count);
  });
}

commsched_status_t commsched_engine_set_parameter_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint64_t offset, const float* values, uint64_t count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(values, "values"));
    return engine->engine.SetParameterRange(parameter, offset, values, count);
  });
}

commsched_status_t commsched_engine_get_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    float* out_values, uint64_t count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_values, "out_values"));
    return engine->engine.GetParameter(parameter, out_values, count);
  });
}

commsched_status_t commsched_engine_parameter_address(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const float** out_values, float** out_gradient) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_values, "out_values"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_gradient, "out_gradient"));
    return engine->engine.ParameterAddress(parameter, out_values, out_gradient);
  });
}

commsched_status_t commsched_engine_step_begin(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.StepBegin();
  });
}

commsched_status_t commsched_engine_forward_begin(commsched_engine_t* engine,
                                                  commsched_module_id_t module,
                                                  uint32_t micro_batch) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.ModuleBegin(/*backward=*/false, module, micro_batch);
  });
}

commsched_status_t commsched_engine_forward_end(commsched_engine_t* engine,
                                                commsched_module_id_t module,
                                                uint32_t micro_batch) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.ModuleEnd(/*backward=*/false, module, micro_batch);
  });
}

commsched_status_t commsched_engine_backward_begin(commsched_engine_t* engine,
                                                   commsched_module_id_t module,
                                                   uint32_t micro_batch) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.ModuleBegin(/*backward=*/true, module, micro_batch);
  });
}

commsched_status_t commsched_engine_backward_end(commsched_engine_t* engine,
                                                 commsched_module_id_t module,
                                                 uint32_t micro_batch) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.ModuleEnd(/*backward=*/true, module, micro_batch);
  });
}

commsched_status_t commsched_engine_optimizer_step(commsched_engine_t* engine,
                                                   float lr) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.OptimizerStep(lr);
  });
}

commsched_status_t commsched_engine_step_end(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.StepEnd();
  });
}

commsched_status_t commsched_engine_drain(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.Drain();
  });
}

commsched_status_t commsched_engine_evaluation_begin(
    commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.EvaluationBegin();
  });
}

commsched_status_t commsched_engine_evaluation_end(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.EvaluationEnd();
  });
}

void commsched_engine_abort(commsched_engine_t* engine, const char* reason) {
  if (engine != nullptr) engine->engine.Abort(reason);
}

commsched_status_t commsched_engine_gradient_norm(commsched_engine_t* engine,
                                                  double* out_norm) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_norm, "out_norm"));
    return engine->engine.GradientNorm(out_norm);
  });
}

commsched_status_t commsched_engine_get_info(
    const commsched_engine_t* engine, commsched_engine_info_t* out_info) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_info, "out_info"));
    const uint64_t size = out_info->struct_size;
    ENGINE_RETURN_IF_ERROR(CheckStructSize(size, "out_info"));
    commsched_engine_info_t info;
    ENGINE_RETURN_IF_ERROR(engine->engine.GetInfo(&info));
    std::memcpy(out_info, &info, std::min<uint64_t>(size, sizeof(info)));
    out_info->struct_size = size;
    return Status();
  });
}

commsched_status_t commsched_engine_op_costs(const commsched_engine_t* engine,
                                             int64_t* out_ns,
                                             uint64_t num_ops) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_ns, "out_ns"));
    return engine->engine.OpCosts(out_ns, num_ops);
  });
}

commsched_plan_t* commsched_engine_plan(commsched_engine_t* engine) {
  return engine == nullptr ? nullptr : engine->engine.plan();
}

commsched_session_t* commsched_engine_session(commsched_engine_t* engine) {
  return engine == nullptr ? nullptr : engine->engine.session();
}
