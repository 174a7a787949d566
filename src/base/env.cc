#include "base/env.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace commsched {
namespace {

// Sorted by name.
constexpr EnvVariable kTable[] = {
    {.name = "COMMSCHED_CONTROL",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "host:port of a control server that runs outside of the ranks."},
    {.name = "COMMSCHED_CUDART_LIB",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "File of the CUDA runtime, where the loader would not find it."},
    {.name = "COMMSCHED_EPOCH",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "Counts the restarts of the job; equal on all ranks."},
    {.name = "COMMSCHED_HOST_ID",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "Ranks of a machine with another text, of up to 24 characters, are "
            "taken to be on another host."},
    {.name = "COMMSCHED_JOIN_TIMEOUT_S",
     .type = EnvVariable::Type::kInt,
     .min = 1,
     .max = 86400,
     .choices = nullptr,
     .default_text = "60",
     .doc = "How long ranks may take to join, and wait for others to."},
    {.name = "COMMSCHED_LINK_PROFILE",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "File with the job's profile of links; that of rank 0 holds for "
            "all."},
    {.name = "COMMSCHED_LOCAL_RANK",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "This process among those of its host; set by launchers."},
    {.name = "COMMSCHED_LOCAL_WORLD_SIZE",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "Processes on this host; set by launchers."},
    {.name = "COMMSCHED_LOG",
     .type = EnvVariable::Type::kChoice,
     .min = 0,
     .max = 0,
     .choices = "debug|info|warning|error|off",
     .default_text = "warning",
     .doc = "The least severe line that is logged."},
    {.name = "COMMSCHED_NCCL_LIB",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "The same for NCCL; read by the backend nccl."},
    {.name = "COMMSCHED_PLUGIN_PATH",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "Folders with plugins, separated by colons; searched first."},
    {.name = "COMMSCHED_PORT",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "Where rank 0 serves ranks on other hosts; MASTER_PORT + 1 if not "
            "set."},
    {.name = "COMMSCHED_RANK",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "This process in its job; set by launchers."},
    {.name = "COMMSCHED_SIGQUIT",
     .type = EnvVariable::Type::kChoice,
     .min = 0,
     .max = 0,
     .choices = "off|on",
     .default_text = "off",
     .doc = "Whether SIGQUIT makes a process say what its ranks wait for; "
            "commsched run sets it."},
    {.name = "COMMSCHED_TIMEOUT_S",
     .type = EnvVariable::Type::kInt,
     .min = 1,
     .max = 31'536'000,
     .choices = nullptr,
     .default_text = "600",
     .doc = "Seconds that a launch or a meeting of ranks may take where the "
            "program sets no limit."},
    {.name = "COMMSCHED_TOKEN_FILE",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "A file, of mode 0600, with the job's token, unless "
            "COMMSCHED_TOKEN has it."},
    {.name = "COMMSCHED_UCX_LOCAL",
     .type = EnvVariable::Type::kChoice,
     .min = 0,
     .max = 0,
     .choices = "read|shm|net",
     .default_text = "read",
     .doc = "How ranks of one host reach each other with the backend ucx."},
    {.name = "COMMSCHED_UCX_SPIN_US",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "How long the backend ucx polls before it sleeps."},
    {.name = "COMMSCHED_WORLD_SIZE",
     .type = EnvVariable::Type::kText,
     .min = 0,
     .max = 0,
     .choices = nullptr,
     .default_text = "",
     .doc = "Processes of the job; set by launchers."},
};

absl::StatusOr<int64_t> ParseInt(const EnvVariable& variable,
                                 absl::string_view text) {
  int64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < variable.min ||
      value > variable.max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "environment variable ", variable.name, " is '", text,
        "', not an integer in ", variable.min, "..", variable.max));
  }
  return value;
}

absl::StatusOr<int64_t> ParseChoice(const EnvVariable& variable,
                                    absl::string_view text) {
  const std::vector<absl::string_view> choices =
      absl::StrSplit(variable.choices, '|');
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == text) return static_cast<int64_t>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("environment variable ", variable.name, " is '", text,
                   "', not one of ", variable.choices));
}

}  // namespace

absl::Span<const EnvVariable> EnvTable() { return kTable; }

Env::Env(absl::Span<const EnvVariable> table, Lookup lookup)
    : table_(table), lookup_(std::move(lookup)) {}

Env::Lookup Env::ProcessLookup() {
  // The library never changes the environment, so reading it is safe.
  return [](const char* name) -> const char* {
    return getenv(name);  // NOLINT(concurrency-mt-unsafe)
  };
}

const Env& Env::Process() {
  static const Env* const env = new Env(EnvTable(), ProcessLookup());
  return *env;
}

absl::StatusOr<int64_t> Env::Get(absl::string_view name) const {
  for (const EnvVariable& variable : table_) {
    if (variable.name != name) continue;
    const std::string text = TextOf(variable);
    switch (variable.type) {
      case EnvVariable::Type::kInt:
        return ParseInt(variable, text);
      case EnvVariable::Type::kChoice:
        return ParseChoice(variable, text);
      case EnvVariable::Type::kText:
        return absl::InternalError(absl::StrCat("environment variable ", name,
                                                " is declared as text"));
    }
  }
  return absl::InternalError(
      absl::StrCat("environment variable ", name, " is not in the table"));
}

absl::StatusOr<std::string> Env::GetText(absl::string_view name) const {
  for (const EnvVariable& variable : table_) {
    if (variable.name == name && variable.type == EnvVariable::Type::kText) {
      return TextOf(variable);
    }
  }
  return absl::InternalError(
      absl::StrCat("environment variable ", name, " is not declared as text"));
}

std::string Env::TextOf(const EnvVariable& variable) const {
  const char* text = lookup_(variable.name);
  return text == nullptr || *text == '\0' ? variable.default_text : text;
}

}  // namespace commsched
