// The C side of the model.

#include "commsched/model.h"

#include <memory>

#include "engine/capi/boundary.h"

using commsched::engine::AtBoundary;
using commsched::engine::CopyIn;
using commsched::engine::Model;
using commsched::engine::NotNull;
using commsched::engine::Status;

namespace {

// `add` is given the model, unless it is too late.
template <typename Add>
Status Register(commsched_model_t* model, Add&& add) {
  ENGINE_RETURN_IF_ERROR(NotNull(model, "model"));
  ENGINE_RETURN_IF_ERROR(model->model->CheckOpen());
  return add(*model->model);
}

}  // namespace

commsched_status_t commsched_model_create(commsched_model_t** out_model) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(out_model, "out_model"));
    *out_model = new commsched_model{std::make_shared<Model>()};
    return Status();
  });
}

void commsched_model_destroy(commsched_model_t* model) { delete model; }

commsched_status_t commsched_model_add_module(
    commsched_model_t* model, const char* name, double forward_flops,
    double backward_flops, commsched_module_id_t* out_module) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(out_module, "out_module"));
    return Register(model, [&](Model& to) {
      return to.AddModule(name, forward_flops, backward_flops, out_module);
    });
  });
}

commsched_status_t commsched_model_add_parameter(
    commsched_model_t* model, const commsched_parameter_desc_t* desc,
    commsched_parameter_id_t* out_parameter) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_parameter, "out_parameter"));
    commsched_parameter_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    return Register(
        model, [&](Model& to) { return to.AddParameter(copy, out_parameter); });
  });
}

commsched_status_t commsched_model_use_parameter(
    commsched_model_t* model, commsched_module_id_t module,
    commsched_parameter_id_t parameter) {
  return AtBoundary([&] {
    return Register(
        model, [&](Model& to) { return to.UseParameter(module, parameter); });
  });
}

commsched_status_t commsched_model_recompute(commsched_model_t* model,
                                             commsched_module_id_t first,
                                             commsched_module_id_t last) {
  return AtBoundary([&] {
    return Register(model,
                    [&](Model& to) { return to.Recompute(first, last); });
  });
}

commsched_status_t commsched_model_add_group(commsched_model_t* model,
                                             const char* name,
                                             int32_t num_ranks,
                                             commsched_group_id_t* out_group) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(name, "name"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_group, "out_group"));
    return Register(model, [&](Model& to) {
      return to.AddGroup(name, num_ranks, out_group);
    });
  });
}

commsched_status_t commsched_model_add_activation(
    commsched_model_t* model, const commsched_activation_desc_t* desc,
    commsched_activation_id_t* out_activation) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_activation, "out_activation"));
    commsched_activation_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    ENGINE_RETURN_IF_ERROR(NotNull(copy.name, "desc.name"));
    return Register(model, [&](Model& to) {
      return to.AddActivation(copy, out_activation);
    });
  });
}

commsched_status_t commsched_model_add_op(
    commsched_model_t* model, commsched_module_id_t module,
    const commsched_module_op_desc_t* desc, commsched_module_op_id_t* out_op) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_op, "out_op"));
    commsched_module_op_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    return Register(model,
                    [&](Model& to) { return to.AddOp(module, copy, out_op); });
  });
}

commsched_status_t commsched_model_add_collective(
    commsched_model_t* model, commsched_module_id_t module,
    const commsched_module_collective_desc_t* desc) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    commsched_module_collective_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    return Register(model,
                    [&](Model& to) { return to.AddCollective(module, copy); });
  });
}

commsched_status_t commsched_model_set_passes(commsched_model_t* model,
                                              const commsched_pass_t* passes,
                                              uint64_t num_passes) {
  return AtBoundary([&] {
    if (num_passes > 0) ENGINE_RETURN_IF_ERROR(NotNull(passes, "passes"));
    return Register(
        model, [&](Model& to) { return to.SetPasses(passes, num_passes); });
  });
}
