#include "examples/trainer/sequence_attention.h"

#include <string>
#include <vector>

#include "examples/trainer/c_api.h"
#include "examples/trainer/matmul.h"

namespace commsched::trainer {
namespace {

commsched_attention_desc_t Describe(const Options& options, int64_t index) {
  const GptConfig& config = options.config;
  commsched_attention_desc_t desc = commsched_attention_desc_init();
  desc.layers = static_cast<uint64_t>(config.layers);
  desc.heads = static_cast<uint64_t>(config.heads);
  desc.kv_heads = static_cast<uint64_t>(config.num_kv_heads());
  desc.head_size = static_cast<uint64_t>(config.head_size());
  desc.batch = static_cast<uint64_t>(options.local_batch());
  desc.seq = static_cast<uint64_t>(options.seq);
  desc.ranks = static_cast<uint32_t>(options.sp);
  desc.rank = static_cast<uint32_t>(index % options.sp);
  desc.chunks = static_cast<uint32_t>(options.sp_chunks);
  desc.dtype = DTypeOf(options.sp_dtype);
  desc.blocking = options.sp_blocking ? 1 : 0;
  desc.recompute = options.recompute ? 1 : 0;
  desc.scratch_count =
      static_cast<uint64_t>(AttentionScratchCount(options.seq));
  return desc;
}

commsched_status_t Multiply(void* /*user*/, const commsched_product_t* args) {
  const auto size = [](uint64_t n) { return static_cast<int64_t>(n); };
  Matmul({size(args->rows), size(args->cols), size(args->inner)},
         {args->a, size(args->a_stride), args->a_transposed != 0},
         {args->b, size(args->b_stride), args->b_transposed != 0},
         {args->out, size(args->out_stride), args->accumulate != 0});
  return COMMSCHED_OK;
}

AttentionHead HeadOf(const commsched_attention_head_t& args) {
  return {.seq = static_cast<int64_t>(args.seq),
          .size = static_cast<int64_t>(args.head_size),
          .q_stride = static_cast<int64_t>(args.q_stride),
          .kv_stride = static_cast<int64_t>(args.kv_stride),
          .y_stride = static_cast<int64_t>(args.q_stride),
          .q = args.q,
          .k = args.k,
          .v = args.v};
}

commsched_status_t Attend(void* /*user*/,
                          const commsched_attention_head_t* args) {
  HeadForward(HeadOf(*args), args->kept, args->y);
  return COMMSCHED_OK;
}

commsched_status_t BackwardValue(void* /*user*/,
                                 const commsched_attention_head_t* args) {
  HeadBackwardValue(HeadOf(*args), args->kept, args->dy, args->accumulate != 0,
                    args->dv);
  return COMMSCHED_OK;
}

commsched_status_t BackwardQueryKey(void* /*user*/,
                                    const commsched_attention_head_t* args) {
  HeadBackwardQueryKey(HeadOf(*args), args->kept, args->dy,
                       args->accumulate != 0, args->scratch, args->dq,
                       args->dk);
  return COMMSCHED_OK;
}

}  // namespace

absl::StatusOr<commsched_attention_info_t> SequenceAttention::Measure(
    const Options& options, int64_t index) {
  commsched_attention_info_t info = commsched_attention_info_init();
  if (options.sp == 1) return info;
  const commsched_attention_desc_t desc = Describe(options, index);
  return Filled(info, commsched_attention_get_info, &desc);
}

commsched_attention_kernels_t SequenceAttention::Kernels() {
  commsched_attention_kernels_t kernels = commsched_attention_kernels_init();
  kernels.user = this;
  kernels.product = Multiply;
  kernels.head_forward = Attend;
  kernels.head_backward_value = BackwardValue;
  kernels.head_backward_query_key = BackwardQueryKey;
  kernels.input_gradient = [](void* user, uint32_t /*layer*/) {
    auto& self = *static_cast<SequenceAttention*>(user);
    self.gpt_->EndAttention(self.module_, self.parameters_, self.gradients_);
    return commsched_status_t{COMMSCHED_OK};
  };
  kernels.gradient_complete = [](void* user, commsched_parameter_id_t id) {
    static_cast<SequenceAttention*>(user)->wide_->EndGradient(
        static_cast<int>(id));
    return commsched_status_t{COMMSCHED_OK};
  };
  return kernels;
}

absl::Status SequenceAttention::Register(const Options& options, int64_t index,
                                         commsched_group_t* group,
                                         WideParameters* wide, Gpt* gpt,
                                         commsched_model_t* model) {
  if (options.sp == 1) return absl::OkStatus();
  gpt_ = gpt;
  wide_ = wide;
  commsched_attention_desc_t desc = Describe(options, index);
  const commsched_attention_kernels_t kernels = Kernels();
  desc.kernels = &kernels;
  desc.memory = gpt->shared_attention_memory().data();
  desc.memory_bytes = gpt->shared_attention_memory().size_bytes();
  TRAINER_CALL(commsched_attention_create(&desc, Out(attention_)));

  const Architecture& architecture = gpt->architecture();
  constexpr size_t kNorm = 2;
  std::vector<commsched_parameter_id_t> norms;  // Of each layer, kNorm.
  std::vector<commsched_attention_layer_t> layers;
  norms.reserve(kNorm * architecture.modules.size());
  for (int m = 0; m < gpt->num_modules(); ++m) {
    if (!architecture.is_attention(m)) continue;
    const ModuleSpec& module = architecture.modules[static_cast<size_t>(m)];
    const auto first = static_cast<uint32_t>(module.owned[0]);
    commsched_attention_layer_t layer = commsched_attention_layer_init();
    layer.module = static_cast<uint32_t>(m);
    layer.name = module.name.c_str();
    layer.qkv_weight = first + kFirstWeight;
    layer.qkv_bias = first + kFirstBias;
    layer.out_weight = first + kProjectionWeight;
    layer.out_bias = first + kProjectionBias;
    norms.insert(norms.end(), {first + kNormWeight, first + kNormBias});
    layer.input_parameters = &norms[norms.size() - kNorm];
    layer.num_input_parameters = 1;
    layer.input_gradients = layer.input_parameters;
    layer.num_input_gradients = kNorm;
    layers.push_back(layer);
  }
  return FromC(commsched_attention_register(
      attention_.get(), model, "sp", group, layers.data(), layers.size()));
}

absl::Status SequenceAttention::Run(commsched_engine_t* engine, int module,
                                    bool backward, uint32_t micro_batch,
                                    ParameterView parameters,
                                    GradientView gradients) {
  if (attention_ == nullptr || !gpt_->architecture().is_attention(module)) {
    return absl::OkStatus();
  }
  module_ = module;
  parameters_ = parameters;
  gradients_ = gradients;
  const Architecture& model = gpt_->architecture();
  const int64_t layer = model.layer_of(module);
  const auto first =
      static_cast<size_t>(model.modules[static_cast<size_t>(module)].owned[0]);
  const Gpt::SharedAttention rows = gpt_->shared_attention(layer);
  const ParameterView p = parameters.subspan(first);
  commsched_attention_block_t block = {};
  block.residual = rows.residual;
  block.input = rows.input;
  block.output = rows.output;
  block.d_output = rows.d_output;
  block.d_input = rows.d_input;
  block.qkv_weight = p[kFirstWeight];
  block.qkv_bias = p[kFirstBias];
  block.out_weight = p[kProjectionWeight];
  block.out_bias = p[kProjectionBias];
  if (backward) {
    const GradientView g = gradients.subspan(first);
    block.d_qkv_weight = g[kFirstWeight];
    block.d_qkv_bias = g[kFirstBias];
    block.d_out_weight = g[kProjectionWeight];
    block.d_out_bias = g[kProjectionBias];
  }
  return FromC(commsched_attention_run(attention_.get(), engine,
                                       static_cast<uint32_t>(layer), backward,
                                       micro_batch, &block));
}

}  // namespace commsched::trainer
