#include "test/gpu_check/result.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"

namespace commsched::gpu_check {

using nlohmann::ordered_json;

std::string ToLine(const Result& result) {
  const bool tried = result.skipped.empty();
  ordered_json json;
  json["check"] = result.check;
  json["ok"] = tried ? ordered_json(result.status.ok()) : ordered_json();
  json["figures"] = result.figures;
  json["why"] = tried ? std::string(result.status.message()) : result.skipped;
  // Messages of a driver may be in any encoding.
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

absl::StatusOr<Result> FromLine(absl::string_view line) {
  const auto json = ordered_json::parse(line.begin(), line.end(), nullptr,
                                        /*allow_exceptions=*/false);
  const auto is_text = [&](const char* key) {
    return json.contains(key) && json[key].is_string();
  };
  if (!json.is_object() || !is_text("check") || !is_text("figures") ||
      !is_text("why") || !json.contains("ok") ||
      !(json["ok"].is_null() || json["ok"].is_boolean())) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", line, "' is not a result"));
  }
  Result result = {json["check"], absl::OkStatus(), json["figures"]};
  const std::string why = json["why"];
  if (json["ok"].is_null()) {
    result.skipped = why;
  } else if (!json["ok"].get<bool>()) {
    result.status = absl::InternalError(why);
  }
  return result;
}

void Results::Add(const Result& result) {
  all_hold_ = all_hold_ && result.status.ok();
  if (file_ < 0) return;
  const std::string line = ToLine(result) + "\n";
  size_t written = 0;
  while (written < line.size()) {
    const ssize_t n =
        write(file_, line.data() + written, line.size() - written);
    if (n < 0 && errno != EINTR) return;  // Who reads them has gone.
    if (n > 0) written += static_cast<size_t>(n);
  }
}

void Results::Add(std::string check, absl::Status status, std::string figures) {
  Add(Result{std::move(check), std::move(status), std::move(figures)});
}

void Results::Skip(std::string check, std::string why) {
  Add(Result{std::move(check), absl::OkStatus(), "", std::move(why)});
}

}  // namespace commsched::gpu_check
