#include "examples/trainer/architecture.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "examples/trainer/random.h"

namespace commsched::trainer {
namespace {

constexpr double kDeviation = 0.02;
constexpr InitRule kNormal = {.deviation = kDeviation};
constexpr InitRule kZeros = {};
constexpr InitRule kOnes = {.constant = 1};

class Builder {
 public:
  explicit Builder(const GptConfig& config)
      : residual_{.deviation =
                      kDeviation /
                      std::sqrt(2.0 * static_cast<double>(config.layers))} {
    result_.config = config;
  }

  Architecture Build() {
    const GptConfig& config = result_.config;
    const int64_t c = config.channels;
    BeginModule("embed");
    Add("wte.weight", {config.vocab, c}, kNormal);
    Add("wpe.weight", {config.context, c}, kNormal);
    for (int64_t layer = 0; layer < config.layers; ++layer) {
      const std::string block = absl::StrCat("h.", layer, ".");
      BeginModule(block + "attn");
      AddNorm(block + "ln_1");
      AddLinear(block + "attn.c_attn", c, config.qkv_channels(), kNormal);
      AddLinear(block + "attn.c_proj", c, c, residual_);
      BeginModule(block + "mlp");
      AddNorm(block + "ln_2");
      AddLinear(block + "mlp.c_fc", c, 4 * c, kNormal);
      AddLinear(block + "mlp.c_proj", 4 * c, c, residual_);
    }
    BeginModule("head");
    AddNorm("ln_f");
    result_.modules.back().used.push_back(0);  // wte, tied.
    return std::move(result_);
  }

 private:
  void BeginModule(std::string name) {
    result_.modules.push_back(
        {.name = std::move(name), .owned = {}, .used = {}});
  }

  void AddNorm(const std::string& name) {
    const int64_t c = result_.config.channels;
    Add(name + ".weight", {c}, kOnes);
    Add(name + ".bias", {c}, kZeros);
  }

  void AddLinear(const std::string& name, int64_t in, int64_t out,
                 InitRule init) {
    Add(name + ".weight", {in, out}, init);
    Add(name + ".bias", {out}, kZeros);
  }

  void Add(std::string name, std::vector<int64_t> shape, InitRule init) {
    ParameterSpec spec;
    spec.name = std::move(name);
    spec.count = 1;
    for (int64_t extent : shape) spec.count *= extent;
    spec.shape = std::move(shape);
    spec.module = static_cast<int>(result_.modules.size()) - 1;
    spec.init = init;
    const int index = static_cast<int>(result_.parameters.size());
    result_.modules.back().owned.push_back(index);
    result_.modules.back().used.push_back(index);
    result_.parameters.push_back(std::move(spec));
  }

  const InitRule residual_;
  Architecture result_;
};

}  // namespace

Architecture BuildArchitecture(const GptConfig& config) {
  return Builder(config).Build();
}

ModuleFlops CountFlops(const Architecture& architecture, int module,
                       int64_t batch, int64_t seq) {
  if (module == architecture.embed_module()) return {};
  const int64_t c = architecture.config.channels;
  const int64_t rows = batch * seq;
  int64_t forward = 0;
  if (module == architecture.head_module()) {
    forward = 2 * rows * c * architecture.config.vocab;
  } else if (module % 2 == 1) {                 // Attention.
    const int64_t pairs = seq * (seq + 1) / 2;  // (query, key) that are seen.
    forward = 2 * rows * c * (architecture.config.qkv_channels() + c) +
              2 * 2 * batch * pairs * c;
  } else {
    forward = 2 * rows * c * 8 * c;
  }
  // Every product y = a b has two in backward: dy b' and a' dy.
  return {.forward = forward, .backward = 2 * forward};
}

void InitializeRange(const ParameterSpec& spec, uint64_t seed, int64_t offset,
                     int64_t count, float* out) {
  const InitRule& init = spec.init;
  if (init.deviation == 0) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = static_cast<float>(init.constant);
    return;
  }
  const uint64_t stream = StreamOf(spec.name);
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(init.constant +
                                init.deviation *
                                    RandomNormal(seed, stream, offset + i));
  }
}

}  // namespace commsched::trainer
