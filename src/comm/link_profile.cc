#include "comm/link_profile.h"

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "control/wire.h"
#include "graph/json_fields.h"

namespace commsched {
namespace {

constexpr absl::string_view kFormat = "commsched-links/1";

absl::Status CheckNs(absl::string_view level, absl::string_view key,
                     int64_t ns) {
  if (ns >= 0 && ns <= kMaxLinkNs) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      level, ".", key, " is ", ns, "; it must be 0 to ", kMaxLinkNs));
}

absl::Status CheckLevel(absl::string_view name,
                        const commsched_link_level_t& level) {
  RETURN_IF_ERROR(CheckNs(name, "latency_ns", level.latency_ns));
  RETURN_IF_ERROR(CheckNs(name, "message_ns", level.message_ns));
  if (std::isfinite(level.bytes_per_s) &&
      level.bytes_per_s >= kMinLinkBytesPerS &&
      level.bytes_per_s <= kMaxLinkBytesPerS) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(name, ".bytes_per_s is ", level.bytes_per_s, "; it must be ",
                   kMinLinkBytesPerS, " to ", kMaxLinkBytesPerS));
}

// `level` has the defaults.
absl::Status ReadLevel(JsonFields& root, const char* name,
                       commsched_link_level_t* level) {
  const nlohmann::json* const value = root.Find(name);
  if (value == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(*value, name));
  ASSIGN_OR_RETURN(level->latency_ns, fields.GetInt("latency_ns", 0, kMaxLinkNs,
                                                    level->latency_ns));
  ASSIGN_OR_RETURN(level->bytes_per_s,
                   fields.GetDouble("bytes_per_s", level->bytes_per_s));
  ASSIGN_OR_RETURN(level->message_ns, fields.GetInt("message_ns", 0, kMaxLinkNs,
                                                    level->message_ns));
  RETURN_IF_ERROR(fields.Finish());
  return CheckLevel(name, *level);
}

nlohmann::ordered_json LevelJson(const commsched_link_level_t& level) {
  return {{"latency_ns", level.latency_ns},
          {"bytes_per_s", level.bytes_per_s},
          {"message_ns", level.message_ns}};
}

absl::StatusOr<commsched_link_profile_t> DecodeProfile(
    absl::string_view bytes) {
  commsched_link_profile_t profile = commsched_link_profile_init();
  WireReader reader(bytes);
  for (commsched_link_level_t* level : {&profile.host, &profile.network}) {
    uint64_t bytes_per_s = 0;
    reader(level->latency_ns, bytes_per_s, level->message_ns);
    level->bytes_per_s = std::bit_cast<double>(bytes_per_s);
  }
  RETURN_IF_ERROR(reader.Finish());
  RETURN_IF_ERROR(CheckLinkProfile(profile));
  return profile;
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

absl::Status FileError(const std::string& path, int error) {
  const std::string why = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(why)
                         : absl::UnavailableError(why);
}

}  // namespace

absl::Status CheckLinkProfile(const commsched_link_profile_t& profile) {
  RETURN_IF_ERROR(CheckLevel("host", profile.host));
  return CheckLevel("network", profile.network);
}

absl::StatusOr<commsched_link_profile_t> LinkProfileFromJson(
    absl::string_view text) {
  if (text.size() > kMaxLinkProfileBytes) {
    // A file is read no further, so that its size is not known.
    return absl::ResourceExhaustedError(absl::StrCat(
        "a profile of links has more than ", kMaxLinkProfileBytes, " bytes"));
  }
  ASSIGN_OR_RETURN(const nlohmann::json root, ParseJson(text));
  ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(root, ""));
  ASSIGN_OR_RETURN(const std::string format, fields.NeedString("format"));
  if (format != kFormat) {
    return fields.Invalid(
        "format", absl::StrCat("'", format, "' is not '", kFormat, "'"));
  }
  ASSIGN_OR_RETURN(const std::string note, fields.GetString("note", ""));
  if (note.size() > kMaxLinkNoteBytes) {
    return fields.Invalid("note",
                          absl::StrCat("has ", note.size(), " bytes; at most ",
                                       kMaxLinkNoteBytes));
  }
  commsched_link_profile_t profile = commsched_link_profile_init();
  RETURN_IF_ERROR(ReadLevel(fields, "host", &profile.host));
  RETURN_IF_ERROR(ReadLevel(fields, "network", &profile.network));
  RETURN_IF_ERROR(fields.Finish());
  return profile;
}

std::string LinkProfileToJson(const commsched_link_profile_t& profile,
                              absl::string_view note) {
  nlohmann::ordered_json root;
  root["format"] = std::string(kFormat);
  if (!note.empty()) root["note"] = std::string(note);
  root["host"] = LevelJson(profile.host);
  root["network"] = LevelJson(profile.network);
  return absl::StrCat(
      root.dump(2, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

absl::StatusOr<commsched_link_profile_t> ReadLinkProfile(
    const std::string& path) {
  const std::unique_ptr<std::FILE, Close> file(std::fopen(path.c_str(), "re"));
  if (file == nullptr) return FileError(path, errno);
  // One more, which makes it too long.
  std::string text(kMaxLinkProfileBytes + 1, '\0');
  const size_t bytes = std::fread(text.data(), 1, text.size(), file.get());
  if (std::ferror(file.get()) != 0) return FileError(path, errno);
  auto profile = LinkProfileFromJson(absl::string_view(text.data(), bytes));
  if (profile.ok()) return profile;
  return absl::Status(profile.status().code(),
                      absl::StrCat(path, ": ", profile.status().message()));
}

std::string EncodeLinks(const commsched_link_profile_t& profile) {
  WireWriter writer;
  for (const commsched_link_level_t* level :
       {&profile.host, &profile.network}) {
    writer(level->latency_ns, std::bit_cast<uint64_t>(level->bytes_per_s),
           level->message_ns);
  }
  return writer.Take();
}

absl::StatusOr<std::optional<commsched_link_profile_t>> DecodeLinks(
    absl::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  const auto profile = DecodeProfile(bytes);
  if (profile.ok()) return *profile;
  return absl::Status(
      profile.status().code(),
      absl::StrCat("rank 0's profile of links: ", profile.status().message()));
}

}  // namespace commsched
