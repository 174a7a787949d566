#include "examples/trainer/run_identity.h"

#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/config.h"
#include "examples/trainer/options.h"
#include "examples/trainer/sha256.h"

namespace commsched::trainer {
namespace {

// Of random.h: another one would make other numbers of the same seed.
constexpr char kGenerator[] = "splitmix64-counter/1";

std::string DataSha256(const Dataset& dataset) {
  Sha256 digest;
  digest.Update(dataset.train().data(), dataset.train().size());
  digest.Update(dataset.validation().data(), dataset.validation().size());
  return digest.HexDigest();
}

// "adamw, beta1 0.9, beta2 0.95, epsilon 1e-08, weight decay 0.1"
std::string DescribeOptimizer(const Options& options) {
  if (options.optimizer == "sgd") {
    return absl::StrFormat("sgd, momentum %g, weight decay %g", kMomentum,
                           kWeightDecay);
  }
  return absl::StrFormat("%s, beta1 %g, beta2 %g, epsilon %g, weight decay %g",
                         options.optimizer, kBeta1, kBeta2, kEpsilon,
                         kWeightDecay);
}

// The shortest text that is this number again.
std::string Exactly(double value) {
  std::string text = absl::StrFormat("%g", value);
  return std::stod(text) == value ? text : absl::StrFormat("%.17g", value);
}

}  // namespace

RunIdentity IdentifyRun(const Options& o, const Dataset& dataset) {
  RunIdentity identity;
  std::random_device random;
  identity.name = absl::StrFormat("%08x%08x", random(), random());
  const auto add = [&identity](const char* key, std::string value,
                               Setting::Kind kind = Setting::Kind::kSince) {
    identity.settings.push_back(
        {absl::StrCat("trainer.", key), std::move(value), kind});
  };
  GptConfig config = o.config;
  config.kv_heads = config.num_kv_heads();  // 0 means one for each head.
  add("generator", kGenerator, Setting::Kind::kAlways);
  add("seed", absl::StrCat(o.seed), Setting::Kind::kAlways);
  add("data_sha256", DataSha256(dataset), Setting::Kind::kAlways);
  add("model", o.model);
  add("layers", absl::StrCat(o.config.layers));
  add("kv_heads", absl::StrCat(config.kv_heads));
  add("batch", absl::StrCat(o.batch));
  add("seq", absl::StrCat(o.seq));
  add("micro_batches", absl::StrCat(o.micro_batches));
  add("optimizer", DescribeOptimizer(o));
  add("clip", Exactly(o.clip));
  add("lr", Exactly(o.lr));
  add("steps", absl::StrCat(o.steps));
  add("dtype", o.dtype);
  add("reduce_dtype", o.reduce_dtype);
  // How many share a sequence is layout; alone they exchange nothing.
  if (o.sp > 1) add("sp_dtype", o.sp_dtype, Setting::Kind::kSometimes);
  identity.settings.push_back({RunIdentity::kConfigKey, FormatConfig(config)});
  return identity;
}

}  // namespace commsched::trainer
