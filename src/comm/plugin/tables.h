// What crosses the plugin boundary inwards: lists of tables, checked and
// copied.
#ifndef COMMSCHED_SRC_COMM_PLUGIN_TABLES_H_
#define COMMSCHED_SRC_COMM_PLUGIN_TABLES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "commsched/plugin.h"

namespace commsched {

// One plugin whose table has been checked. `table` is a copy of the size that
// this library knows: what a shorter one lacks is NULL or 0, and flags that we
// do not know are cleared. Its strings are the plugin's.
struct Plugin {
  commsched_plugin_kind_t kind = COMMSCHED_PLUGIN_BACKEND;
  std::string name;
  std::string version;
  std::string origin;  // "built in", or the path of the file
  std::shared_ptr<const void> table;
};

// "backend", "policy", "codec", "observer".
absl::string_view PluginKindName(commsched_plugin_kind_t kind);

// The plugins of `list`; none if one of them cannot be used. InvalidArgument,
// naming plugin, field, value and limit; FailedPrecondition for an ABI version
// that this library does not know; Unimplemented for a backend that needs what
// this version has not.
//
// Nothing of the plugin is called. Pointers cannot be checked, apart from NULL.
absl::StatusOr<std::vector<Plugin>> ReadPluginList(
    const commsched_plugin_list_t* list, absl::string_view origin);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_PLUGIN_TABLES_H_
