// The C side of attention.

#include "engine/attention/attention.h"

#include <memory>
#include <vector>

#include "engine/capi/boundary.h"

using commsched::engine::AtBoundary;
using commsched::engine::Attention;
using commsched::engine::CopyIn;
using commsched::engine::FillInfo;
using commsched::engine::NotNull;
using commsched::engine::Status;

struct commsched_attention {
  std::unique_ptr<Attention> attention;
};

commsched_status_t commsched_attention_get_info(
    const commsched_attention_desc_t* desc,
    commsched_attention_info_t* out_info) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    commsched_attention_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    return FillInfo(out_info, [&](commsched_attention_info_t* info) {
      return Attention::GetInfo(copy, info);
    });
  });
}

commsched_status_t commsched_attention_create(
    const commsched_attention_desc_t* desc,
    commsched_attention_t** out_attention) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(desc, "desc"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_attention, "out_attention"));
    commsched_attention_desc_t copy;
    ENGINE_RETURN_IF_ERROR(CopyIn(*desc, "desc", &copy));
    ENGINE_RETURN_IF_ERROR(NotNull(copy.kernels, "desc.kernels"));
    commsched_attention_kernels_t kernels;
    ENGINE_RETURN_IF_ERROR(CopyIn(*copy.kernels, "desc.kernels", &kernels));
    auto made = std::make_unique<commsched_attention>();
    ENGINE_RETURN_IF_ERROR(Attention::Create(copy, kernels, &made->attention));
    *out_attention = made.release();
    return Status();
  });
}

commsched_status_t commsched_attention_register(
    commsched_attention_t* attention, commsched_model_t* model,
    const char* axis, commsched_group_t* group,
    const commsched_attention_layer_t* layers, uint64_t num_layers) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(attention, "attention"));
    ENGINE_RETURN_IF_ERROR(NotNull(model, "model"));
    ENGINE_RETURN_IF_ERROR(NotNull(axis, "axis"));
    ENGINE_RETURN_IF_ERROR(NotNull(group, "group"));
    ENGINE_RETURN_IF_ERROR(NotNull(layers, "layers"));
    std::vector<commsched_attention_layer_t> copies;
    // Entries are as far apart as the caller was compiled with.
    const auto* at = reinterpret_cast<const unsigned char*>(layers);
    for (uint64_t l = 0; l < num_layers; ++l) {
      const auto* layer =
          reinterpret_cast<const commsched_attention_layer_t*>(at);
      commsched_attention_layer_t copy;
      ENGINE_RETURN_IF_ERROR(CopyIn(*layer, "layers", &copy));
      if (copy.num_input_parameters != 0) {
        ENGINE_RETURN_IF_ERROR(
            NotNull(copy.input_parameters, "layers.input_parameters"));
      }
      if (copy.num_input_gradients != 0) {
        ENGINE_RETURN_IF_ERROR(
            NotNull(copy.input_gradients, "layers.input_gradients"));
      }
      copies.push_back(copy);
      at += layer->struct_size;
    }
    return attention->attention->Register(model, axis, group, copies);
  });
}

commsched_status_t commsched_attention_run(
    commsched_attention_t* attention, commsched_engine_t* engine,
    uint32_t layer, uint32_t backward, uint32_t micro_batch,
    const commsched_attention_block_t* block) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(attention, "attention"));
    ENGINE_RETURN_IF_ERROR(NotNull(engine, "engine"));
    return attention->attention->Run(engine, layer, backward != 0, micro_batch,
                                     block);
  });
}

void commsched_attention_destroy(commsched_attention_t* attention) {
  delete attention;
}
