// What the trainer's model computes by itself, without ranks and an engine: one
// forward and backward of nano with two layers, for each number of sequences
// that is given. Prints a line that says what computed it, and a line with the
// SHA-256 of losses and gradients.
//
// Usage: trainer_plain_model SEQ BATCH...

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "examples/trainer/matmul.h"
#include "examples/trainer/model.h"
#include "examples/trainer/random.h"
#include "examples/trainer/sha256.h"

namespace commsched::trainer {
namespace {

constexpr uint64_t kSeed = 1;

const char* VectorUnits() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw")) return "AVX-512";
  if (__builtin_cpu_supports("avx2")) return "AVX2";
#endif
  return "no vector units that the model is compiled for";
}

std::vector<uint8_t> RandomTokens(const char* name, int64_t count) {
  std::vector<uint8_t> tokens;
  for (int64_t i = 0; i < count; ++i) {
    tokens.push_back(
        static_cast<uint8_t>(RandomBelow(256, kSeed, StreamOf(name), i)));
  }
  return tokens;
}

// False where there is no such model.
bool AddToDigest(int64_t batch, int64_t seq, Sha256* digest) {
  GptConfig config = PresetOf("nano")->config;
  config.layers = 2;
  const auto gpt = Gpt::Create(config, batch, seq);
  if (!gpt.ok()) return false;
  std::vector<std::vector<float>> values;
  std::vector<std::vector<float>> sums;
  std::vector<const float*> parameters;
  std::vector<float*> gradients;
  for (const ParameterSpec& spec : (*gpt)->architecture().parameters) {
    values.emplace_back(spec.count);
    sums.emplace_back(spec.count);
    InitializeRange(spec, kSeed, 0, spec.count, values.back().data());
    parameters.push_back(values.back().data());
    gradients.push_back(sums.back().data());
  }
  (*gpt)->SetBatch(RandomTokens("inputs", batch * seq).data(),
                   RandomTokens("targets", batch * seq).data());
  const int modules = (*gpt)->num_modules();
  for (int m = 0; m < modules; ++m) (*gpt)->Forward(m, parameters);
  for (int m = modules; m-- > 0;) (*gpt)->Backward(m, parameters, gradients);
  const float loss = (*gpt)->loss();
  digest->Update(&loss, sizeof(loss));
  for (const std::vector<float>& sum : sums) {
    digest->Update(sum.data(), sum.size() * sizeof(float));
  }
  return true;
}

}  // namespace
}  // namespace commsched::trainer

int main(int argc, char** argv) {
  using namespace commsched::trainer;
  Sha256 digest;
  for (int i = 2; i < argc; ++i) {
    if (!AddToDigest(std::atoll(argv[i]), std::atoll(argv[1]), &digest)) {
      std::fprintf(stderr, "no model for %s sequences of %s\n", argv[i],
                   argv[1]);
      return 1;
    }
  }
  std::printf("%s; %s; GCC %s\n%s\n", MatmulLibrary().c_str(), VectorUnits(),
              __VERSION__, digest.HexDigest().c_str());
  return 0;
}
