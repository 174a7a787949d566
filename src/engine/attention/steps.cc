#include "engine/attention/steps.h"

#include <utility>

namespace commsched::engine {
namespace {

AttentionStep StepOf(AttentionStep::Kind kind, std::string name,
                     int64_t chunk) {
  AttentionStep step;
  step.kind = kind;
  step.chunk = chunk;
  step.name = std::move(name);
  return step;
}

AttentionStep ChunkStep(AttentionStep::Kind kind, const char* name,
                        int64_t chunk) {
  return StepOf(kind, name + std::to_string(chunk), chunk);
}

}  // namespace

AttentionSteps::AttentionSteps(const AttentionShape& shape)
    : shape_(shape), split_(shape) {
  AddProjections();
  AddAttention();
  AddWayOut();
  AddContexts();
  AddHeads();
  AddProjectionGradients();
}

int64_t AttentionSteps::CountOf(Buffer buffer) const {
  int64_t q_heads = 0;
  int64_t kv_heads = 0;
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    q_heads += split_.most_q(c);
    kv_heads += split_.most_kv(c);
  }
  switch (buffer) {
    case Buffer::kQOut:
    case Buffer::kDoOut:
    case Buffer::kDqIn:
    case Buffer::kO:
      return shape_.rows() * TokenStride(true);
    case Buffer::kKOut:
    case Buffer::kVOut:
    case Buffer::kDkIn:
    case Buffer::kDvIn:
      return shape_.rows() * TokenStride(false);
    case Buffer::kOOut:
    case Buffer::kDoIn:
    case Buffer::kDqOut:
    case Buffer::kQ:
      return shape_.all_rows() * q_heads * shape_.head_size;
    case Buffer::kDkOut:
    case Buffer::kDvOut:
    case Buffer::kK:
    case Buffer::kV:
      return shape_.all_rows() * kv_heads * shape_.head_size;
  }
  return 0;
}

int64_t AttentionSteps::TokenStride(bool q) const {
  return (q ? shape_.heads : split_.kv_sent()) * shape_.head_size;
}

AttentionRegion AttentionSteps::TokenColumns(Buffer buffer, int64_t chunk,
                                             bool q) const {
  const HeadSplit::Range columns =
      q ? split_.q_columns(chunk) : split_.kv_columns(chunk);
  return {.buffer = buffer,
          .offset = columns.first * shape_.head_size,
          .rows = shape_.rows(),
          .columns = columns.count * shape_.head_size,
          .stride = TokenStride(q)};
}

AttentionRegion AttentionSteps::HeadRows(Buffer buffer, int64_t chunk,
                                         bool q) const {
  const auto most = [&](int64_t c) {
    return q ? split_.most_q(c) : split_.most_kv(c);
  };
  int64_t before = 0;
  for (int64_t c = 0; c < chunk; ++c) before += most(c);
  const int64_t head = shape_.all_rows() * shape_.head_size;
  return {.buffer = buffer,
          .offset = before * head,
          .rows = 1,
          .columns = most(chunk) * head,
          .stride = most(chunk) * head};
}

AttentionRegion AttentionSteps::Whole(Buffer buffer) const {
  const int64_t count = CountOf(buffer);
  return {.buffer = buffer, .columns = count, .stride = count};
}

AttentionStep AttentionSteps::ToHeads(const char* name, int64_t chunk,
                                      Buffer from, Buffer to, bool q) const {
  AttentionStep step = ChunkStep(Kind::kExchange, name, chunk);
  step.input = TokenColumns(from, chunk, q);
  step.output = HeadRows(to, chunk, q);
  for (int64_t s = 0; s < shape_.ranks; ++s) {
    for (int64_t p = 0; p < shape_.ranks; ++p) {
      const HeadSplit::Share& share = split_.share(chunk, p);
      step.counts.push_back(
          static_cast<uint64_t>(shape_.rows() * shape_.head_size *
                                (q ? share.q.count : share.kv.count)));
    }
  }
  return step;
}

AttentionStep AttentionSteps::ToTokens(const char* name, int64_t chunk,
                                       Buffer from, Buffer to, bool q) const {
  AttentionStep step = ToHeads(name, chunk, to, from, q);
  std::swap(step.input, step.output);
  const auto n = static_cast<size_t>(shape_.ranks);
  for (size_t s = 0; s < n; ++s) {
    for (size_t p = 0; p < s; ++p) {
      std::swap(step.counts[s * n + p], step.counts[p * n + s]);
    }
  }
  return step;
}

double AttentionSteps::GemmFlops(int64_t chunk, bool q) const {
  return 2.0 * static_cast<double>(shape_.rows() * shape_.width) *
         static_cast<double>(TokenColumns(Buffer::kQOut, chunk, q).columns);
}

// One product of queries with keys, or of these with values; the causal half.
// Of the rank that has most, so that all say the same.
double AttentionSteps::AttentionFlops(int64_t chunk) const {
  return static_cast<double>(shape_.batch * split_.most_q(chunk)) *
         static_cast<double>(shape_.seq * (shape_.seq + 1)) *
         static_cast<double>(shape_.head_size);
}

void AttentionSteps::AddProjections() {
  struct Projection {
    Kind kind;
    const char* name;
    const char* exchange;
    Buffer from;
    Buffer to;
    bool q;
  };
  const Projection projections[] = {
      {Kind::kQuery, "q", "a_q", Buffer::kQOut, Buffer::kQ, true},
      {Kind::kKey, "k", "a_k", Buffer::kKOut, Buffer::kK, false},
      {Kind::kValue, "v", "a_v", Buffer::kVOut, Buffer::kV, false}};
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    for (const Projection& p : projections) {
      AttentionStep op = ChunkStep(p.kind, p.name, c);
      op.writes = {TokenColumns(p.from, c, p.q)};
      op.parameters = {Parameter::kQkvWeight, Parameter::kQkvBias};
      op.flops = GemmFlops(c, p.q);
      forward_.push_back(std::move(op));
      forward_.push_back(ToHeads(p.exchange, c, p.from, p.to, p.q));
    }
  }
}

void AttentionSteps::AddAttention() {
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    AttentionStep op = ChunkStep(Kind::kAttend, "attend", c);
    op.reads = {HeadRows(Buffer::kQ, c, true), HeadRows(Buffer::kK, c, false),
                HeadRows(Buffer::kV, c, false)};
    op.writes = {HeadRows(Buffer::kOOut, c, true)};
    op.flops = 2 * AttentionFlops(c);
    forward_.push_back(std::move(op));
    forward_.push_back(ToTokens("a_o", c, Buffer::kOOut, Buffer::kO, true));
  }
}

void AttentionSteps::AddWayOut() {
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    AttentionStep op = ChunkStep(Kind::kOut, "out", c);
    op.reads = {TokenColumns(Buffer::kO, c, true)};
    op.parameters = {Parameter::kOutWeight, Parameter::kOutBias};
    op.flops = GemmFlops(c, true);
    forward_.push_back(std::move(op));
  }
}

void AttentionSteps::AddContexts() {
  double flops = 0;
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    AttentionStep op = ChunkStep(Kind::kContext, "context", c);
    op.writes = {TokenColumns(Buffer::kDoOut, c, true)};
    op.parameters = {Parameter::kOutWeight};
    op.flops = GemmFlops(c, true);
    flops += op.flops;
    backward_.push_back(std::move(op));
    backward_.push_back(
        ToHeads("a_do", c, Buffer::kDoOut, Buffer::kDoIn, true));
  }
  AttentionStep weight = StepOf(Kind::kOutWeight, "out_weight", 0);
  weight.reads = {Whole(Buffer::kO)};
  weight.gradients = {Parameter::kOutWeight, Parameter::kOutBias};
  weight.flops = flops;
  backward_.push_back(std::move(weight));
}

void AttentionSteps::AddHeads() {
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    AttentionStep value = ChunkStep(Kind::kValueHeads, "v_heads", c);
    value.reads = {HeadRows(Buffer::kDoIn, c, true)};
    value.writes = {HeadRows(Buffer::kDvOut, c, false)};
    value.flops = AttentionFlops(c);
    backward_.push_back(std::move(value));
    backward_.push_back(
        ToTokens("a_dv", c, Buffer::kDvOut, Buffer::kDvIn, false));
    AttentionStep rest = ChunkStep(Kind::kQueryKeyHeads, "qk_heads", c);
    rest.reads = {HeadRows(Buffer::kDoIn, c, true),
                  HeadRows(Buffer::kQ, c, true), HeadRows(Buffer::kK, c, false),
                  HeadRows(Buffer::kV, c, false)};
    rest.writes = {HeadRows(Buffer::kDqOut, c, true),
                   HeadRows(Buffer::kDkOut, c, false)};
    rest.flops = 3 * AttentionFlops(c);
    backward_.push_back(std::move(rest));
    backward_.push_back(
        ToTokens("a_dk", c, Buffer::kDkOut, Buffer::kDkIn, false));
    backward_.push_back(
        ToTokens("a_dq", c, Buffer::kDqOut, Buffer::kDqIn, true));
  }
}

void AttentionSteps::AddProjectionGradients() {
  double q_flops = 0;
  double kv_flops = 0;
  for (int64_t c = 0; c < split_.chunks(); ++c) {
    q_flops += GemmFlops(c, true);
    kv_flops += GemmFlops(c, false);
  }
  struct Projection {
    Kind input;
    const char* input_name;
    Kind weight;
    const char* weight_name;
    Buffer from;
    double flops;
  };
  const Projection projections[] = {
      {Kind::kValueInput, "v_input", Kind::kValueWeight, "v_weight",
       Buffer::kDvIn, kv_flops},
      {Kind::kKeyInput, "k_input", Kind::kKeyWeight, "k_weight", Buffer::kDkIn,
       kv_flops},
      {Kind::kQueryInput, "q_input", Kind::kQueryWeight, "q_weight",
       Buffer::kDqIn, q_flops}};
  for (const Projection& p : projections) {
    AttentionStep input = StepOf(p.input, p.input_name, 0);
    input.reads = {Whole(p.from)};
    input.parameters = {Parameter::kQkvWeight};
    input.flops = p.flops;
    backward_.push_back(std::move(input));
    AttentionStep weight = StepOf(p.weight, p.weight_name, 0);
    weight.reads = {Whole(p.from)};
    weight.gradients = {Parameter::kQkvWeight, Parameter::kQkvBias};
    weight.flops = p.flops;
    backward_.push_back(std::move(weight));
  }
}

}  // namespace commsched::engine
