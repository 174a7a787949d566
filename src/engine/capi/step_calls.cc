// The C functions of steps and evaluations.

#include <string>

#include "commsched/engine.h"
#include "commsched/engine_ops.h"
#include "engine/capi/boundary.h"

namespace engine = commsched::engine;
using engine::AtBoundary;
using engine::CheckReserved;
using engine::CopyIn;
using engine::NotNull;
using engine::PassCall;
using engine::Status;
using GradientCall = engine::StepCalls::GradientCall;

namespace {

Status ToCall(const commsched_pass_t* pass, PassCall* out_call) {
  ENGINE_RETURN_IF_ERROR(NotNull(pass, "pass"));
  if (pass->kind >= commsched::engine::kNumPassKinds) {
    return commsched::engine::InvalidArgument(
        "engine: pass.kind is " + std::to_string(pass->kind) +
        "; it must be 0 (FORWARD) to 5 (NO_GRAD)");
  }
  ENGINE_RETURN_IF_ERROR(CheckReserved("pass.reserved", pass->reserved));
  *out_call = {static_cast<commsched::engine::PassKind>(pass->kind),
               pass->module, pass->micro_batch};
  return Status();
}

}  // namespace

commsched_status_t commsched_engine_step_begin(
    commsched_engine_t* engine, const commsched_step_desc_t* desc) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    commsched_step_desc_t copy = commsched_step_desc_init();
    if (desc != nullptr) ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    ENGINE_RETURN_IF_ERROR(CheckReserved("desc.reserved", copy.reserved));
    return engine->engine.calls().StepBegin(copy.micro_batches);
  });
}

commsched_status_t commsched_engine_gradient_begin(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    void** out_gradient) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_gradient, "out_gradient"));
    ENGINE_RETURN_IF_ERROR(
        engine->engine.calls().Gradient(GradientCall::kBegin, parameter));
    const void* values = nullptr;
    return engine->engine.ParameterAddress(parameter, &values, out_gradient);
  });
}

commsched_status_t commsched_engine_gradient_ready(
    commsched_engine_t* engine, commsched_parameter_id_t parameter) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().Gradient(GradientCall::kReady, parameter);
  });
}

commsched_status_t commsched_engine_gradient_absent(
    commsched_engine_t* engine, commsched_parameter_id_t parameter) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().Gradient(GradientCall::kAbsent, parameter);
  });
}

commsched_status_t commsched_engine_addresses(
    commsched_engine_t* engine, const commsched_pass_t* pass,
    commsched_parameter_place_t* out_places, uint64_t count,
    uint64_t* out_count) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    PassCall call;
    ENGINE_RETURN_IF_ERROR(ToCall(pass, &call));
    if (count != 0) ENGINE_RETURN_IF_ERROR(NotNull(out_places, "out_places"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_count, "out_count"));
    return engine->engine.Addresses(call, {out_places, count}, out_count);
  });
}

commsched_status_t commsched_engine_step_cancel(
    commsched_engine_t* engine, commsched_cancel_scope_t scope) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    if (scope > COMMSCHED_CANCEL_ALL) {
      return engine::InvalidArgument("engine: scope of step_cancel is " +
                                     std::to_string(scope) +
                                     "; it must be 0 (LOCAL) or 1 (ALL)");
    }
    return engine->engine.calls().Cancel(scope == COMMSCHED_CANCEL_ALL);
  });
}

commsched_status_t commsched_engine_pass_begin(commsched_engine_t* engine,
                                               const commsched_pass_t* pass) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    PassCall call;
    ENGINE_RETURN_IF_ERROR(ToCall(pass, &call));
    return engine->engine.calls().PassBegin(call);
  });
}

commsched_status_t commsched_engine_pass_end(commsched_engine_t* engine,
                                             const commsched_pass_t* pass) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    PassCall call;
    ENGINE_RETURN_IF_ERROR(ToCall(pass, &call));
    return engine->engine.calls().PassEnd(call);
  });
}

commsched_status_t commsched_engine_op_begin(commsched_engine_t* engine,
                                             commsched_module_op_id_t op,
                                             uint32_t micro_batch) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().OpBegin(op, micro_batch);
  });
}

commsched_status_t commsched_engine_op_end(commsched_engine_t* engine,
                                           commsched_module_op_id_t op,
                                           uint32_t micro_batch) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().OpEnd(op, micro_batch);
  });
}

commsched_status_t commsched_engine_reduce(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().EndPasses("reduce");
  });
}

commsched_status_t commsched_engine_norm(commsched_engine_t* engine,
                                         double* out_norm) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_norm, "out_norm"));
    return engine->engine.calls().Norm(out_norm);
  });
}

commsched_status_t commsched_engine_update(
    commsched_engine_t* engine, const commsched_engine_update_args_t* args) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(args, "args"));
    commsched_engine_update_args_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*args, "args", &copy));
    return engine->engine.calls().Step(copy);
  });
}

commsched_status_t commsched_engine_step_end(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().StepEnd();
  });
}

commsched_status_t commsched_engine_drain(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().Drain();
  });
}

commsched_status_t commsched_engine_evaluation_begin(
    commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().EvaluationBegin();
  });
}

commsched_status_t commsched_engine_evaluation_end(commsched_engine_t* engine) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.calls().EvaluationEnd();
  });
}
