// The C side of ops and collectives within modules.

#include "boundary.h"
#include "commsched/engine_ops.h"

using commsched::engine::AtBoundary;
using commsched::engine::CopyIn;
using commsched::engine::Model;
using commsched::engine::NotNull;

commsched_status_t commsched_engine_add_group(commsched_engine_t* engine,
                                              const char* name,
                                              commsched_group_t* group,
                                              commsched_group_id_t* out_group) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(name, "name"));
    ENGINE_RETURN_IF_ERROR(NotNull(group, "group"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_group, "out_group"));
    return engine->engine.Register(
        [&](Model& model) { return model.AddGroup(name, group, out_group); });
  });
}

commsched_status_t commsched_engine_add_activation(
    commsched_engine_t* engine, const commsched_activation_desc_t* desc,
    commsched_activation_id_t* out_activation) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_activation, "out_activation"));
    commsched_activation_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    ENGINE_RETURN_IF_ERROR(NotNull(copy.name, "desc.name"));
    return engine->engine.Register([&](Model& model) {
      return model.AddActivation(copy, out_activation);
    });
  });
}

commsched_status_t commsched_engine_add_op(
    commsched_engine_t* engine, commsched_module_id_t module,
    const commsched_module_op_desc_t* desc, commsched_module_op_id_t* out_op) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_op, "out_op"));
    commsched_module_op_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    return engine->engine.Register(
        [&](Model& model) { return model.AddOp(module, copy, out_op); });
  });
}

commsched_status_t commsched_engine_add_collective(
    commsched_engine_t* engine, commsched_module_id_t module,
    const commsched_module_collective_desc_t* desc) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    commsched_module_collective_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    return engine->engine.Register(
        [&](Model& model) { return model.AddCollective(module, copy); });
  });
}

commsched_status_t commsched_engine_op_begin(commsched_engine_t* engine,
                                             commsched_module_op_id_t op,
                                             uint32_t micro_batch) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.OpBegin(op, micro_batch);
  });
}

commsched_status_t commsched_engine_op_end(commsched_engine_t* engine,
                                           commsched_module_op_id_t op,
                                           uint32_t micro_batch) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return engine->engine.OpEnd(op, micro_batch);
  });
}
