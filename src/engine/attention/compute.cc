#include "engine/attention/compute.h"

namespace commsched::engine {
namespace {

Status FromKernel(commsched_status_t code) {
  if (code == COMMSCHED_OK) return Status();
  return Status(code, commsched_last_error());
}

// out[i] += x[i]. One by one and in order: the bits do not depend on how many
// are done at a time.
void AddRow(const float* x, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] += x[i];
}

// sums[c] += the sum over rows of d[r, c].
void AddColumns(const float* d, int64_t rows, int64_t columns, int64_t stride,
                float* sums) {
  for (int64_t r = 0; r < rows; ++r) AddRow(d + r * stride, columns, sums);
}

}  // namespace

AttentionCompute::AttentionCompute(const AttentionSteps& steps,
                                   const AttentionMemory& memory,
                                   commsched_dtype_t dtype,
                                   const commsched_attention_kernels_t& kernels)
    : steps_(steps),
      shape_(steps.shape()),
      memory_(memory),
      dtype_(dtype),
      kernels_(kernels),
      conversions_(commsched_engine_cpu_kernels()) {
  for (Part part : {Part::kQuery, Part::kKey, Part::kValue}) {
    std::vector<Runs>& chunks = columns_[static_cast<size_t>(part)];
    for (int64_t c = 0; c < shape_.chunks; ++c) {
      chunks.push_back(ColumnsOf(part, c));
    }
    all_columns_[static_cast<size_t>(part)] = Join(chunks);
  }
}

int64_t AttentionCompute::FirstColumnOf(Part part) const {
  if (part == Part::kQuery) return 0;
  return shape_.q_channels() +
         (part == Part::kValue ? shape_.kv_channels() : 0);
}

// Queries are sent in the order of the weight's columns. So are keys and
// values, but for heads that are sent twice, which begin a new run.
AttentionCompute::Runs AttentionCompute::ColumnsOf(Part part,
                                                   int64_t chunk) const {
  const HeadSplit& split = steps_.split();
  const int64_t size = shape_.head_size;
  if (part == Part::kQuery) {
    const HeadSplit::Range q = split.q_columns(chunk);
    return {{q.first * size, q.first * size, q.count * size}};
  }
  Runs runs;
  for (int64_t r = 0; r < shape_.ranks; ++r) {
    const HeadSplit::Share& share = split.share(chunk, r);
    const int64_t weight = FirstColumnOf(part) + share.kv.first * size;
    if (!runs.empty() && runs.back().weight + runs.back().count == weight) {
      runs.back().count += share.kv.count * size;
    } else {
      runs.push_back({weight, share.kv_column * size, share.kv.count * size});
    }
  }
  return runs;
}

AttentionCompute::Runs AttentionCompute::Join(const std::vector<Runs>& chunks) {
  Runs all;
  for (const Runs& runs : chunks) {
    for (const Columns& run : runs) {
      if (!all.empty() && all.back().weight + all.back().count == run.weight) {
        all.back().count += run.count;
      } else {
        all.push_back(run);
      }
    }
  }
  return all;
}

Status AttentionCompute::Run(int64_t layer, const AttentionStep& step,
                             const Block& block) {
  if (dtype_ == COMMSCHED_F32) return Compute(layer, step, block);
  for (const AttentionRegion& region : step.reads) {
    ENGINE_RETURN_IF_ERROR(Convert(layer, region, /*widen=*/true));
  }
  ENGINE_RETURN_IF_ERROR(Compute(layer, step, block));
  for (const AttentionRegion& region : step.writes) {
    ENGINE_RETURN_IF_ERROR(Convert(layer, region, /*widen=*/false));
  }
  return Status();
}

Status AttentionCompute::Convert(int64_t layer, const AttentionRegion& region,
                                 bool widen) const {
  const AttentionMemory::Piece& piece = memory_.Of(region.buffer, layer);
  const auto count = static_cast<uint64_t>(region.columns);
  const commsched_dtype_t wide = COMMSCHED_F32;
  for (int64_t r = 0; r < region.rows; ++r) {
    const int64_t at = region.offset + r * region.stride;
    float* data = piece.data + at;
    void* sent = static_cast<uint16_t*>(piece.sent) + at;
    ENGINE_RETURN_IF_ERROR(FromKernel(conversions_.convert(
        conversions_.user, commsched_stream_caller(), widen ? data : sent,
        widen ? wide : dtype_, widen ? sent : data, widen ? dtype_ : wide,
        count)));
  }
  return Status();
}

Status AttentionCompute::Compute(int64_t layer, const AttentionStep& step,
                                 const Block& block) {
  const int64_t c = step.chunk;
  switch (step.kind) {
    case Kind::kExchange:
      return Status();
    case Kind::kQuery:
      return Project(Part::kQuery, c, Buffer::kQOut, block);
    case Kind::kKey:
      return Project(Part::kKey, c, Buffer::kKOut, block);
    case Kind::kValue:
      return Project(Part::kValue, c, Buffer::kVOut, block);
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
      return AddInput(Part::kValue, Buffer::kDvIn, block);
    case Kind::kValueWeight:
      return AddWeight(Part::kValue, Buffer::kDvIn, block);
    case Kind::kKeyInput:
      return AddInput(Part::kKey, Buffer::kDkIn, block);
    case Kind::kKeyWeight:
      return AddWeight(Part::kKey, Buffer::kDkIn, block);
    case Kind::kQueryInput:
      ENGINE_RETURN_IF_ERROR(AddInput(Part::kQuery, Buffer::kDqIn, block));
      if (kernels_.input_gradient == nullptr) return Status();
      return FromKernel(
          kernels_.input_gradient(kernels_.user, static_cast<uint32_t>(layer)));
    case Kind::kQueryWeight:
      return AddWeight(Part::kQuery, Buffer::kDqIn, block);
  }
  return Status();
}

Status AttentionCompute::Multiply(const Size& size, const Matrix& a,
                                  const Matrix& b, const Result& out) const {
  commsched_product_t args = {};
  args.a = a.data;
  args.b = b.data;
  args.out = out.data;
  args.rows = static_cast<uint64_t>(size.rows);
  args.cols = static_cast<uint64_t>(size.cols);
  args.inner = static_cast<uint64_t>(size.inner);
  args.a_stride = static_cast<uint64_t>(a.stride);
  args.b_stride = static_cast<uint64_t>(b.stride);
  args.out_stride = static_cast<uint64_t>(out.stride);
  args.a_transposed = a.transposed ? 1 : 0;
  args.b_transposed = b.transposed ? 1 : 0;
  args.accumulate = out.accumulate ? 1 : 0;
  return FromKernel(kernels_.product(kernels_.user, &args));
}

Status AttentionCompute::Project(Part part, int64_t chunk, Buffer to,
                                 const Block& block) const {
  const int64_t stride = steps_.TokenStride(part == Part::kQuery);
  for (const Columns& run :
       columns_[static_cast<size_t>(part)][static_cast<size_t>(chunk)]) {
    float* out = data(to) + run.sent;
    ENGINE_RETURN_IF_ERROR(Multiply(
        {shape_.rows(), run.count, shape_.width}, {block.input, shape_.width},
        {block.qkv_weight + run.weight, shape_.qkv_channels()}, {out, stride}));
    for (int64_t r = 0; r < shape_.rows(); ++r) {
      AddRow(block.qkv_bias + run.weight, run.count, out + r * stride);
    }
  }
  return Status();
}

template <typename Call>
Status AttentionCompute::ForEachHead(int64_t layer, int64_t chunk,
                                     Call&& call) const {
  const HeadSplit::Share& mine = steps_.split().share(chunk, shape_.rank);
  const int64_t size = shape_.head_size;
  const int64_t q_first = steps_.HeadRows(Buffer::kQ, chunk, true).offset;
  const int64_t kv_first = steps_.HeadRows(Buffer::kK, chunk, false).offset;
  int64_t before = 0;  // Heads of this rank in the chunks before.
  for (int64_t c = 0; c < chunk; ++c) {
    before += steps_.split().share(c, shape_.rank).q.count;
  }
  float* kept = memory_.kept(layer) + before * shape_.batch * shape_.kept_count;
  commsched_attention_head_t args = {};
  args.seq = static_cast<uint64_t>(shape_.seq);
  args.head_size = static_cast<uint64_t>(size);
  args.q_stride = static_cast<uint64_t>(shape_.batch * mine.q.count * size);
  args.kv_stride = static_cast<uint64_t>(shape_.batch * mine.kv.count * size);
  args.scratch = memory_.scratch();
  for (int64_t b = 0; b < shape_.batch; ++b) {
    for (int64_t h = 0; h < mine.q.count; ++h) {
      const int64_t kv = (mine.q.first + h) / shape_.group() - mine.kv.first;
      const int64_t q = q_first + (b * mine.q.count + h) * size;
      const int64_t k = kv_first + (b * mine.kv.count + kv) * size;
      args.q = data(Buffer::kQ, layer) + q;
      args.k = data(Buffer::kK, layer) + k;
      args.v = data(Buffer::kV, layer) + k;
      args.kept = kept + (b * mine.q.count + h) * shape_.kept_count;
      // Its keys have had another of this rank's heads before.
      args.accumulate = h > 0 && (mine.q.first + h) % shape_.group() != 0;
      ENGINE_RETURN_IF_ERROR(FromKernel(call(args, q, k)));
    }
  }
  return Status();
}

Status AttentionCompute::Attend(int64_t layer, int64_t chunk) const {
  return ForEachHead(
      layer, chunk,
      [&](commsched_attention_head_t& args, int64_t q, int64_t /*k*/) {
        args.y = data(Buffer::kOOut) + q;
        return kernels_.head_forward(kernels_.user, &args);
      });
}

Status AttentionCompute::WayOut(int64_t layer, int64_t chunk,
                                const Block& block) const {
  const int64_t w = shape_.width;
  if (chunk == 0) {
    for (int64_t r = 0; r < shape_.rows(); ++r) {
      float* out = block.output + r * w;
      for (int64_t i = 0; i < w; ++i) {
        out[i] = block.residual == nullptr
                     ? block.out_bias[i]
                     : block.residual[r * w + i] + block.out_bias[i];
      }
    }
  }
  const AttentionRegion columns = steps_.TokenColumns(Buffer::kO, chunk, true);
  return Multiply({shape_.rows(), w, columns.columns},
                  {data(Buffer::kO, layer) + columns.offset, columns.stride},
                  {block.out_weight + columns.offset * w, w},
                  {block.output, w, /*accumulate=*/true});
}

Status AttentionCompute::Context(int64_t chunk, const Block& block) const {
  const int64_t w = shape_.width;
  const AttentionRegion columns =
      steps_.TokenColumns(Buffer::kDoOut, chunk, true);
  return Multiply(
      {shape_.rows(), columns.columns, w}, {block.d_output, w},
      {block.out_weight + columns.offset * w, w, /*transposed=*/true},
      {data(Buffer::kDoOut) + columns.offset, columns.stride});
}

Status AttentionCompute::OutWeight(int64_t layer, const Block& block) const {
  const int64_t w = shape_.width;
  const int64_t channels = shape_.q_channels();
  AddColumns(block.d_output, shape_.rows(), w, w, block.d_out_bias);
  return Multiply({channels, w, shape_.rows()},
                  {data(Buffer::kO, layer), channels, /*transposed=*/true},
                  {block.d_output, w},
                  {block.d_out_weight, w, /*accumulate=*/true});
}

Status AttentionCompute::ValueHeads(int64_t layer, int64_t chunk) const {
  return ForEachHead(
      layer, chunk,
      [&](commsched_attention_head_t& args, int64_t q, int64_t k) {
        args.dy = data(Buffer::kDoIn) + q;
        args.dv = data(Buffer::kDvOut) + k;
        return kernels_.head_backward_value(kernels_.user, &args);
      });
}

Status AttentionCompute::QueryKeyHeads(int64_t layer, int64_t chunk) const {
  return ForEachHead(
      layer, chunk,
      [&](commsched_attention_head_t& args, int64_t q, int64_t k) {
        args.dy = data(Buffer::kDoIn) + q;
        args.dq = data(Buffer::kDqOut) + q;
        args.dk = data(Buffer::kDkOut) + k;
        return kernels_.head_backward_query_key(kernels_.user, &args);
      });
}

// That of the values comes first, and sets it.
Status AttentionCompute::AddInput(Part part, Buffer from,
                                  const Block& block) const {
  const int64_t w = shape_.width;
  const int64_t stride = steps_.TokenStride(part == Part::kQuery);
  bool accumulate = part != Part::kValue;
  for (const Columns& run : AllOf(part)) {
    ENGINE_RETURN_IF_ERROR(
        Multiply({shape_.rows(), w, run.count}, {data(from) + run.sent, stride},
                 {block.qkv_weight + run.weight, shape_.qkv_channels(),
                  /*transposed=*/true},
                 {block.d_input, w, accumulate}));
    accumulate = true;
  }
  return Status();
}

Status AttentionCompute::AddWeight(Part part, Buffer from,
                                   const Block& block) const {
  const int64_t w = shape_.width;
  const int64_t stride = steps_.TokenStride(part == Part::kQuery);
  for (const Columns& run : AllOf(part)) {
    const float* d = data(from) + run.sent;
    AddColumns(d, shape_.rows(), run.count, stride,
               block.d_qkv_bias + run.weight);
    ENGINE_RETURN_IF_ERROR(
        Multiply({w, run.count, shape_.rows()},
                 {block.input, w, /*transposed=*/true}, {d, stride},
                 {block.d_qkv_weight + run.weight, shape_.qkv_channels(),
                  /*accumulate=*/true}));
  }
  return Status();
}

}  // namespace commsched::engine
