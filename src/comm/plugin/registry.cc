#include "comm/plugin/registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/env.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "comm/inproc/backend.h"
#include "comm/null_backend.h"
#include "comm/plugin/host.h"
#include "comm/plugin/table_support.h"

namespace commsched {
namespace {

namespace fs = std::filesystem;

constexpr char kSymbol[] = "commsched_plugins_v0";
constexpr char kPrefix[] = "commsched_";
constexpr char kSuffix[] = ".so";

// Where the file lies that this function was linked into.
std::string FolderBesideLibrary() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&FolderBesideLibrary), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  std::error_code error;
  const fs::path library = fs::canonical(info.dli_fname, error);
  if (error) return "";
  return (library.parent_path() / "commsched" / "plugins").string();
}

std::vector<std::string> ProcessFolders() {
  std::vector<std::string> folders;
  const absl::StatusOr<std::string> path =
      Env::Process().GetText("COMMSCHED_PLUGIN_PATH");
  if (path.ok()) folders = absl::StrSplit(*path, ':', absl::SkipEmpty());
  std::string beside = FolderBesideLibrary();
  if (!beside.empty()) folders.push_back(std::move(beside));
  return folders;
}

// By name; none if the folder cannot be read.
std::vector<std::string> PluginFilesIn(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind(kPrefix, 0) == 0 && entry->path().extension() == kSuffix) {
      paths.push_back(entry->path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The door of the built-in backends is the one that plugins have.
const commsched_plugin_list_t* BuiltInList() {
  static const commsched_plugin_t plugins[] = {
      {COMMSCHED_PLUGIN_BACKEND, 0, InprocTable()},
      {COMMSCHED_PLUGIN_BACKEND, 0, NullTable()},
  };
  static const commsched_plugin_list_t list = {
      .struct_size = sizeof(commsched_plugin_list_t),
      .abi = COMMSCHED_PLUGIN_LIST_ABI,
      .num_plugins = std::size(plugins),
      .plugins = plugins,
      .init = nullptr,
  };
  return &list;
}

bool HasInit(const commsched_plugin_list_t& list) {
  return list.struct_size >=
             offsetof(commsched_plugin_list_t, init) + sizeof(list.init) &&
         list.init != nullptr;
}

absl::Status Init(const commsched_plugin_list_t& list, absl::string_view origin,
                  std::string* out_found) {
  if (!HasInit(list)) return absl::OkStatus();
  PluginMessage message;
  try {
    const commsched_status_t code =
        list.init(NewPluginHost(std::string(origin)), message.Begin(),
                  PluginMessage::size());
    if (code == COMMSCHED_OK) {
      *out_found = std::string(message.text());
      return absl::OkStatus();
    }
    const absl::Status failure = PluginFailure("it", "init", code, message);
    return absl::Status(failure.code(),
                        absl::StrCat("init: ", failure.message()));
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("init threw: ", e.what()));
  } catch (...) {
    return absl::InternalError("init threw an exception of unknown type");
  }
}

}  // namespace

PluginRegistry& PluginRegistry::Process() {
  static PluginRegistry* const registry = [] {
    auto* made = new PluginRegistry(ProcessFolders());
    const absl::Status added = made->Add(BuiltInList(), "built in");
    if (!added.ok()) Log(LogLevel::kError, added.message());
    return made;
  }();
  return *registry;
}

PluginRegistry::PluginRegistry(std::vector<std::string> folders)
    : folders_(std::move(folders)) {}

absl::Status PluginRegistry::Add(const commsched_plugin_list_t* list,
                                 absl::string_view origin) {
  MutexLock lock(&mu_);
  std::string found;
  return AddLocked(list, origin, &found);
}

absl::Status PluginRegistry::AddLocked(const commsched_plugin_list_t* list,
                                       absl::string_view origin,
                                       std::string* out_found) {
  ASSIGN_OR_RETURN(std::vector<Plugin> added, ReadPluginList(list, origin));
  for (const Plugin& plugin : added) {
    for (const Plugin& other : plugins_) {
      if (other.kind != plugin.kind || other.name != plugin.name) continue;
      return absl::AlreadyExistsError(
          absl::StrCat(PluginKindName(plugin.kind), " '", plugin.name,
                       "' is already registered (", other.origin, ")"));
    }
  }
  RETURN_IF_ERROR(Init(*list, origin, out_found));
  for (Plugin& plugin : added) plugins_.push_back(std::move(plugin));
  return absl::OkStatus();
}

absl::Status PluginRegistry::Load(absl::string_view name_or_path) {
  MutexLock lock(&mu_);
  return LoadLocked(name_or_path);
}

absl::Status PluginRegistry::LoadLocked(absl::string_view name_or_path) {
  if (name_or_path.find('/') != absl::string_view::npos) {
    return LoadFileLocked(std::string(name_or_path));
  }
  std::vector<std::string> tried;
  for (const std::string& folder : folders_) {
    tried.push_back(absl::StrCat(folder, "/", kPrefix, name_or_path, kSuffix));
    const absl::Status loaded = LoadFileLocked(tried.back());
    if (!absl::IsNotFound(loaded)) return loaded;
  }
  return absl::NotFoundError(
      absl::StrCat("no plugin '", name_or_path, "'; tried ",
                   tried.empty() ? "no folder" : absl::StrJoin(tried, ", ")));
}

absl::Status PluginRegistry::LoadAll() {
  MutexLock lock(&mu_);
  absl::Status first;
  for (const std::string& folder : folders_) {
    for (const std::string& path : PluginFilesIn(folder)) {
      first.Update(LoadFileLocked(path));
    }
  }
  return first;
}

// Tries one path, and logs and remembers what came of it.
absl::Status PluginRegistry::LoadFileLocked(const std::string& path) {
  std::error_code error;
  const std::string resolved = fs::canonical(path, error).string();
  if (!error && loaded_.count(resolved) != 0) return absl::OkStatus();
  std::string found;
  absl::Status outcome = error ? absl::NotFoundError(absl::StrCat(
                                     "plugin ", path, ": ", error.message()))
                               : OpenLocked(resolved, &found);
  if (!outcome.ok() && !error) {
    // Not NotFound: the file is there.
    outcome = absl::Status(
        absl::IsNotFound(outcome) ? absl::StatusCode::kFailedPrecondition
                                  : outcome.code(),
        absl::StrCat("plugin ", path, ": ", outcome.message()));
  }
  if (outcome.ok()) {
    loaded_.insert(resolved);
    Log(LogLevel::kInfo, "plugin ", path, ": loaded", found.empty() ? "" : "; ",
        found);
  } else {
    Log(error ? LogLevel::kDebug : LogLevel::kWarning, outcome.message());
  }
  attempts_.erase(std::remove_if(attempts_.begin(), attempts_.end(),
                                 [&](const Attempt& attempt) {
                                   return attempt.path == path;
                                 }),
                  attempts_.end());
  attempts_.push_back({path, outcome, found});
  return outcome;
}

// The file is never closed again: its threads, and destructors of its statics,
// may outlive any moment that we could choose.
absl::Status PluginRegistry::OpenLocked(const std::string& path,
                                        std::string* out_found) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    // dlopen() would wait for the writer of a pipe.
    return absl::FailedPreconditionError("not a regular file");
  }
  void* file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    const char* why = dlerror();  // NOLINT(concurrency-mt-unsafe)
    return absl::FailedPreconditionError(why == nullptr ? "dlopen failed"
                                                        : why);
  }
  const void* symbol = dlsym(file, kSymbol);
  if (symbol == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("exports no symbol ", kSymbol));
  }
  return AddLocked(static_cast<const commsched_plugin_list_t*>(symbol), path,
                   out_found);
}

const void* PluginRegistry::KnownLocked(commsched_plugin_kind_t kind,
                                        absl::string_view name) const {
  for (const Plugin& plugin : plugins_) {
    if (plugin.kind == kind && plugin.name == name) return plugin.table.get();
  }
  return nullptr;
}

std::string PluginRegistry::NamesLocked(commsched_plugin_kind_t kind) const {
  std::vector<std::string> names;
  for (const Plugin& plugin : plugins_) {
    if (plugin.kind == kind)
      names.push_back(absl::StrCat("'", plugin.name, "'"));
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

std::string PluginRegistry::NotLoadedLocked() const {
  std::set<std::string> names;
  for (const std::string& folder : folders_) {
    for (const std::string& path : PluginFilesIn(folder)) {
      std::error_code error;
      if (loaded_.count(fs::canonical(path, error).string()) != 0) continue;
      const std::string name = fs::path(path).stem().string();
      names.insert(absl::StrCat("'", name.substr(sizeof(kPrefix) - 1), "'"));
    }
  }
  return absl::StrJoin(names, ", ");
}

absl::StatusOr<const void*> PluginRegistry::Find(commsched_plugin_kind_t kind,
                                                 absl::string_view name) {
  MutexLock lock(&mu_);
  if (const void* known = KnownLocked(kind, name)) return known;
  const absl::string_view kind_name = PluginKindName(kind);
  absl::Status loaded = absl::NotFoundError("a plugin's name contains no '/'");
  if (name.find('/') == absl::string_view::npos) loaded = LoadLocked(name);
  if (const void* known = KnownLocked(kind, name)) return known;
  const std::string others = NotLoadedLocked();
  return absl::NotFoundError(absl::StrCat(
      "no ", kind_name, " is called '", name,
      "'; there are: ", NamesLocked(kind),
      others.empty() ? "" : ", and of some kind, not loaded yet: ", others,
      loaded.ok() ? "" : ". ", loaded.message()));
}

absl::StatusOr<const commsched_backend_t*> PluginRegistry::Backend(
    absl::string_view name) {
  ASSIGN_OR_RETURN(const void* table, Find(COMMSCHED_PLUGIN_BACKEND, name));
  return static_cast<const commsched_backend_t*>(table);
}

absl::StatusOr<const commsched_policy_t*> PluginRegistry::Policy(
    absl::string_view name) {
  ASSIGN_OR_RETURN(const void* table, Find(COMMSCHED_PLUGIN_POLICY, name));
  return static_cast<const commsched_policy_t*>(table);
}

absl::StatusOr<const commsched_codec_t*> PluginRegistry::Codec(
    absl::string_view name) {
  ASSIGN_OR_RETURN(const void* table, Find(COMMSCHED_PLUGIN_CODEC, name));
  return static_cast<const commsched_codec_t*>(table);
}

absl::StatusOr<const commsched_observer_t*> PluginRegistry::Observer(
    absl::string_view name) {
  ASSIGN_OR_RETURN(const void* table, Find(COMMSCHED_PLUGIN_OBSERVER, name));
  return static_cast<const commsched_observer_t*>(table);
}

std::vector<Plugin> PluginRegistry::plugins() const {
  MutexLock lock(&mu_);
  return plugins_;
}

std::vector<PluginRegistry::Attempt> PluginRegistry::attempts() const {
  MutexLock lock(&mu_);
  return attempts_;
}

}  // namespace commsched
