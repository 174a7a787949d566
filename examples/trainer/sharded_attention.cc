#include "examples/trainer/sharded_attention.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/trainer/architecture.h"
#include "examples/trainer/kernels.h"
#include "examples/trainer/matmul.h"

namespace commsched::trainer {
namespace {

using Kind = ShardedStep::Kind;

// d_bias[c] += sum over rows of d[r, c], rows a stride apart.
void AddStridedColumnSums(const float* d, int64_t rows, int64_t cols,
                          int64_t stride, float* d_bias) {
  for (int64_t r = 0; r < rows; ++r) AddTo(d + r * stride, cols, d_bias);
}

// Buffers of a layer.
constexpr size_t kLayerBuffers = 4;

// The last that lists a gradient completes it.
void FindCompletions(std::vector<ShardedStep>* steps) {
  std::vector<int> seen;
  for (auto step = steps->rbegin(); step != steps->rend(); ++step) {
    for (int gradient : step->gradients) {
      if (std::find(seen.begin(), seen.end(), gradient) != seen.end()) continue;
      seen.push_back(gradient);
      step->completes.push_back(gradient);
    }
  }
}

}  // namespace

ShardedAttention::ShardedAttention(const GptConfig& config, int64_t batch,
                                   int64_t seq,
                                   const ActivationOptions& options)
    : config_(config),
      batch_(batch),
      seq_(seq),
      shard_(options.shard),
      format_(options.exchanged),
      recompute_(options.recompute),
      split_(config, options.shard) {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    q_heads += split_.most_q(c);
    kv_heads += split_.most_kv(c);
    my_heads_ += split_.share(c, shard_.rank).q.count;
  }
  const int64_t q_tokens = rows() * token_stride(true);
  const int64_t kv_tokens = rows() * token_stride(false);
  const int64_t q_rows = all_rows() * q_heads * config.head_size();
  const int64_t kv_rows = all_rows() * kv_heads * config.head_size();
  q_out_ = AddBuffer("q_out", q_tokens);
  k_out_ = AddBuffer("k_out", kv_tokens);
  v_out_ = AddBuffer("v_out", kv_tokens);
  o_out_ = AddBuffer("o_out", q_rows);
  do_out_ = AddBuffer("do_out", q_tokens);
  do_in_ = AddBuffer("do_in", q_rows);
  dq_out_ = AddBuffer("dq_out", q_rows);
  dk_out_ = AddBuffer("dk_out", kv_rows);
  dv_out_ = AddBuffer("dv_out", kv_rows);
  dq_in_ = AddBuffer("dq_in", q_tokens);
  dk_in_ = AddBuffer("dk_in", kv_tokens);
  dv_in_ = AddBuffer("dv_in", kv_tokens);
  first_layer_buffer_ = buffers_.size();
  layers_.resize(static_cast<size_t>(config.layers));
  for (int64_t l = 0; l < config.layers; ++l) {
    Layer& layer = layers_[static_cast<size_t>(l)];
    if (recompute_ && l > 0) {
      layer = layers_[0];
      continue;
    }
    const std::string prefix =
        recompute_ ? "" : absl::StrCat("h.", l, ".attn.");
    layer.q = AddBuffer(prefix + "q", q_rows);
    layer.k = AddBuffer(prefix + "k", kv_rows);
    layer.v = AddBuffer(prefix + "v", kv_rows);
    layer.o = AddBuffer(prefix + "o", q_tokens);
    AddForward(l);
    AddBackward(l);
  }
}

int ShardedAttention::AddBuffer(std::string name, int64_t count) {
  buffers_.push_back({.name = std::move(name), .count = count});
  return static_cast<int>(buffers_.size()) - 1;
}

void ShardedAttention::Carve(Carver& carver) {
  const bool narrow = format_.narrow != nullptr;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    Travelling& buffer = buffers_[i];
    if (narrow) {
      buffer.narrow = reinterpret_cast<uint16_t*>(
          carver.Take((buffer.count + 1) / 2));  // Two in the place of one.
    }
    // Widened for an op and no longer, so that the layers share it.
    const bool shares = narrow && i >= first_layer_buffer_ + kLayerBuffers;
    buffer.data =
        shares ? buffers_[i - kLayerBuffers].data : carver.Take(buffer.count);
  }
  for (Layer& layer : layers_) {
    layer.probabilities = recompute_ && &layer != &layers_[0]
                              ? layers_[0].probabilities
                              : carver.Take(batch_ * my_heads_ * seq_ * seq_);
  }
  scratch_ = carver.Take(AttentionScratchCount(seq_));
}

// ---- What there is to do ----------------------------------------------------

TravellingRegion ShardedAttention::TokenColumns(int buffer, int64_t chunk,
                                                bool q) const {
  const HeadSplit::Range columns =
      q ? split_.q_columns(chunk) : split_.kv_columns(chunk);
  return {.buffer = buffer,
          .offset = columns.first * config_.head_size(),
          .rows = rows(),
          .columns = columns.count * config_.head_size(),
          .stride = token_stride(q)};
}

TravellingRegion ShardedAttention::HeadRows(int buffer, int64_t chunk,
                                            bool q) const {
  int64_t before = 0;
  for (int64_t c = 0; c < chunk; ++c) before += most(c, q);
  const int64_t head = all_rows() * config_.head_size();
  return {.buffer = buffer,
          .offset = before * head,
          .rows = 1,
          .columns = most(chunk, q) * head,
          .stride = most(chunk, q) * head};
}

TravellingRegion ShardedAttention::Whole(int buffer) const {
  const int64_t count = buffers_[static_cast<size_t>(buffer)].count;
  return {.buffer = buffer, .columns = count, .stride = count};
}

ShardedStep ShardedAttention::Op(Kind kind, const char* name,
                                 int64_t chunk) const {
  ShardedStep step;
  step.kind = kind;
  step.chunk = chunk;
  step.name = name;
  return step;
}

// Row s of the counts is what rank s sends.
ShardedStep ShardedAttention::ToHeads(const char* name, int64_t chunk, int from,
                                      int to, bool q) const {
  ShardedStep step = Op(Kind::kExchange, name, chunk);
  absl::StrAppend(&step.name, chunk);
  step.input = TokenColumns(from, chunk, q);
  step.output = HeadRows(to, chunk, q);
  for (int64_t s = 0; s < shard_.ranks; ++s) {
    for (int64_t p = 0; p < shard_.ranks; ++p) {
      const HeadSplit::Share& share = split_.share(chunk, p);
      step.counts.push_back(static_cast<uint64_t>(
          rows() * config_.head_size() * (q ? share.q.count : share.kv.count)));
    }
  }
  return step;
}

ShardedStep ShardedAttention::ToTokens(const char* name, int64_t chunk,
                                       int from, int to, bool q) const {
  ShardedStep step = ToHeads(name, chunk, to, from, q);
  std::swap(step.input, step.output);
  const auto n = static_cast<size_t>(shard_.ranks);
  for (size_t s = 0; s < n; ++s) {
    for (size_t p = 0; p < s; ++p) {
      std::swap(step.counts[s * n + p], step.counts[p * n + s]);
    }
  }
  return step;
}

double ShardedAttention::GemmFlops(int64_t chunk, bool q) const {
  return 2.0 * static_cast<double>(rows() * config_.channels) *
         static_cast<double>(TokenColumns(0, chunk, q).columns);
}

// One product of queries with keys, or of these with values; the causal half.
// Of the rank that has most, so that all say the same.
double ShardedAttention::AttentionFlops(int64_t chunk) const {
  return static_cast<double>(batch_ * split_.most_q(chunk)) *
         static_cast<double>(seq_ * (seq_ + 1)) *
         static_cast<double>(config_.head_size());
}

void ShardedAttention::AddForward(int64_t l) {
  Layer& layer = layers_[static_cast<size_t>(l)];
  std::vector<ShardedStep>& steps = layer.steps[0];
  struct Projection {
    Kind kind;
    const char* name;
    const char* exchange;
    int from;
    int to;
    bool q;
  };
  const Projection projections[] = {
      {Kind::kQuery, "q", "a_q", q_out_, layer.q, true},
      {Kind::kKey, "k", "a_k", k_out_, layer.k, false},
      {Kind::kValue, "v", "a_v", v_out_, layer.v, false}};
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    for (const Projection& p : projections) {
      ShardedStep op = Op(p.kind, p.name, c);
      absl::StrAppend(&op.name, c);
      op.writes = {TokenColumns(p.from, c, p.q)};
      op.parameters = {kFirstWeight, kFirstBias};
      op.flops = GemmFlops(c, p.q);
      steps.push_back(std::move(op));
      steps.push_back(ToHeads(p.exchange, c, p.from, p.to, p.q));
    }
  }
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    ShardedStep op = Op(Kind::kAttend, "attend", c);
    absl::StrAppend(&op.name, c);
    op.reads = {HeadRows(layer.q, c, true), HeadRows(layer.k, c, false),
                HeadRows(layer.v, c, false)};
    op.writes = {HeadRows(o_out_, c, true)};
    op.flops = 2 * AttentionFlops(c);
    steps.push_back(std::move(op));
    steps.push_back(ToTokens("a_o", c, o_out_, layer.o, true));
  }
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    ShardedStep op = Op(Kind::kOut, "out", c);
    absl::StrAppend(&op.name, c);
    op.reads = {TokenColumns(layer.o, c, true)};
    op.parameters = {kProjectionWeight, kProjectionBias};
    op.flops = GemmFlops(c, true);
    steps.push_back(std::move(op));
  }
}

void ShardedAttention::AddBackward(int64_t l) {
  Layer& layer = layers_[static_cast<size_t>(l)];
  std::vector<ShardedStep>& steps = layer.steps[1];
  const auto add = [&](Kind kind, const char* name) -> ShardedStep& {
    return steps.emplace_back(Op(kind, name, 0));
  };
  const auto add_chunk = [&](Kind kind, const char* name,
                             int64_t chunk) -> ShardedStep& {
    ShardedStep& step = steps.emplace_back(Op(kind, name, chunk));
    absl::StrAppend(&step.name, chunk);
    return step;
  };
  double q_flops = 0;
  double kv_flops = 0;
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    q_flops += GemmFlops(c, true);
    kv_flops += GemmFlops(c, false);
    ShardedStep& op = add_chunk(Kind::kContext, "context", c);
    op.writes = {TokenColumns(do_out_, c, true)};
    op.parameters = {kProjectionWeight};
    op.flops = GemmFlops(c, true);
    steps.push_back(ToHeads("a_do", c, do_out_, do_in_, true));
  }
  ShardedStep& weight = add(Kind::kOutWeight, "out_weight");
  weight.reads = {Whole(layer.o)};
  weight.gradients = {kProjectionWeight, kProjectionBias};
  weight.flops = q_flops;
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    ShardedStep& value = add_chunk(Kind::kValueHeads, "v_heads", c);
    value.reads = {HeadRows(do_in_, c, true)};
    value.writes = {HeadRows(dv_out_, c, false)};
    value.flops = AttentionFlops(c);
    steps.push_back(ToTokens("a_dv", c, dv_out_, dv_in_, false));
    ShardedStep& rest = add_chunk(Kind::kQueryKeyHeads, "qk_heads", c);
    rest.reads = {HeadRows(do_in_, c, true), HeadRows(layer.q, c, true),
                  HeadRows(layer.k, c, false), HeadRows(layer.v, c, false)};
    rest.writes = {HeadRows(dq_out_, c, true), HeadRows(dk_out_, c, false)};
    rest.flops = 3 * AttentionFlops(c);
    steps.push_back(ToTokens("a_dk", c, dk_out_, dk_in_, false));
    steps.push_back(ToTokens("a_dq", c, dq_out_, dq_in_, true));
  }
  struct Projection {
    Kind input;
    const char* input_name;
    Kind weight;
    const char* weight_name;
    int from;
    double flops;
  };
  const Projection projections[] = {
      {Kind::kValueInput, "v_input", Kind::kValueWeight, "v_weight", dv_in_,
       kv_flops},
      {Kind::kKeyInput, "k_input", Kind::kKeyWeight, "k_weight", dk_in_,
       kv_flops},
      {Kind::kQueryInput, "q_input", Kind::kQueryWeight, "q_weight", dq_in_,
       q_flops}};
  for (const Projection& p : projections) {
    ShardedStep& input = add(p.input, p.input_name);
    input.reads = {Whole(p.from)};
    input.parameters = {kFirstWeight};
    input.flops = p.flops;
    if (p.input == Kind::kQueryInput) {  // The norm's backward follows.
      input.parameters.push_back(kNormWeight);
      input.gradients = {kNormWeight, kNormBias};
    }
    ShardedStep& each = add(p.weight, p.weight_name);
    each.reads = {Whole(p.from)};
    each.gradients = {kFirstWeight, kFirstBias};
    each.flops = p.flops;
  }
  FindCompletions(&steps);
}

// ---- Doing it ---------------------------------------------------------------

void ShardedAttention::Run(int64_t l, const ShardedStep& step,
                           const Block& block) const {
  if (format_.narrow == nullptr) return Compute(l, step, block);
  for (const TravellingRegion& region : step.reads) Widen(region);
  Compute(l, step, block);
  for (const TravellingRegion& region : step.writes) Narrow(region);
}

void ShardedAttention::Widen(const TravellingRegion& region) const {
  const Travelling& buffer = buffers_[static_cast<size_t>(region.buffer)];
  for (int64_t r = 0; r < region.rows; ++r) {
    const int64_t at = region.offset + r * region.stride;
    format_.widen(buffer.narrow + at, region.columns, buffer.data + at);
  }
}

void ShardedAttention::Narrow(const TravellingRegion& region) const {
  const Travelling& buffer = buffers_[static_cast<size_t>(region.buffer)];
  for (int64_t r = 0; r < region.rows; ++r) {
    const int64_t at = region.offset + r * region.stride;
    format_.narrow(buffer.data + at, region.columns, buffer.narrow + at);
  }
}

void ShardedAttention::Compute(int64_t l, const ShardedStep& step,
                               const Block& block) const {
  const Layer& layer = layers_[static_cast<size_t>(l)];
  const int64_t c = step.chunk;
  switch (step.kind) {
    case Kind::kExchange:
      return;
    case Kind::kQuery:
      return Project(Part::kQuery, c, q_out_, block);
    case Kind::kKey:
      return Project(Part::kKey, c, k_out_, block);
    case Kind::kValue:
      return Project(Part::kValue, c, v_out_, block);
    case Kind::kAttend:
      return Attend(layer, c);
    case Kind::kOut:
      return WayOut(layer, c, block);
    case Kind::kContext:
      return Context(c, block);
    case Kind::kOutWeight:
      return OutWeight(layer, block);
    case Kind::kValueHeads:
      return ValueHeads(layer, c);
    case Kind::kQueryKeyHeads:
      return QueryKeyHeads(layer, c);
    case Kind::kValueInput:
      return AddInput(Part::kValue, dv_in_, /*accumulate=*/false, block);
    case Kind::kValueWeight:
      return AddWeight(Part::kValue, dv_in_, block);
    case Kind::kKeyInput:
      return AddInput(Part::kKey, dk_in_, /*accumulate=*/true, block);
    case Kind::kKeyWeight:
      return AddWeight(Part::kKey, dk_in_, block);
    case Kind::kQueryInput:
      return AddInput(Part::kQuery, dq_in_, /*accumulate=*/true, block);
    case Kind::kQueryWeight:
      return AddWeight(Part::kQuery, dq_in_, block);
  }
}

int64_t ShardedAttention::weight_begin(Part part) const {
  if (part == Part::kQuery) return 0;
  return config_.channels + (part == Part::kValue ? config_.kv_channels() : 0);
}

// Queries are sent in the order of the weight's columns. So are keys and
// values, but for heads that are sent twice, which begin a new run.
std::vector<ShardedAttention::Columns> ShardedAttention::ColumnsOf(
    Part part, int64_t chunk) const {
  const int64_t size = config_.head_size();
  if (part == Part::kQuery) {
    const HeadSplit::Range q = split_.q_columns(chunk);
    return {{q.first * size, q.first * size, q.count * size}};
  }
  std::vector<Columns> runs;
  for (int64_t r = 0; r < shard_.ranks; ++r) {
    const HeadSplit::Share& share = split_.share(chunk, r);
    const int64_t weight = weight_begin(part) + share.kv.first * size;
    if (!runs.empty() && runs.back().weight + runs.back().count == weight) {
      runs.back().count += share.kv.count * size;
    } else {
      runs.push_back({weight, share.kv_column * size, share.kv.count * size});
    }
  }
  return runs;
}

std::vector<ShardedAttention::Columns> ShardedAttention::AllColumnsOf(
    Part part) const {
  std::vector<Columns> all;
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    for (const Columns& run : ColumnsOf(part, c)) {
      if (!all.empty() && all.back().weight + all.back().count == run.weight) {
        all.back().count += run.count;
      } else {
        all.push_back(run);
      }
    }
  }
  return all;
}

void ShardedAttention::Project(Part part, int64_t chunk, int to,
                               const Block& block) const {
  const int64_t stride = token_stride(part == Part::kQuery);
  for (const Columns& run : ColumnsOf(part, chunk)) {
    float* out = data(to) + run.sent;
    Matmul(
        {rows(), run.count, config_.channels}, {block.normed, config_.channels},
        {block.parameters[kFirstWeight] + run.weight, config_.qkv_channels()},
        {out, stride});
    for (int64_t r = 0; r < rows(); ++r) {
      AddBias(block.parameters[kFirstBias] + run.weight, 1, run.count,
              out + r * stride);
    }
  }
}

ShardedAttention::Mine ShardedAttention::MineOf(int64_t chunk) const {
  Mine mine = {};
  mine.share = split_.share(chunk, shard_.rank);
  mine.q_heads = mine.share.q.count;
  mine.kv_heads = mine.share.kv.count;
  mine.q_offset = HeadRows(0, chunk, true).offset;
  mine.kv_offset = HeadRows(0, chunk, false).offset;
  for (int64_t c = 0; c < chunk; ++c) {
    mine.probabilities += split_.share(c, shard_.rank).q.count;
  }
  mine.probabilities *= batch_ * seq_ * seq_;
  return mine;
}

AttentionHead ShardedAttention::HeadAt(const Layer& layer, const Mine& mine,
                                       int64_t sequence, int64_t head) const {
  const int64_t size = config_.head_size();
  const int64_t kv =
      (mine.share.q.first + head) / split_.group() - mine.share.kv.first;
  const int64_t q = mine.q_offset + (sequence * mine.q_heads + head) * size;
  const int64_t k = mine.kv_offset + (sequence * mine.kv_heads + kv) * size;
  return {.seq = seq_,
          .size = size,
          .q_stride = batch_ * mine.q_heads * size,
          .kv_stride = batch_ * mine.kv_heads * size,
          .y_stride = batch_ * mine.q_heads * size,
          .q = data(layer.q) + q,
          .k = data(layer.k) + k,
          .v = data(layer.v) + k};
}

// body(head, probabilities, offset of the head in what has queries, in what has
// keys, whether its keys have had another head before)
template <typename Body>
void ShardedAttention::ForEachHead(const Layer& layer, int64_t chunk,
                                   Body&& body) const {
  const Mine mine = MineOf(chunk);
  for (int64_t b = 0; b < batch_; ++b) {
    for (int64_t h = 0; h < mine.q_heads; ++h) {
      const AttentionHead head = HeadAt(layer, mine, b, h);
      float* probabilities = layer.probabilities + mine.probabilities +
                             (b * mine.q_heads + h) * seq_ * seq_;
      const bool shares = h > 0 && (mine.share.q.first + h) % split_.group();
      body(head, probabilities, head.q - data(layer.q), head.k - data(layer.k),
           shares);
    }
  }
}

void ShardedAttention::Attend(const Layer& layer, int64_t chunk) const {
  ForEachHead(
      layer, chunk,
      [&](const AttentionHead& head, float* probabilities, int64_t q, int64_t,
          bool) { HeadForward(head, probabilities, data(o_out_) + q); });
}

void ShardedAttention::WayOut(const Layer& layer, int64_t chunk,
                              const Block& block) const {
  const int64_t c = config_.channels;
  if (chunk == 0) {
    CopyWithBias(block.input, block.parameters[kProjectionBias], rows(), c,
                 block.output);
  }
  const TravellingRegion columns = TokenColumns(layer.o, chunk, true);
  Matmul({rows(), c, columns.columns},
         {data(layer.o) + columns.offset, columns.stride},
         {block.parameters[kProjectionWeight] + columns.offset * c, c},
         {block.output, c, /*accumulate=*/true});
}

void ShardedAttention::Context(int64_t chunk, const Block& block) const {
  const int64_t c = config_.channels;
  const TravellingRegion columns = TokenColumns(do_out_, chunk, true);
  Matmul({rows(), columns.columns, c}, {block.d_output, c},
         {block.parameters[kProjectionWeight] + columns.offset * c, c,
          /*transposed=*/true},
         {data(do_out_) + columns.offset, columns.stride});
}

void ShardedAttention::OutWeight(const Layer& layer, const Block& block) const {
  const int64_t c = config_.channels;
  AddColumnSums(block.d_output, rows(), c, block.gradients[kProjectionBias]);
  LinearBackwardWeight({rows(), c, c}, data(layer.o), block.d_output,
                       block.gradients[kProjectionWeight]);
}

void ShardedAttention::ValueHeads(const Layer& layer, int64_t chunk) const {
  ForEachHead(layer, chunk,
              [&](const AttentionHead& head, float* probabilities, int64_t q,
                  int64_t kv, bool accumulate) {
                HeadBackwardValue(head, probabilities, data(do_in_) + q,
                                  accumulate, data(dv_out_) + kv);
              });
}

void ShardedAttention::QueryKeyHeads(const Layer& layer, int64_t chunk) const {
  ForEachHead(layer, chunk,
              [&](const AttentionHead& head, float* probabilities, int64_t q,
                  int64_t kv, bool accumulate) {
                HeadBackwardQueryKey(head, probabilities, data(do_in_) + q,
                                     accumulate, scratch_, data(dq_out_) + q,
                                     data(dk_out_) + kv);
              });
}

void ShardedAttention::AddInput(Part part, int from, bool accumulate,
                                const Block& block) const {
  const int64_t c = config_.channels;
  const int64_t stride = token_stride(part == Part::kQuery);
  for (const Columns& run : AllColumnsOf(part)) {
    Matmul({rows(), c, run.count}, {data(from) + run.sent, stride},
           {block.parameters[kFirstWeight] + run.weight, config_.qkv_channels(),
            /*transposed=*/true},
           {block.d_normed, c, accumulate});
    accumulate = true;
  }
}

void ShardedAttention::AddWeight(Part part, int from,
                                 const Block& block) const {
  const int64_t c = config_.channels;
  const int64_t stride = token_stride(part == Part::kQuery);
  for (const Columns& run : AllColumnsOf(part)) {
    const float* d = data(from) + run.sent;
    AddStridedColumnSums(d, rows(), run.count, stride,
                         block.gradients[kFirstBias] + run.weight);
    Matmul({c, run.count, rows()}, {block.normed, c, /*transposed=*/true},
           {d, stride},
           {block.gradients[kFirstWeight] + run.weight, config_.qkv_channels(),
            /*accumulate=*/true});
  }
}

}  // namespace commsched::trainer
