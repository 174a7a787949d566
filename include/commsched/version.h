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

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_VERSION_H_
