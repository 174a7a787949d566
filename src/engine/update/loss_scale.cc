#include "engine/update/loss_scale.h"

#include <cstdlib>

namespace commsched::engine {
namespace {

constexpr char kKey[] = "commsched.loss_scale";
// Where a run without a scale keeps what it skipped: the next takes no scale.
constexpr char kSkippedKey[] = "commsched.skipped_steps";

// "65536 12 3": the scale, good steps, skipped steps. Integers, as all are.
std::string Format(const LossScale& state) {
  std::string text;
  for (double value : {state.scale, state.good_steps, state.skipped_steps}) {
    if (!text.empty()) text += ' ';
    text += std::to_string(static_cast<uint64_t>(value));
  }
  return text;
}

bool Parse(const std::string& text, LossScale* out) {
  double* const fields[] = {&out->scale, &out->good_steps, &out->skipped_steps};
  const char* at = text.c_str();
  for (double* field : fields) {
    if (*at < '0' || *at > '9') return false;
    char* end = nullptr;
    *field = static_cast<double>(std::strtoull(at, &end, 10));
    if (*end != (field == fields[2] ? '\0' : ' ')) return false;
    at = end + 1;
  }
  return out->scale >= kMinLossScale && out->scale <= kMaxLossScale;
}

bool ParseSkipped(const std::string& text, LossScale* out) {
  if (text.empty() || text.size() > 18 ||
      text.find_first_not_of("0123456789") != std::string::npos) {
    return false;
  }
  out->skipped_steps =
      static_cast<double>(std::strtoull(text.c_str(), nullptr, 10));
  return true;
}

Status BadMetadata(const char* key, const std::string& value,
                   const std::string& expected, uint64_t steps) {
  return InvalidArgument(std::string("engine: metadata '") + key +
                         "' of the checkpoint is '" + value + "'; it must be " +
                         expected + std::to_string(steps));
}

}  // namespace

void SaveLossScale(const LossScale& from, bool scales,
                   std::map<std::string, std::string>* metadata) {
  if (scales) {
    (*metadata)[kKey] = Format(from);
  } else if (from.skipped_steps > 0) {
    (*metadata)[kSkippedKey] =
        std::to_string(static_cast<uint64_t>(from.skipped_steps));
  }
}

Status LoadLossScale(const std::map<std::string, std::string>& metadata,
                     uint64_t steps, bool scales, LossScale* out) {
  LossScale loaded = *out;
  loaded.skipped_steps = 0;
  const auto most = static_cast<double>(steps);
  if (const auto found = metadata.find(kKey); found != metadata.end()) {
    if (!Parse(found->second, &loaded) ||
        loaded.good_steps + loaded.skipped_steps > most) {
      return BadMetadata(kKey, found->second,
                         "a scale of 1 to 2^24, good steps and skipped steps, "
                         "together at most ",
                         steps);
    }
  } else if (const auto skipped = metadata.find(kSkippedKey);
             skipped != metadata.end()) {
    if (!ParseSkipped(skipped->second, &loaded) ||
        loaded.skipped_steps > most) {
      return BadMetadata(kSkippedKey, skipped->second,
                         "a number of steps, at most ", steps);
    }
  }
  out->skipped_steps = loaded.skipped_steps;
  out->skipped_in_row = 0;
  if (!scales) return Status();
  out->scale = loaded.scale;
  out->good_steps = loaded.good_steps;
  return Status();
}

}  // namespace commsched::engine
