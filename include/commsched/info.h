/// Plugins: loading them, and what this library can use and why not more.
#ifndef COMMSCHED_INFO_H_
#define COMMSCHED_INFO_H_

#include <stdint.h>

#include "commsched/export.h"
#include "commsched/plan.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Or'ed.
enum {
  /// A plugin that cannot be loaded is an error, not only a line in the log and
  /// in commsched_info().
  COMMSCHED_PLUGIN_REQUIRED = 1
};

/// Loads the plugins of one file, or, if `name_or_path` is NULL, of every file
/// on the search path.
///
/// With a '/' in it, `name_or_path` is the path of a file. Otherwise the file
/// is `commsched_<name>.so`, in the first folder that has it: those of the
/// environment variable COMMSCHED_PLUGIN_PATH (read once, separated by colons),
/// then `commsched/plugins` beside the library. Every path that is tried is
/// logged, and remembered for commsched_info(). Loading a file again does
/// nothing. Plugins stay until the process ends.
///
/// A backend, policy, codec or observer that is asked for by name and not known
/// is looked for in the same way, so that calling this is for files of other
/// names, and for saying early that something is REQUIRED.
///
/// Threads:   any.
/// Blocks:    while files are read; while plugins initialise themselves.
/// Errors:    INVALID_ARGUMENT     an unknown flag
///            and with REQUIRED:
///            NOT_FOUND            no such file: names every path tried
///            INVALID_ARGUMENT     a table that makes no sense: names field and
///                                 value
///            FAILED_PRECONDITION  not loadable, or made for another ABI
///            ALREADY_EXISTS       a plugin of its name is there
///            or why the plugin says that it cannot be used
///            No plugin of a file that fails is there afterwards.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_plugin_load(const char* name_or_path,
                                                       uint32_t flags);

/// Describes the library: version and ABI; backends, policies, codecs and
/// observers with versions and origins; the search path and what became of each
/// file tried; environment variables.
///
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, a format other than TEXT and JSON
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_info(commsched_format_t format,
                                                char** out_text);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_INFO_H_
