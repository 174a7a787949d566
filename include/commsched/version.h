/// Which commsched a program was compiled against, and which one it runs with.
#ifndef COMMSCHED_VERSION_H_
#define COMMSCHED_VERSION_H_

#include <stdint.h>

#include "commsched/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The version of these headers. Before 1.0 a new minor version may break
/// callers; a new patch version never does.
enum {
  COMMSCHED_VERSION_MAJOR = 0,
  COMMSCHED_VERSION_MINOR = 2,
  COMMSCHED_VERSION_PATCH = 0
};

/// The version of the ABI that these headers describe: raised when a caller
/// needs to know that the library knows something new. A library refuses a
/// caller whose number is above its own (commsched_world_create_inproc()).
enum { COMMSCHED_ABI_VERSION = 1 };

/// Returns the version of the loaded library as "major.minor.patch".
///
/// Ownership: the library's, valid until it is unloaded.
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API const char* commsched_version(void);

/// Returns the COMMSCHED_ABI_VERSION that the loaded library was built with,
/// for callers without headers (foreign-function interfaces).
///
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API uint32_t commsched_abi_version(void);

/// Returns a description of the ABI in JSON, for callers without headers.
///
/// It has the size of every struct, the type, offset and default of each field,
/// the values of all enumerators and constants, and the result and parameters
/// of every function. The engine's library and the tables of plugins are in it,
/// too. docs/abi.md, "Bindings", lists the keys.
///
/// Shape:     UTF-8, ended by a NUL. While the key "version" is 1, keys keep
///            their meaning; new ones may be added.
/// Ownership: the library's, valid until the process ends. Every call returns
///            the same pointer.
/// Threads:   any.
/// Blocks:    while the first call makes the text.
/// Errors:    NULL if there is no memory for the text. The next call tries
///            again.
/// Since:     0.2
COMMSCHED_API const char* commsched_abi_json(void);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_VERSION_H_
