#include "examples/trainer/model.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/trainer/kernels.h"
#include "examples/trainer/memory_watch.h"

namespace commsched::trainer {

// Hands out consecutive, cache-line aligned pieces of a block of memory. With
// a null base it only counts.
struct Carver {
  static constexpr int64_t kCacheLineFloats = 16;

  float* Take(int64_t floats) {
    float* const piece = base == nullptr ? nullptr : base + count;
    count +=
        (floats + kCacheLineFloats - 1) / kCacheLineFloats * kCacheLineFloats;
    return piece;
  }

  float* base = nullptr;
  int64_t count = 0;
};

namespace {

constexpr std::align_val_t kCacheLine{64};

// The parameters of the embed module; the head's norm is indexed as a block's.
enum EmbedParameter { kWte, kWpe };

}  // namespace

void Gpt::AlignedDelete::operator()(float* pointer) const {
  ::operator delete[](pointer, kCacheLine);
}

absl::StatusOr<std::unique_ptr<Gpt>> Gpt::Create(
    const GptConfig& config, int64_t batch, int64_t seq,
    const ActivationOptions& options) {
  if (absl::Status status = ValidateConfig(config); !status.ok()) return status;
  if (batch < 1 || batch > kMaxBatch) {
    return absl::InvalidArgumentError(
        absl::StrCat("batch is ", batch, "; it must be 1 to ", kMaxBatch));
  }
  if (seq < 1 || seq > config.context) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sequence length is ", seq, "; it must be 1 to the model's context, ",
        config.context));
  }
  if (seq % options.shard.ranks != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sequence length is ", seq, "; it must be a multiple of the ",
        options.shard.ranks, " ranks that share a sequence"));
  }
  std::unique_ptr<Gpt> gpt(
      new Gpt(BuildArchitecture(config), batch, seq, options));
  Carver counter;
  gpt->Carve(counter);
  gpt->activation_bytes_ = counter.count * static_cast<int64_t>(sizeof(float));
  const int64_t models = options.sharing_machine;
  if (gpt->activation_bytes_ > PhysicalBytes() / models) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the activations of ", batch, " sequences of ", seq, " tokens take ",
        gpt->activation_bytes_, " bytes",
        models == 1 ? "" : absl::StrCat(" on each of ", models, " ranks"),
        "; the machine has ", PhysicalBytes(), " bytes of memory"));
  }
  gpt->inputs_.resize(static_cast<size_t>(gpt->rows()));
  gpt->targets_.resize(static_cast<size_t>(gpt->rows()));
  gpt->memory_.reset(static_cast<float*>(::operator new[](
      static_cast<size_t>(gpt->activation_bytes_), kCacheLine, std::nothrow)));
  if (gpt->memory_ == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for the ", gpt->activation_bytes_,
        " bytes of activations of ", batch, " sequences of ", seq, " tokens"));
  }
  std::fill_n(gpt->memory_.get(), counter.count, 0.0f);
  Carver carver = {.base = gpt->memory_.get()};
  gpt->Carve(carver);
  return gpt;
}

Gpt::Gpt(Architecture architecture, int64_t batch, int64_t seq,
         const ActivationOptions& options)
    : architecture_(std::move(architecture)),
      batch_(batch),
      seq_(seq),
      shard_(options.shard),
      recompute_(options.recompute),
      attention_bytes_(options.attention_bytes) {}

Gpt::Norm Gpt::CarveNorm(Carver& carver) const {
  Norm norm;
  norm.out = carver.Take(rows() * architecture_.config.channels);
  norm.mean = carver.Take(rows());
  norm.inverse_deviation = carver.Take(rows());
  return norm;
}

// All but its output.
Gpt::Block Gpt::CarveBlock(Carver& carver) const {
  const GptConfig& config = architecture_.config;
  const int64_t r = rows();
  const int64_t c = config.channels;
  Block block = {};
  block.ln_1 = CarveNorm(carver);
  if (!sharded()) {
    block.qkv = carver.Take(r * config.qkv_channels());
    block.probabilities = carver.Take(r * config.heads * seq_);
    block.attention = carver.Take(r * c);
  }
  block.attention_residual = carver.Take(r * c);
  block.ln_2 = CarveNorm(carver);
  block.hidden = carver.Take(r * 4 * c);
  block.gelu = carver.Take(r * 4 * c);
  return block;
}

void Gpt::Carve(Carver& carver) {
  const GptConfig& config = architecture_.config;
  const int64_t r = rows();
  const int64_t c = config.channels;
  act_.embedding = carver.Take(r * c);
  act_.blocks.resize(config.layers);
  for (Block& block : act_.blocks) {
    const bool shares = recompute_ && &block != &act_.blocks.front();
    block = shares ? act_.blocks.front() : CarveBlock(carver);
    block.mlp_residual = carver.Take(r * c);
  }
  act_.ln_f = CarveNorm(carver);
  act_.logits = carver.Take(r * config.vocab);
  act_.log_sums = carver.Take(r);
  act_.d_logits = carver.Take(r * config.vocab);
  act_.d_residual = carver.Take(r * c);
  act_.d_narrow = carver.Take(r * c);
  act_.d_wide = carver.Take(r * 4 * c);
  act_.d_scores = carver.Take(attention_shape().scratch_count());
  act_.attention =
      carver.Take(attention_bytes_ / static_cast<int64_t>(sizeof(float)));
}

void Gpt::SetBatch(const uint8_t* inputs, const uint8_t* targets) {
  if (!sharded()) {
    std::copy_n(inputs, rows(), inputs_.begin());
    std::copy_n(targets, rows(), targets_.begin());
    return;
  }
  for (int64_t row = 0; row < rows(); ++row) {
    const int64_t token = row % batch_ * seq_ + embedding_shape().position(row);
    inputs_[row] = inputs[token];
    targets_[row] = targets[token];
  }
}

Gpt::SharedAttention Gpt::shared_attention(int64_t layer) {
  const Block& block = act_.blocks[layer];
  return {.residual = BlockInput(layer),
          .input = block.ln_1.out,
          .output = block.attention_residual,
          .d_output = act_.d_residual,
          .d_input = act_.d_narrow};
}

std::span<std::byte> Gpt::shared_attention_memory() {
  return {reinterpret_cast<std::byte*>(act_.attention),
          static_cast<size_t>(attention_bytes_)};
}

void Gpt::EndAttention(int module, ParameterView parameters,
                       GradientView gradients) {
  const int64_t layer = architecture_.layer_of(module);
  const int first = architecture_.modules[module].owned[0];
  const auto p = parameters.subspan(first);
  const auto g = gradients.subspan(first);
  BackwardNorm(BlockInput(layer), p[kNormWeight], act_.blocks[layer].ln_1,
               g[kNormWeight], g[kNormBias]);
}

void Gpt::Forward(int module, ParameterView parameters) {
  if (module == architecture_.embed_module()) {
    EmbeddingForward(embedding_shape(), inputs_.data(), parameters[kWte],
                     parameters[kWpe], act_.embedding);
  } else if (module == architecture_.head_module()) {
    ForwardHead(parameters);
  } else if (module % 2 == 1) {
    ForwardAttention(module, parameters);
  } else {
    ForwardMlp(module, parameters);
  }
}

int Gpt::recomputed_from(int module) const {
  const int last_mlp =
      architecture_.mlp_module(architecture_.config.layers - 1);
  const bool is_mlp = module > 0 && module % 2 == 0;
  return recompute_ && is_mlp && module < last_mlp ? module - 1 : module + 1;
}

void Gpt::Recompute(int module, ParameterView parameters) {
  if (module % 2 == 1) {
    ForwardAttention(module, parameters);
  } else {
    ForwardHidden(module, parameters);
  }
}

void Gpt::Backward(int module, ParameterView parameters,
                   GradientView gradients) {
  if (module == architecture_.embed_module()) {
    EmbeddingBackward(embedding_shape(), inputs_.data(), act_.d_residual,
                      gradients[kWte], gradients[kWpe]);
  } else if (module == architecture_.head_module()) {
    BackwardHead(parameters, gradients);
  } else if (module % 2 == 1) {
    BackwardAttention(module, parameters, gradients);
  } else {
    BackwardMlp(module, parameters, gradients);
  }
}

std::span<const float> Gpt::logits() const {
  return {act_.logits,
          static_cast<size_t>(rows() * architecture_.config.vocab)};
}

void Gpt::ForwardAttention(int module, ParameterView parameters) {
  const int64_t layer = architecture_.layer_of(module);
  const auto p = parameters.subspan(architecture_.modules[module].owned[0]);
  const Block& block = act_.blocks[layer];
  const int64_t r = rows();
  const int64_t c = architecture_.config.channels;
  const float* x = BlockInput(layer);  // (R, C)
  ForwardNorm(x, p[kNormWeight], p[kNormBias], block.ln_1);
  if (sharded()) return;  // The caller does the rest.
  const int64_t qkv = architecture_.config.qkv_channels();
  LinearForward({r, c, qkv}, block.ln_1.out, p[kFirstWeight], block.qkv);
  AddBias(p[kFirstBias], r, qkv, block.qkv);
  AttentionForward(attention_shape(), block.qkv, block.probabilities,
                   block.attention);
  CopyWithBias(x, p[kProjectionBias], r, c, block.attention_residual);
  LinearForwardAdd({r, c, c}, block.attention, p[kProjectionWeight],
                   block.attention_residual);
}

void Gpt::BackwardAttention(int module, ParameterView parameters,
                            GradientView gradients) {
  if (sharded()) return;  // The caller does the rest.
  const int64_t layer = architecture_.layer_of(module);
  const int first = architecture_.modules[module].owned[0];
  const auto p = parameters.subspan(first);
  const auto g = gradients.subspan(first);
  const Block& block = act_.blocks[layer];
  const int64_t r = rows();
  const int64_t c = architecture_.config.channels;
  const float* dy = act_.d_residual;  // (R, C)
  float* d_attention = act_.d_narrow;
  AddColumnSums(dy, r, c, g[kProjectionBias]);
  LinearBackwardWeight({r, c, c}, block.attention, dy, g[kProjectionWeight]);
  LinearBackwardInput({r, c, c}, dy, p[kProjectionWeight], d_attention);

  const int64_t qkv = architecture_.config.qkv_channels();
  float* d_qkv = act_.d_wide;  // (R, H + 2 K, C / H)
  AttentionBackward(attention_shape(), block.qkv, block.probabilities,
                    d_attention, act_.d_scores, d_qkv);
  AddColumnSums(d_qkv, r, qkv, g[kFirstBias]);
  LinearBackwardWeight({r, c, qkv}, block.ln_1.out, d_qkv, g[kFirstWeight]);
  LinearBackwardInput({r, c, qkv}, d_qkv, p[kFirstWeight], act_.d_narrow);
  EndAttention(module, parameters, gradients);
}

// What backward reads.
void Gpt::ForwardHidden(int module, ParameterView parameters) {
  const auto p = parameters.subspan(architecture_.modules[module].owned[0]);
  const Block& block = act_.blocks[(module - 2) / 2];
  const int64_t r = rows();
  const int64_t c = architecture_.config.channels;
  ForwardNorm(block.attention_residual, p[kNormWeight], p[kNormBias],
              block.ln_2);
  LinearForward({r, c, 4 * c}, block.ln_2.out, p[kFirstWeight], block.hidden);
  AddBiasAndGelu(p[kFirstBias], r, 4 * c, block.hidden, block.gelu);
}

void Gpt::ForwardMlp(int module, ParameterView parameters) {
  ForwardHidden(module, parameters);
  const auto p = parameters.subspan(architecture_.modules[module].owned[0]);
  const Block& block = act_.blocks[(module - 2) / 2];
  const int64_t r = rows();
  const int64_t c = architecture_.config.channels;
  CopyWithBias(block.attention_residual, p[kProjectionBias], r, c,
               block.mlp_residual);
  LinearForwardAdd({r, 4 * c, c}, block.gelu, p[kProjectionWeight],
                   block.mlp_residual);
}

void Gpt::BackwardMlp(int module, ParameterView parameters,
                      GradientView gradients) {
  const int first = architecture_.modules[module].owned[0];
  const auto p = parameters.subspan(first);
  const auto g = gradients.subspan(first);
  const Block& block = act_.blocks[(module - 2) / 2];
  const int64_t r = rows();
  const int64_t c = architecture_.config.channels;
  const float* dy = act_.d_residual;  // (R, C)
  float* d_hidden = act_.d_wide;      // (R, 4 C)
  AddColumnSums(dy, r, c, g[kProjectionBias]);
  LinearBackwardWeight({r, 4 * c, c}, block.gelu, dy, g[kProjectionWeight]);
  LinearBackwardInput({r, 4 * c, c}, dy, p[kProjectionWeight], d_hidden);
  GeluBackward(block.hidden, r, 4 * c, d_hidden, g[kFirstBias]);

  LinearBackwardWeight({r, c, 4 * c}, block.ln_2.out, d_hidden,
                       g[kFirstWeight]);
  LinearBackwardInput({r, c, 4 * c}, d_hidden, p[kFirstWeight], act_.d_narrow);
  BackwardNorm(block.attention_residual, p[kNormWeight], block.ln_2,
               g[kNormWeight], g[kNormBias]);
}

// The head multiplies by wte (V, C) transposed, which it does not own: wte as a
// linear layer from V to C, run backwards. In the head's backward that layer
// runs forwards.
void Gpt::ForwardHead(ParameterView parameters) {
  const auto p = parameters.subspan(architecture_.modules.back().owned[0]);
  const GptConfig& config = architecture_.config;
  const float* x = BlockInput(config.layers);  // (R, C)
  ForwardNorm(x, p[kNormWeight], p[kNormBias], act_.ln_f);
  LinearBackwardInput({rows(), config.vocab, config.channels}, act_.ln_f.out,
                      parameters[kWte], act_.logits);
  const double loss = CrossEntropy(act_.logits, targets_.data(), rows(),
                                   config.vocab, act_.log_sums);
  loss_ = static_cast<float>(loss / static_cast<double>(rows()));
}

void Gpt::BackwardHead(ParameterView parameters, GradientView gradients) {
  const int first = architecture_.modules.back().owned[0];
  const auto p = parameters.subspan(first);
  const auto g = gradients.subspan(first);
  const GptConfig& config = architecture_.config;
  const int64_t r = rows();
  const int64_t c = config.channels;
  CrossEntropyBackward(act_.logits, targets_.data(), act_.log_sums, r,
                       config.vocab, loss_scale_ / static_cast<float>(r),
                       act_.d_logits);
  LinearBackwardWeight({r, config.vocab, c}, act_.d_logits, act_.ln_f.out,
                       gradients[kWte]);
  LinearForward({r, config.vocab, c}, act_.d_logits, parameters[kWte],
                act_.d_narrow);
  std::fill_n(act_.d_residual, r * c, 0.0f);
  BackwardNorm(BlockInput(config.layers), p[kNormWeight], act_.ln_f,
               g[kNormWeight], g[kNormBias]);
}

void Gpt::ForwardNorm(const float* x, const float* weight, const float* bias,
                      const Norm& norm) {
  LayerNorm(x, weight, bias, rows(), architecture_.config.channels, norm.out,
            {norm.mean, norm.inverse_deviation});
}

void Gpt::BackwardNorm(const float* x, const float* weight, const Norm& norm,
                       float* d_weight, float* d_bias) {
  LayerNormBackward(
      act_.d_narrow, x, weight, {norm.mean, norm.inverse_deviation}, rows(),
      architecture_.config.channels, {act_.d_residual, d_weight, d_bias});
}

const float* Gpt::BlockInput(int64_t layer) const {
  return layer == 0 ? act_.embedding : act_.blocks[layer - 1].mlp_residual;
}

AttentionShape Gpt::attention_shape() const {
  const GptConfig& config = architecture_.config;
  return {.batch = batch_,
          .seq = seq_,
          .heads = config.heads,
          .head_size = config.head_size(),
          .kv_heads = config.num_kv_heads()};
}

EmbeddingShape Gpt::embedding_shape() const {
  return {.batch = batch_,
          .seq = local_seq(),
          .channels = architecture_.config.channels,
          .first_position = shard_.rank * local_seq(),
          .time_major = sharded()};
}

}  // namespace commsched::trainer
