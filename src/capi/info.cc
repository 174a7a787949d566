#include "commsched/info.h"

#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/env.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "comm/plugin/registry.h"
#include "commsched/version.h"
#include "device/cuda_device.h"

namespace commsched {
namespace {

using Json = nlohmann::ordered_json;

std::string Text(absl::string_view view) { return std::string(view); }

Json PluginsJson(const PluginRegistry& registry) {
  Json all = Json::object();
  for (uint32_t kind = 0; kind < COMMSCHED_PLUGIN_NUM_KINDS; ++kind) {
    Json of_kind = Json::array();
    for (const Plugin& plugin : registry.plugins()) {
      if (plugin.kind != kind) continue;
      of_kind.push_back({{"name", plugin.name},
                         {"version", plugin.version},
                         {"origin", plugin.origin}});
    }
    all[Text(PluginKindName(kind))] = std::move(of_kind);
  }
  return all;
}

Json FilesJson(const PluginRegistry& registry) {
  Json files = Json::array();
  for (const PluginRegistry::Attempt& attempt : registry.attempts()) {
    const char* state = attempt.outcome.ok()                ? "loaded"
                        : absl::IsNotFound(attempt.outcome) ? "not found"
                                                            : "unusable";
    files.push_back({{"path", attempt.path},
                     {"state", state},
                     {"reason", Text(attempt.outcome.message())},
                     {"found", attempt.found}});
  }
  return files;
}

Json EnvironmentJson() {
  Json variables = Json::array();
  for (const EnvVariable& variable : EnvTable()) {
    variables.push_back({{"name", variable.name},
                         {"value", Env::Process().TextOf(variable)},
                         {"default", variable.default_text},
                         {"meaning", variable.doc}});
  }
  return variables;
}

// Devices beside the host, or why there are none.
Json DevicesJson() {
  const absl::StatusOr<int> cuda = NumCudaDevices();
  return {{"cuda", cuda.value_or(0)},
          {"reason", cuda.ok() ? "" : Text(cuda.status().message())}};
}

Json InfoJson() {
  const PluginRegistry& registry = PluginRegistry::Process();
  return {
      {"format", "commsched-info/1"},     {"version", commsched_version()},
      {"abi", commsched_abi_version()},   {"devices", DevicesJson()},
      {"plugins", PluginsJson(registry)}, {"search_path", registry.folders()},
      {"files", FilesJson(registry)},     {"environment", EnvironmentJson()}};
}

std::string Quoted(const Json& value) { return value.get<std::string>(); }

std::string InfoText(const Json& info) {
  std::string text = absl::StrCat("commsched ", Quoted(info["version"]),
                                  ", ABI ", info["abi"].get<uint32_t>(), "\n");
  const std::string no_device = Quoted(info["devices"]["reason"]);
  absl::StrAppend(&text, "devices:\n  the host\n  CUDA: ",
                  info["devices"]["cuda"].get<int>(),
                  no_device.empty() ? "" : "; ", no_device, "\n");
  for (const auto& [kind, plugins] : info["plugins"].items()) {
    absl::StrAppend(&text, kind, ":\n");
    if (plugins.empty()) absl::StrAppend(&text, "  none\n");
    for (const Json& plugin : plugins) {
      absl::StrAppend(&text, "  ", Quoted(plugin["name"]), " ",
                      Quoted(plugin["version"]), " (", Quoted(plugin["origin"]),
                      ")\n");
    }
  }
  absl::StrAppend(&text, "search path:\n");
  for (const Json& folder : info["search_path"]) {
    absl::StrAppend(&text, "  ", Quoted(folder), "\n");
  }
  absl::StrAppend(&text, "files tried:\n");
  if (info["files"].empty()) absl::StrAppend(&text, "  none\n");
  for (const Json& file : info["files"]) {
    const std::string reason = Quoted(file["reason"]);
    const std::string found = Quoted(file["found"]);
    absl::StrAppend(&text, "  ", Quoted(file["path"]), ": ",
                    Quoted(file["state"]), reason.empty() ? "" : "; ", reason,
                    found.empty() ? "" : "; ", found, "\n");
  }
  absl::StrAppend(&text, "environment:\n");
  for (const Json& variable : info["environment"]) {
    absl::StrAppend(&text, "  ", Quoted(variable["name"]), "='",
                    Quoted(variable["value"]), "' (default '",
                    Quoted(variable["default"]), "')  ",
                    Quoted(variable["meaning"]), "\n");
  }
  return text;
}

// Paths and reasons come from the system and need not be UTF-8.
std::string Dump(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<std::string> Info(commsched_format_t format) {
  switch (format) {
    case COMMSCHED_TEXT:
      return InfoText(InfoJson());
    case COMMSCHED_JSON:
      return Dump(InfoJson());
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("format is ", format, ", neither TEXT nor JSON"));
  }
}

absl::Status LoadPlugin(const char* name_or_path, uint32_t flags) {
  if ((flags & ~uint32_t{COMMSCHED_PLUGIN_REQUIRED}) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "flags is ", flags, ", outside 0..", int{COMMSCHED_PLUGIN_REQUIRED}));
  }
  PluginRegistry& registry = PluginRegistry::Process();
  const absl::Status loaded = name_or_path == nullptr
                                  ? registry.LoadAll()
                                  : registry.Load(name_or_path);
  return (flags & COMMSCHED_PLUGIN_REQUIRED) != 0 ? loaded : absl::OkStatus();
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_plugin_load(const char* name_or_path,
                                         uint32_t flags) {
  return commsched::AtBoundary(
      [&] { return commsched::LoadPlugin(name_or_path, flags); });
}

commsched_status_t commsched_info(commsched_format_t format, char** out_text) {
  return commsched::AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(commsched::RequireNonNull({{"out_text", out_text}}));
    ASSIGN_OR_RETURN(const std::string text, commsched::Info(format));
    ASSIGN_OR_RETURN(*out_text, commsched::DuplicateString(text));
    return absl::OkStatus();
  });
}
