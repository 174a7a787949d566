#include "test/engine/attention_toy.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <new>
#include <numeric>
#include <thread>

#include "commsched/engine.h"
#include "test/engine/create_engine.h"
#include "test/engine/float_address.h"
#include "test/engine/messages.h"
#include "test/engine/model_handle.h"
#include "test/engine/pass_calls.h"
#include "test/engine/update_call.h"

namespace commsched::engine {
namespace {

enum ModuleParameter : uint32_t { kNorm, kQkvW, kQkvB, kOutW, kOutB };

constexpr float kRate = 0.25f;

// Noise in -1..1 that depends on its arguments alone.
float NoiseAt(uint64_t seed, uint64_t index) {
  uint64_t x = seed * 0x9e3779b97f4a7c15 + index * 0xbf58476d1ce4e5b9 + 1;
  x = (x ^ (x >> 31)) * 0x94d049bb133111eb;
  x ^= x >> 29;
  return static_cast<float>(x % 20001) / 10000.0f - 1.0f;
}

float InitialWeight(uint32_t parameter, uint64_t index) {
  const float noise = NoiseAt(parameter + 1, index);
  return parameter % kToyParameters == kNorm ? 1 + 0.2f * noise : 0.4f * noise;
}

commsched_status_t PlainProduct(void * /*user*/, const commsched_product_t *p) {
  for (uint64_t r = 0; r < p->rows; ++r) {
    for (uint64_t c = 0; c < p->cols; ++c) {
      double sum = p->accumulate != 0 ? p->out[r * p->out_stride + c] : 0;
      for (uint64_t i = 0; i < p->inner; ++i) {
        const uint64_t a =
            p->a_transposed != 0 ? i * p->a_stride + r : r * p->a_stride + i;
        const uint64_t b =
            p->b_transposed != 0 ? c * p->b_stride + i : i * p->b_stride + c;
        sum += double{p->a[a]} * double{p->b[b]};
      }
      p->out[r * p->out_stride + c] = static_cast<float>(sum);
    }
  }
  return COMMSCHED_OK;
}

double Dot(const float *a, const float *b, uint64_t count) {
  double sum = 0;
  for (uint64_t i = 0; i < count; ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

// Causal softmax attention.
commsched_status_t PlainForward(void * /*user*/,
                                const commsched_attention_head_t *h) {
  const double scale = 1 / std::sqrt(static_cast<double>(h->head_size));
  for (uint64_t t = 0; t < h->seq; ++t) {
    float *p = h->kept + t * h->seq;
    double sum = 0;
    for (uint64_t u = 0; u <= t; ++u) {
      p[u] = static_cast<float>(
          std::exp(scale * Dot(h->q + t * h->q_stride, h->k + u * h->kv_stride,
                               h->head_size)));
      sum += p[u];
    }
    for (uint64_t u = 0; u <= t; ++u) {
      p[u] = static_cast<float>(p[u] / sum);
    }
    for (uint64_t i = 0; i < h->head_size; ++i) {
      double y = 0;
      for (uint64_t u = 0; u <= t; ++u) {
        y += double{p[u]} * double{h->v[u * h->kv_stride + i]};
      }
      h->y[t * h->q_stride + i] = static_cast<float>(y);
    }
  }
  return COMMSCHED_OK;
}

commsched_status_t PlainBackwardValue(void * /*user*/,
                                      const commsched_attention_head_t *h) {
  for (uint64_t u = 0; u < h->seq; ++u) {
    for (uint64_t i = 0; i < h->head_size; ++i) {
      float &dv = h->dv[u * h->kv_stride + i];
      double sum = h->accumulate != 0 ? dv : 0;
      for (uint64_t t = u; t < h->seq; ++t) {
        sum += double{h->kept[t * h->seq + u]} *
               double{h->dy[t * h->q_stride + i]};
      }
      dv = static_cast<float>(sum);
    }
  }
  return COMMSCHED_OK;
}

// The gradient of the scores goes to `scratch`, (seq, seq).
commsched_status_t PlainBackwardQueryKey(void * /*user*/,
                                         const commsched_attention_head_t *h) {
  const double scale = 1 / std::sqrt(static_cast<double>(h->head_size));
  for (uint64_t t = 0; t < h->seq; ++t) {
    const float *p = h->kept + t * h->seq;
    float *d = h->scratch + t * h->seq;
    double mean = 0;
    for (uint64_t u = 0; u <= t; ++u) {
      d[u] = static_cast<float>(
          Dot(h->dy + t * h->q_stride, h->v + u * h->kv_stride, h->head_size));
      mean += double{d[u]} * double{p[u]};
    }
    for (uint64_t u = 0; u <= t; ++u) {
      d[u] = static_cast<float>(scale * p[u] * (d[u] - mean));
    }
  }
  for (uint64_t t = 0; t < h->seq; ++t) {
    for (uint64_t i = 0; i < h->head_size; ++i) {
      double dq = 0;
      for (uint64_t u = 0; u <= t; ++u) {
        dq += double{h->scratch[t * h->seq + u]} *
              double{h->k[u * h->kv_stride + i]};
      }
      h->dq[t * h->q_stride + i] = static_cast<float>(dq);
      float &dk = h->dk[t * h->kv_stride + i];
      double sum = h->accumulate != 0 ? dk : 0;
      for (uint64_t s = t; s < h->seq; ++s) {
        sum += double{h->scratch[s * h->seq + t]} *
               double{h->q[s * h->q_stride + i]};
      }
      dk = static_cast<float>(sum);
    }
  }
  return COMMSCHED_OK;
}

// The rows of some ranks: what enters each module, and leaves the last.
struct ToyRows {
  ToyRows(const AttentionToy &toy, uint64_t first_token, uint64_t num_tokens)
      : rows(num_tokens * toy.batch), width(toy.width) {
    streams.assign(toy.layers + 1, std::vector<float>(rows * width));
    normed.assign(toy.layers, std::vector<float>(rows * width));
    for (uint64_t i = 0; i < rows * width; ++i) {
      const uint64_t at = first_token * toy.batch * width + i;
      streams[0][i] = NoiseAt(1000, at);
      target.push_back(NoiseAt(2000, at));
    }
    d_stream.resize(rows * width);
    d_normed.resize(rows * width);
  }

  void Norm(uint64_t layer, const float *norm) {
    for (uint64_t i = 0; i < rows * width; ++i) {
      normed[layer][i] = streams[layer][i] * norm[i % width];
    }
  }

  void NormBackward(uint64_t layer, const float *norm, float *d_norm) {
    for (uint64_t i = 0; i < rows * width; ++i) {
      d_norm[i % width] += d_normed[i] * streams[layer][i];
      d_stream[i] += d_normed[i] * norm[i % width];
    }
  }

  // Half the mean square of a row's error, and its gradient.
  double Loss() {
    double loss = 0;
    const float scale = 1 / static_cast<float>(rows);
    for (uint64_t i = 0; i < rows * width; ++i) {
      const float error = streams.back()[i] - target[i];
      loss += 0.5 * error * error / static_cast<double>(rows);
      d_stream[i] = error * scale;
    }
    return loss;
  }

  const uint64_t rows;
  const uint64_t width;
  std::vector<std::vector<float>> streams;  // By layer, and the last's output.
  std::vector<std::vector<float>> normed;   // By layer.
  std::vector<float> target, d_stream, d_normed;
};

class SharedRank {
 public:
  SharedRank(const AttentionToy &toy, commsched_world_t *world, int32_t rank)
      : toy_(toy),
        rows_(toy, static_cast<uint64_t>(rank) * Tokens(toy), Tokens(toy)) {
    Require(commsched_context_create(world, rank, &context_));
    std::vector<int32_t> all(static_cast<size_t>(toy.ranks));
    std::iota(all.begin(), all.end(), 0);
    for (commsched_group_t **group : {&group_, &sequence_group_}) {
      const char *axis = group == &group_ ? "dp_shard" : "sp";
      Require(commsched_group_create(context_, axis, all.data(),
                                     static_cast<uint32_t>(all.size()), group));
    }
    Register(rank);
  }

  ~SharedRank() {
    commsched_engine_destroy(engine_);
    commsched_attention_destroy(attention_);
    commsched_group_destroy(sequence_group_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
    if (memory_ != nullptr) ::operator delete (memory_, std::align_val_t{64});
  }
  SharedRank(const SharedRank &) = delete;
  SharedRank &operator=(const SharedRank &) = delete;

  commsched_status_t Create() {
    commsched_plan_options_t plan = commsched_plan_options_init();
    plan.deterministic = 1;
    commsched_engine_desc_t desc = commsched_engine_desc_init();
    desc.context = context_;
    desc.group = group_;
    desc.groups = &sequence_group_;
    desc.num_groups = 1;
    commsched_step_plan_options_t options = commsched_step_plan_options_init();
    options.plan = &plan;
    options.zero_stage = toy_.zero_stage;
    const commsched_optimizer_table_t sgd = commsched_sgd(0, 0);
    options.optimizer = &sgd;
    options.bucket_bytes = 1024;
    return CreateEngine(desc, model_.get(), options, &engine_);
  }

  std::string Train(AttentionTraining *out) {
    RETURN_MESSAGE_IF_ERROR(Message(Create()));
    std::vector<float> values;
    for (uint32_t p = 0; p < NumParameters(); ++p) {
      values.resize(toy_.CountOf(p % kToyParameters));
      for (uint64_t i = 0; i < values.size(); ++i) {
        values[i] = InitialWeight(p, i);
      }
      RETURN_MESSAGE_IF_ERROR(Message(commsched_engine_set_parameter(
          engine_, p, values.data(), values.size())));
    }
    for (uint32_t step = 0; step < toy_.steps; ++step) {
      double loss = 0;
      RETURN_MESSAGE_IF_ERROR(Step(&loss));
      out->losses.push_back(loss);
    }
    RETURN_MESSAGE_IF_ERROR(ReadWeights(&out->weights));
    out->completed = completed_;
    return "";
  }

  void Abort() { commsched_engine_abort(engine_, "another rank has failed"); }

 private:
  static uint64_t Tokens(const AttentionToy &toy) {
    return toy.seq / static_cast<uint64_t>(toy.ranks);
  }
  uint32_t NumParameters() const {
    return static_cast<uint32_t>(toy_.layers) * kToyParameters;
  }

  void CreateAttention(int32_t rank) {
    commsched_attention_kernels_t kernels = PlainAttentionKernels();
    kernels.user = this;
    kernels.input_gradient = [](void *user, uint32_t layer) {
      auto &self = *static_cast<SharedRank *>(user);
      self.rows_.NormBackward(layer, self.values_[kNorm],
                              self.gradients_[kNorm]);
      return commsched_status_t{COMMSCHED_OK};
    };
    kernels.gradient_complete = [](void *user, commsched_parameter_id_t id) {
      static_cast<SharedRank *>(user)->completed_.push_back(id);
      return commsched_status_t{COMMSCHED_OK};
    };
    if (toy_.product_fails && rank == 0) {
      kernels.product = [](void * /*user*/, const commsched_product_t *) {
        commsched_set_last_error("no product today");
        return commsched_status_t{COMMSCHED_DATA_LOSS};
      };
    }
    commsched_attention_desc_t desc = commsched_attention_desc_init();
    desc.layers = toy_.layers;
    desc.heads = toy_.heads;
    desc.kv_heads = toy_.kv_heads;
    desc.head_size = toy_.head_size;
    desc.width = toy_.width;
    desc.batch = toy_.batch;
    desc.seq = toy_.seq;
    desc.ranks = static_cast<uint32_t>(toy_.ranks);
    desc.rank = static_cast<uint32_t>(rank);
    desc.chunks = toy_.chunks;
    desc.dtype = toy_.dtype;
    desc.blocking = toy_.blocking ? 1 : 0;
    desc.recompute = toy_.recompute ? 1 : 0;
    desc.scratch_count = toy_.seq * toy_.seq;
    desc.kernels = &kernels;
    if (toy_.lends_memory) {
      commsched_attention_info_t info = commsched_attention_info_init();
      Require(commsched_attention_get_info(&desc, &info));
      memory_ = ::operator new (info.memory_bytes, std::align_val_t{64});
      desc.memory = memory_;
      desc.memory_bytes = info.memory_bytes;
    }
    Require(commsched_attention_create(&desc, &attention_));
  }

  void Register(int32_t rank) {
    std::vector<commsched_attention_layer_t> layers;
    std::vector<std::string> names;
    for (uint32_t l = 0; l < toy_.layers; ++l) {
      names.push_back("layer" + std::to_string(l));
    }
    for (uint32_t l = 0; l < toy_.layers; ++l) {
      commsched_attention_layer_t layer = commsched_attention_layer_init();
      Require(commsched_model_add_module(model_.get(), names[l].c_str(), 1, 1,
                                         &layer.module));
      const uint32_t first = l * kToyParameters;
      norms_.push_back(first + kNorm);
      layer.qkv_weight = first + kQkvW;
      layer.qkv_bias = first + kQkvB;
      layer.out_weight = first + kOutW;
      layer.out_bias = first + kOutB;
      layer.name = names[l].c_str();
      layers.push_back(layer);
    }
    for (uint32_t l = 0; l < toy_.layers; ++l) {
      layers[l].input_parameters = &norms_[l];
      layers[l].num_input_parameters = 1;
      layers[l].input_gradients = &norms_[l];
      layers[l].num_input_gradients = 1;
      for (uint32_t p = 0; p < kToyParameters; ++p) {
        const uint64_t count = toy_.CountOf(p);
        const std::string name = names[l] + "." + std::to_string(p);
        uint32_t id = 0;
        Require(AddParameter(model_.get(), l, name.c_str(), &count, 1, &id));
      }
      // All but the last layer's: it is still there when its backward begins.
      if (toy_.recompute && l + 1 < toy_.layers) {
        Require(commsched_model_recompute(model_.get(), l, l));
      }
    }
    CreateAttention(rank);
    Require(commsched_attention_register(attention_, model_.get(), "sp",
                                         sequence_group_, layers.data(),
                                         layers.size()));
  }

  std::string Find(uint32_t layer) {
    for (uint32_t p = 0; p < kToyParameters; ++p) {
      RETURN_MESSAGE_IF_ERROR(Message(FloatAddress(
          engine_, layer * kToyParameters + p, &values_[p], &gradients_[p])));
    }
    return "";
  }

  std::string RunAttention(uint32_t layer, bool backward) {
    commsched_attention_block_t block = {};
    block.residual = rows_.streams[layer].data();
    block.input = rows_.normed[layer].data();
    block.output = rows_.streams[layer + 1].data();
    block.d_output = rows_.d_stream.data();
    block.d_input = rows_.d_normed.data();
    block.qkv_weight = values_[kQkvW];
    block.qkv_bias = values_[kQkvB];
    block.out_weight = values_[kOutW];
    block.out_bias = values_[kOutB];
    block.d_qkv_weight = gradients_[kQkvW];
    block.d_qkv_bias = gradients_[kQkvB];
    block.d_out_weight = gradients_[kOutW];
    block.d_out_bias = gradients_[kOutB];
    return Message(commsched_attention_run(attention_, engine_, layer, backward,
                                           /*micro_batch=*/0, &block));
  }

  std::string Forward(uint32_t layer,
                      commsched_pass_kind_t kind = COMMSCHED_FORWARD) {
    RETURN_MESSAGE_IF_ERROR(Message(PassBegin(engine_, kind, layer, 0)));
    RETURN_MESSAGE_IF_ERROR(Find(layer));
    rows_.Norm(layer, values_[kNorm]);
    RETURN_MESSAGE_IF_ERROR(RunAttention(layer, /*backward=*/false));
    return Message(PassEnd(engine_, kind, layer, 0));
  }

  std::string Backward(uint32_t layer) {
    if (toy_.recompute && layer + 1 < toy_.layers) {
      RETURN_MESSAGE_IF_ERROR(Forward(layer, COMMSCHED_RECOMPUTE));
    }
    RETURN_MESSAGE_IF_ERROR(Message(BackwardBegin(engine_, layer, 0)));
    RETURN_MESSAGE_IF_ERROR(Find(layer));
    completed_.clear();
    RETURN_MESSAGE_IF_ERROR(RunAttention(layer, /*backward=*/true));
    return Message(BackwardEnd(engine_, layer, 0));
  }

  std::string Step(double *out_loss) {
    RETURN_MESSAGE_IF_ERROR(
        Message(commsched_engine_step_begin(engine_, nullptr)));
    for (uint32_t l = 0; l < toy_.layers; ++l) {
      RETURN_MESSAGE_IF_ERROR(Forward(l));
    }
    *out_loss = rows_.Loss();
    for (auto l = static_cast<uint32_t>(toy_.layers); l-- > 0;) {
      RETURN_MESSAGE_IF_ERROR(Backward(l));
    }
    RETURN_MESSAGE_IF_ERROR(Message(UpdateWith(engine_, kRate)));
    return Message(commsched_engine_step_end(engine_));
  }

  // Within an evaluation, in which attention exchanges and computes nothing.
  std::string ReadWeights(std::vector<std::vector<float>> *out) {
    RETURN_MESSAGE_IF_ERROR(
        Message(commsched_engine_evaluation_begin(engine_)));
    for (uint32_t l = 0; l < toy_.layers; ++l) {
      RETURN_MESSAGE_IF_ERROR(Message(ForwardBegin(engine_, l, 0)));
      for (uint32_t p = 0; p < kToyParameters; ++p) {
        std::vector<float> &values = out->emplace_back(toy_.CountOf(p));
        RETURN_MESSAGE_IF_ERROR(Message(commsched_engine_get_parameter(
            engine_, l * kToyParameters + p, values.data(), values.size())));
      }
      RETURN_MESSAGE_IF_ERROR(Message(commsched_attention_run(
          attention_, engine_, l, /*backward=*/0, 0, nullptr)));
      RETURN_MESSAGE_IF_ERROR(Message(ForwardEnd(engine_, l, 0)));
    }
    return Message(commsched_engine_evaluation_end(engine_));
  }

  const AttentionToy toy_;
  ToyRows rows_;
  void *memory_ = nullptr;
  commsched_context_t *context_ = nullptr;
  commsched_group_t *group_ = nullptr;
  commsched_group_t *sequence_group_ = nullptr;
  const ModelHandle model_ = NewModel();
  commsched_engine_t *engine_ = nullptr;
  commsched_attention_t *attention_ = nullptr;
  std::vector<commsched_parameter_id_t> norms_;
  std::vector<commsched_parameter_id_t> completed_;
  // Of the layer at hand.
  const float *values_[kToyParameters] = {};
  float *gradients_[kToyParameters] = {};
};

// A matrix with packed or strided rows, for products.
struct Strided {
  const float *data;
  uint64_t stride;
  bool transposed = false;
};

// out (rows, cols) += a b, the sum over `inner`.
void AddProduct(uint64_t rows, uint64_t cols, uint64_t inner, const Strided &a,
                const Strided &b, float *out, uint64_t out_stride) {
  commsched_product_t args = {};
  args.a = a.data;
  args.b = b.data;
  args.out = out;
  args.rows = rows;
  args.cols = cols;
  args.inner = inner;
  args.a_stride = a.stride;
  args.b_stride = b.stride;
  args.out_stride = out_stride;
  args.a_transposed = a.transposed ? 1 : 0;
  args.b_transposed = b.transposed ? 1 : 0;
  args.accumulate = 1;
  (void)PlainProduct(nullptr, &args);
}

// One rank with whole sequences.
class WholeToy {
 public:
  explicit WholeToy(const AttentionToy &toy)
      : toy_(toy), rows_(toy, 0, toy.seq), layers_(toy.layers) {
    for (uint32_t p = 0; p < toy.layers * kToyParameters; ++p) {
      weights_.emplace_back(toy.CountOf(p % kToyParameters));
      for (uint64_t i = 0; i < weights_[p].size(); ++i) {
        weights_[p][i] = InitialWeight(p, i);
      }
    }
  }

  double Step() {
    gradients_ = weights_;
    for (auto &each : gradients_) std::fill(each.begin(), each.end(), 0.0f);
    for (uint32_t l = 0; l < toy_.layers; ++l) Forward(l);
    const double loss = rows_.Loss();
    for (auto l = static_cast<uint32_t>(toy_.layers); l-- > 0;) Backward(l);
    for (size_t p = 0; p < weights_.size(); ++p) {
      for (size_t i = 0; i < weights_[p].size(); ++i) {
        weights_[p][i] -= kRate * gradients_[p][i];
      }
    }
    return loss;
  }

  const std::vector<std::vector<float>> &weights() const { return weights_; }

 private:
  // Queries, keys and values, or their gradients; and the context.
  struct Layer {
    std::vector<float> parts[3];
    std::vector<float> context, kept;
  };

  uint64_t ChannelsOf(int part) const {
    return (part == 0 ? toy_.heads : toy_.num_kv_heads()) * toy_.head_size;
  }
  // The first column of qkv_weight that makes a part.
  uint64_t ColumnOf(int part) const {
    return part == 0 ? 0 : ChannelsOf(0) + (part == 2 ? ChannelsOf(1) : 0);
  }
  const float *W(uint32_t layer, uint32_t p) const {
    return weights_[layer * kToyParameters + p].data();
  }
  float *D(uint32_t layer, uint32_t p) {
    return gradients_[layer * kToyParameters + p].data();
  }
  Layer NewLayer() const {
    Layer layer;
    for (int part = 0; part < 3; ++part) {
      layer.parts[part].resize(rows_.rows * ChannelsOf(part));
    }
    layer.context.resize(rows_.rows * ChannelsOf(0));
    layer.kept.resize(toy_.batch * toy_.heads * toy_.seq * toy_.seq);
    return layer;
  }

  // body(head, offset in what has queries, offset in what has keys)
  template <typename Body>
  void ForEachHead(Layer &layer, Body &&body) const {
    const uint64_t size = toy_.head_size;
    const uint64_t group = toy_.heads / toy_.num_kv_heads();
    for (uint64_t b = 0; b < toy_.batch; ++b) {
      for (uint64_t h = 0; h < toy_.heads; ++h) {
        const uint64_t q = b * ChannelsOf(0) + h * size;
        const uint64_t k = b * ChannelsOf(1) + h / group * size;
        commsched_attention_head_t head = {};
        head.seq = toy_.seq;
        head.head_size = size;
        head.q_stride = toy_.batch * ChannelsOf(0);
        head.kv_stride = toy_.batch * ChannelsOf(1);
        head.q = &layer.parts[0][q];
        head.k = &layer.parts[1][k];
        head.v = &layer.parts[2][k];
        head.kept = &layer.kept[(b * toy_.heads + h) * toy_.seq * toy_.seq];
        head.accumulate = h % group != 0;
        body(head, q, k);
      }
    }
  }

  void Forward(uint32_t l) {
    Layer &layer = layers_[l] = NewLayer();
    const uint64_t w = toy_.width;
    rows_.Norm(l, W(l, kNorm));
    for (int part = 0; part < 3; ++part) {
      float *out = layer.parts[part].data();
      const uint64_t c = ChannelsOf(part);
      for (uint64_t i = 0; i < rows_.rows * c; ++i) {
        out[i] = W(l, kQkvB)[ColumnOf(part) + i % c];
      }
      AddProduct(rows_.rows, c, w, {rows_.normed[l].data(), w},
                 {W(l, kQkvW) + ColumnOf(part), toy_.qkv_channels()}, out, c);
    }
    ForEachHead(layer,
                [&](commsched_attention_head_t &head, uint64_t q, uint64_t) {
                  head.y = &layer.context[q];
                  (void)PlainForward(nullptr, &head);
                });
    std::vector<float> &output = rows_.streams[l + 1];
    for (uint64_t i = 0; i < output.size(); ++i) {
      output[i] = rows_.streams[l][i] + W(l, kOutB)[i % w];
    }
    const uint64_t c = ChannelsOf(0);
    AddProduct(rows_.rows, w, c, {layer.context.data(), c}, {W(l, kOutW), w},
               output.data(), w);
  }

  void Backward(uint32_t l) {
    Layer &layer = layers_[l];
    Layer d = NewLayer();
    const uint64_t w = toy_.width;
    const uint64_t c = ChannelsOf(0);
    const float *dy = rows_.d_stream.data();
    for (uint64_t i = 0; i < rows_.rows * w; ++i) D(l, kOutB)[i % w] += dy[i];
    AddProduct(c, w, rows_.rows, {layer.context.data(), c, true}, {dy, w},
               D(l, kOutW), w);
    AddProduct(rows_.rows, c, w, {dy, w}, {W(l, kOutW), w, true},
               d.context.data(), c);
    std::vector<float> scratch(toy_.seq * toy_.seq);
    ForEachHead(layer,
                [&](commsched_attention_head_t &head, uint64_t q, uint64_t k) {
                  head.dy = &d.context[q];
                  head.dq = &d.parts[0][q];
                  head.dk = &d.parts[1][k];
                  head.dv = &d.parts[2][k];
                  head.scratch = scratch.data();
                  (void)PlainBackwardValue(nullptr, &head);
                  (void)PlainBackwardQueryKey(nullptr, &head);
                });
    std::fill(rows_.d_normed.begin(), rows_.d_normed.end(), 0.0f);
    for (int part = 0; part < 3; ++part) {
      const uint64_t n = ChannelsOf(part);
      const uint64_t first = ColumnOf(part);
      const float *d_part = d.parts[part].data();
      for (uint64_t i = 0; i < rows_.rows * n; ++i) {
        D(l, kQkvB)[first + i % n] += d_part[i];
      }
      AddProduct(w, n, rows_.rows, {rows_.normed[l].data(), w, true},
                 {d_part, n}, D(l, kQkvW) + first, toy_.qkv_channels());
      AddProduct(rows_.rows, w, n, {d_part, n},
                 {W(l, kQkvW) + first, toy_.qkv_channels(), true},
                 rows_.d_normed.data(), w);
    }
    rows_.NormBackward(l, W(l, kNorm), D(l, kNorm));
  }

  const AttentionToy toy_;
  ToyRows rows_;
  std::vector<Layer> layers_;
  std::vector<std::vector<float>> weights_, gradients_;  // By parameter.
};

}  // namespace

uint64_t AttentionToy::CountOf(uint32_t p) const {
  const uint64_t counts[kToyParameters] = {width, width * qkv_channels(),
                                           qkv_channels(),
                                           heads * head_size * width, width};
  return counts[p];
}

commsched_attention_kernels_t PlainAttentionKernels() {
  commsched_attention_kernels_t kernels = commsched_attention_kernels_init();
  kernels.product = PlainProduct;
  kernels.head_forward = PlainForward;
  kernels.head_backward_value = PlainBackwardValue;
  kernels.head_backward_query_key = PlainBackwardQueryKey;
  return kernels;
}

AttentionTraining TrainShared(const AttentionToy &toy) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = toy.ranks;
  commsched_world_t *world = nullptr;
  Require(commsched_world_create_inproc(&desc, &world));
  std::vector<AttentionTraining> trained(static_cast<size_t>(toy.ranks));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < toy.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      AttentionTraining &mine = trained[static_cast<size_t>(rank)];
      SharedRank each(toy, world, rank);
      mine.error = each.Train(&mine);
      // So that no other rank waits for one that has given up.
      if (!mine.error.empty()) each.Abort();
    });
  }
  for (std::thread &thread : threads) thread.join();
  commsched_world_destroy(world);
  AttentionTraining result = trained[0];
  for (const AttentionTraining &each : trained) {
    if (result.error.empty()) result.error = each.error;
    if (!result.error.empty()) return result;
  }
  for (size_t step = 0; step < result.losses.size(); ++step) {
    result.losses[step] = 0;
    for (const AttentionTraining &each : trained) {
      result.losses[step] += each.losses[step] / toy.ranks;
    }
  }
  return result;
}

AttentionTraining TrainWhole(const AttentionToy &toy) {
  WholeToy whole(toy);
  AttentionTraining trained;
  for (uint32_t step = 0; step < toy.steps; ++step) {
    trained.losses.push_back(whole.Step());
  }
  trained.weights = whole.weights();
  return trained;
}

}  // namespace commsched::engine
