// The plugins that this process can use, and what became of the others.
#ifndef COMMSCHED_SRC_COMM_PLUGIN_REGISTRY_H_
#define COMMSCHED_SRC_COMM_PLUGIN_REGISTRY_H_

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"
#include "comm/plugin/tables.h"
#include "commsched/plugin.h"

namespace commsched {

// Plugins by kind and name: the built-in ones, and those loaded from files.
// Tables and files stay until the process ends.
//
// A file is looked for under "commsched_<name>.so" in the folders given, in
// order, unless its path is given. Every path that is tried is logged (info:
// loaded; debug: not there; warning: there, but unusable) and remembered.
//
// Thread-safe. A plugin's init runs with the lock held, so that it must not
// call the library.
class PluginRegistry {
 public:
  // One path that was tried.
  struct Attempt {
    std::string path;
    absl::Status outcome;  // OK: loaded; NotFound: no such file
    std::string found;     // What the plugin's init had to say, if loaded.
  };

  // Holds the built-in plugins. Its folders: those of COMMSCHED_PLUGIN_PATH,
  // then "commsched/plugins" beside the library.
  static PluginRegistry& Process();

  explicit PluginRegistry(std::vector<std::string> folders);
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  // Adds the plugins of a list, all or none, calling its init. What
  // ReadPluginList refuses; AlreadyExists for a name that is taken; what init
  // returns.
  absl::Status Add(const commsched_plugin_list_t* list,
                   absl::string_view origin);

  // Loads a file: the path given, if there is a '/' in it, else by name. A file
  // that has been loaded is not loaded again. NotFound, naming every path that
  // was tried; or why the first that is there cannot be used.
  absl::Status Load(absl::string_view name_or_path);

  // Loads every "commsched_*.so" of the folders. The first failure, if any.
  absl::Status LoadAll();

  // By name; loads the file of that name if need be. NotFound, listing the
  // names there are and the paths that were tried, or why the file could not be
  // used.
  absl::StatusOr<const commsched_backend_t*> Backend(absl::string_view name);
  absl::StatusOr<const commsched_policy_t*> Policy(absl::string_view name);
  absl::StatusOr<const commsched_codec_t*> Codec(absl::string_view name);
  absl::StatusOr<const commsched_observer_t*> Observer(absl::string_view name);

  std::vector<Plugin> plugins() const;    // in the order of loading
  std::vector<Attempt> attempts() const;  // the latest of each path
  const std::vector<std::string>& folders() const { return folders_; }

 private:
  absl::Status AddLocked(const commsched_plugin_list_t* list,
                         absl::string_view origin, std::string* out_found)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadLocked(absl::string_view name_or_path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status LoadFileLocked(const std::string& path)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status OpenLocked(const std::string& path, std::string* out_found)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const void* KnownLocked(commsched_plugin_kind_t kind,
                          absl::string_view name) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<const void*> Find(commsched_plugin_kind_t kind,
                                   absl::string_view name);
  // Of files on the search path, whose kinds nobody knows yet; "": none.
  std::string NotLoadedLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string NamesLocked(commsched_plugin_kind_t kind) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::vector<std::string> folders_;

  mutable Mutex mu_;
  std::vector<Plugin> plugins_ ABSL_GUARDED_BY(mu_);
  std::vector<Attempt> attempts_ ABSL_GUARDED_BY(mu_);
  std::set<std::string> loaded_ ABSL_GUARDED_BY(mu_);  // resolved paths
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_PLUGIN_REGISTRY_H_
