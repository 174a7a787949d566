// The C side of the engine.

#include <memory>
#include <string>

#include "engine/capi/boundary.h"
#include "engine/engine_desc.h"
#include "engine/tables/kernels.h"

namespace engine = commsched::engine;
using engine::AtBoundary;
using engine::CopyIn;
using engine::FillInfo;
using engine::NotNull;
using engine::Status;

namespace {

// What a caller gives an engine, and copies of the structs in it.
struct GivenEngine {
  commsched_engine_desc_t desc;
  commsched_engine_kernels_t kernels;
  commsched_engine_memory_t memory;
  commsched_pool_t pool, gradient_pool;
};

Status CopyPointedTo(GivenEngine* given) {
  commsched_engine_desc_t& desc = given->desc;
  if (desc.kernels != nullptr) {
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc.kernels, "kernels", &given->kernels));
    desc.kernels = &given->kernels;
  }
  if (desc.memory != nullptr) {
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc.memory, "memory", &given->memory));
    desc.memory = &given->memory;
  }
  if (desc.optimizer_pool != nullptr) {
    ENGINE_RETURN_IF_ERROR(
        CopyIn(*desc.optimizer_pool, "optimizer_pool", &given->pool));
    desc.optimizer_pool = &given->pool;
  }
  if (desc.gradient_pool != nullptr) {
    ENGINE_RETURN_IF_ERROR(
        CopyIn(*desc.gradient_pool, "gradient_pool", &given->gradient_pool));
    desc.gradient_pool = &given->gradient_pool;
  }
  if (desc.num_groups > 0) {
    ENGINE_RETURN_IF_ERROR(NotNull(desc.groups, "groups"));
  }
  for (uint64_t i = 0; i < desc.num_groups; ++i) {
    const std::string name = "groups[" + std::to_string(i) + "]";
    ENGINE_RETURN_IF_ERROR(NotNull(desc.groups[i], name.c_str()));
  }
  return Status();
}

// What this rank does alone.
Status Prepare(GivenEngine* given, std::unique_ptr<commsched_engine>* out) {
  ENGINE_RETURN_IF_ERROR(CopyPointedTo(given));
  const commsched_engine_desc_t& desc = given->desc;
  ENGINE_RETURN_IF_ERROR(engine::CheckEngineDesc(desc));
  ENGINE_RETURN_IF_ERROR(
      engine::CheckFitsStepPlan(desc, *desc.step_plan->role.options));
  engine::DeviceTables ours;
  ENGINE_RETURN_IF_ERROR(engine::Engine::TablesOf(desc, &ours));
  *out = std::make_unique<commsched_engine>(desc, ours);
  return (*out)->engine.Prepare();
}

Status Create(const commsched_engine_desc_t* desc,
              commsched_engine_t** out_engine) {
  ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
  ENGINE_RETURN_IF_ERROR(NotNull(out_engine, "out_engine"));
  GivenEngine given;
  ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &given.desc));
  ENGINE_RETURN_IF_ERROR(NotNull(given.desc.context, "context"));
  std::unique_ptr<commsched_engine> made;
  const Status ready = engine::Caught([&] { return Prepare(&given, &made); });
  if (!ready.ok()) {
    engine::DeclineToCreate(given.desc.context, ready);
    return ready;
  }
  ENGINE_RETURN_IF_ERROR(made->engine.Meet());
  *out_engine = made.release();
  return Status();
}

}  // namespace

const char* commsched_engine_last_error(void) { return commsched_last_error(); }

commsched_engine_kernels_t commsched_engine_cpu_kernels(void) {
  return engine::CpuKernels();
}

commsched_status_t commsched_engine_create(const commsched_engine_desc_t* desc,
                                           commsched_engine_t** out_engine) {
  return AtBoundary([&] { return Create(desc, out_engine); });
}

void commsched_engine_destroy(commsched_engine_t* engine) { delete engine; }

commsched_status_t commsched_engine_record_order(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.RecordOrder();
  });
}

commsched_status_t commsched_engine_replan(
    commsched_engine_t* engine, const commsched_step_plan_t* step_plan) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(step_plan, "step_plan"));
    return engine->engine.Replan(step_plan->role);
  });
}

commsched_status_t commsched_engine_set_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const float* values, uint64_t count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    if (count > 0) ENGINE_RETURN_IF_ERROR(NotNull(values, "values"));
    return engine->engine.SetParameter(parameter, values, count);
  });
}

commsched_status_t commsched_engine_parameter_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint64_t* out_offset, uint64_t* out_count) {
  return engine::TellRange(engine, &engine::Engine::ParameterRange, parameter,
                           out_offset, out_count);
}

commsched_status_t commsched_engine_set_parameter_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint64_t offset, const float* values, uint64_t count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    if (count > 0) ENGINE_RETURN_IF_ERROR(NotNull(values, "values"));
    return engine->engine.SetParameterRange(parameter, offset, values, count);
  });
}

commsched_status_t commsched_engine_get_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    float* out_values, uint64_t count) {
  return commsched::engine::TellValues(engine, out_values, count, [&] {
    return engine->engine.GetParameter(parameter, out_values, count);
  });
}

commsched_status_t commsched_engine_parameter_address(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const void** out_values, void** out_gradient) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_values, "out_values"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_gradient, "out_gradient"));
    return engine->engine.ParameterAddress(parameter, out_values, out_gradient);
  });
}

void commsched_engine_abort(commsched_engine_t* engine, const char* reason) {
  if (engine == nullptr) return;
  engine->engine.Abort(reason == nullptr ? "" : reason);
}

commsched_status_t commsched_engine_loss_scale_address(
    commsched_engine_t* engine, const double** out_scale) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_scale, "out_scale"));
    return engine->engine.LossScaleAddress(out_scale);
  });
}

commsched_status_t commsched_engine_get_loss_scale(
    const commsched_engine_t* engine,
    commsched_engine_loss_scale_info_t* out_info) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return FillInfo(out_info, [&](commsched_engine_loss_scale_info_t* info) {
      return engine->engine.GetLossScale(info);
    });
  });
}

commsched_status_t commsched_engine_get_info(
    const commsched_engine_t* engine, commsched_engine_info_t* out_info) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return FillInfo(out_info, [&](commsched_engine_info_t* info) {
      return engine->engine.GetInfo(info);
    });
  });
}

commsched_status_t commsched_engine_get_bucket_info(
    const commsched_engine_t* engine, uint64_t bucket,
    commsched_engine_bucket_info_t* out_info) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return FillInfo(out_info, [&](commsched_engine_bucket_info_t* info) {
      *info = commsched_engine_bucket_info_init();
      return DescribeBucket(engine->engine.step_plan(), bucket, info);
    });
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
  return engine == nullptr ? nullptr : engine->engine.step_plan().plan();
}

commsched_session_t* commsched_engine_session(commsched_engine_t* engine) {
  return engine == nullptr ? nullptr : engine->engine.session();
}
