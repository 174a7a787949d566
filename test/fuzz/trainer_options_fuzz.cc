#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "examples/trainer/options.h"
#include "examples/trainer/units.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {
namespace {

using trainer::Options;
using trainer::ParseOutcome;

// Largest number of bytes or of nanoseconds that a text may say.
constexpr uint64_t kLimit = uint64_t{1} << 62;

size_t CheckUnits(const std::string& text) {
  size_t accepted = 0;
  if (const auto bytes = trainer::ParseBytes(text); bytes.ok()) {
    Require(*bytes <= kLimit);
    Require(trainer::ParseBytes(absl::StrCat(*bytes)).value() == *bytes);
    ++accepted;
  }
  if (const auto link = trainer::ParseLink(text); link.ok()) {
    Require(std::isfinite(link->bytes_per_s) && link->bytes_per_s > 0);
    Require(link->latency_ns >= 0);
    Require(static_cast<uint64_t>(link->latency_ns) <= kLimit);
    ++accepted;
  }
  return accepted;
}

// The C streams lead nowhere while it lives; what a sanitizer says, which
// writes to the file descriptor, is still seen.
class Silence {
 public:
  Silence() : stdout_(stdout), stderr_(stderr), null_(fopen("/dev/null", "w")) {
    Require(null_ != nullptr);
    stdout = null_;
    stderr = null_;
  }
  ~Silence() {
    stdout = stdout_;
    stderr = stderr_;
    fclose(null_);
  }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  FILE* const stdout_;
  FILE* const stderr_;
  FILE* const null_;
};

void CheckOptions(const Options& o) {
  Require(o.ranks >= 1 && o.micro_batches >= 1 && o.steps >= 1 && o.seq >= 1);
  Require(o.batch == o.local_batch() * o.data_ranks() * o.micro_batches);
  Require(o.local_batch() >= 1);
  Require(o.zero >= 0 && o.zero <= 3);
  Require(std::isfinite(o.lr) && o.lr >= 0);
  Require(std::isfinite(o.clip) && o.clip >= 0);
  Require(o.bucket_bytes >= 1);
  Require(o.cap_launches >= 0 && o.eval_every >= 0 && o.val_batches >= 1);
  Require(o.end_step() >= 1 && o.end_step() <= o.steps && o.save_every >= 0);
  Require(o.save_every == 0 || !o.save_dir.empty());
  Require(!o.only_exports() || !o.resume_dir.empty());
  Require(!o.overwrite || !o.save_dir.empty());
  Require(!o.force || !o.resume_dir.empty());
  Require(o.priority == "auto" || o.priority == "on" || o.priority == "off");
  Require(std::isfinite(o.link.bytes_per_s) && o.link.bytes_per_s >= 0);
  Require(trainer::ValidateConfig(o.config).ok());
  Require(o.config.context >= o.seq);
}

}  // namespace

size_t FuzzTrainerOptions(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  size_t accepted = CheckUnits(text.substr(0, text.find('\n')));
  // One argument a line.
  std::vector<std::string> arguments = absl::StrSplit(text, '\n');
  if (arguments.size() > 64) arguments.resize(64);
  arguments.insert(arguments.begin(), "commsched-train");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  Options options;
  options.batch = -1;
  ParseOutcome outcome;
  {
    const Silence silence;
    outcome = trainer::ParseOptions(static_cast<int>(arguments.size()),
                                    argv.data(), &options);
  }
  if (outcome == ParseOutcome::kRun) {
    CheckOptions(options);
    ++accepted;
  } else {
    Require(options.batch == -1);
  }
  return accepted;
}

}  // namespace commsched::test
