#include "loss_scale.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace commsched::engine {
namespace {

constexpr char kKey[] = "commsched.loss_scale";

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

}  // namespace

void LossScale::Advance(bool overflowed, uint32_t window) {
  if (overflowed) {
    scale = std::max(kMinLossScale, scale / 2);
    good_steps = 0;
    ++skipped_steps;
    ++skipped_in_row;
    return;
  }
  skipped_in_row = 0;
  if (window == 0 || ++good_steps < window) return;
  scale = std::min(kMaxLossScale, scale * 2);
  good_steps = 0;
}

void SaveLossScale(const LossScale& from, bool scales,
                   std::map<std::string, std::string>* metadata) {
  if (!scales && from.skipped_steps == 0) return;
  (*metadata)[kKey] = Format(from);
}

Status LoadLossScale(const std::map<std::string, std::string>& metadata,
                     uint64_t steps, bool scales, LossScale* out) {
  LossScale loaded = *out;
  loaded.skipped_steps = 0;
  const auto found = metadata.find(kKey);
  if (found != metadata.end() &&
      (!Parse(found->second, &loaded) ||
       loaded.good_steps + loaded.skipped_steps > static_cast<double>(steps))) {
    return InvalidArgument(std::string("engine: metadata '") + kKey +
                           "' of the checkpoint is '" + found->second +
                           "'; it must be a scale of 1 to 2^24, good steps and "
                           "skipped steps, together at most " +
                           std::to_string(steps));
  }
  out->skipped_steps = loaded.skipped_steps;
  out->skipped_in_row = 0;
  if (!scales) return Status();
  out->scale = loaded.scale;
  out->good_steps = loaded.good_steps;
  return Status();
}

}  // namespace commsched::engine
