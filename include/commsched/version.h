/// Which commsched a program was compiled against, and which one it runs with.
#ifndef COMMSCHED_VERSION_H_
#define COMMSCHED_VERSION_H_

#include "commsched/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The version of these headers. Before 1.0 a new minor version may break
/// callers; a new patch version never does.
enum {
  COMMSCHED_VERSION_MAJOR = 0,
  COMMSCHED_VERSION_MINOR = 1,
  COMMSCHED_VERSION_PATCH = 0
};

/// Returns the version of the loaded library as "major.minor.patch".
///
/// Ownership: the library's, valid until it is unloaded.
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API const char* commsched_version(void);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_VERSION_H_
