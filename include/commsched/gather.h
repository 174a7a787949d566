/// Gathering: ranks show each other small things, off the hot path.
#ifndef COMMSCHED_GATHER_H_
#define COMMSCHED_GATHER_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/status.h"
#include "commsched/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What all ranks may show together, in bytes.
enum { COMMSCHED_MAX_GATHER_BYTES = 32 << 20 };

typedef struct commsched_gather_desc {
  uint64_t struct_size;
  const char* name;  ///< What is shown. Ranks meet by it.
  const void* data;  ///< What this rank shows; NULL only if `bytes` is 0.
  uint64_t bytes;
  int64_t timeout_ns;  ///< 0: COMMSCHED_TIMEOUT_S, or 600 s.
  /// Called on the calling thread for each rank of the world, in their order,
  /// with what it shows, which is valid during the call. None is called if the
  /// gathering fails.
  void (*take)(void* user, int32_t rank, const void* data, uint64_t bytes);
  void* user;
} commsched_gather_desc_t;

static inline commsched_gather_desc_t commsched_gather_desc_init(void) {
  commsched_gather_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Shows every rank of the world what all of them have. For figures and names,
/// not for tensors: of processes, all of it goes through the control server.
///
/// Gatherings of one name are numbered in the order of the calls: ranks meet in
/// the first, then in the second, and so on.
///
/// Shape:     `bytes` may differ between ranks.
/// Ownership: `desc` is read during the call.
/// Threads:   any; of one name, one thread per rank at a time.
/// Blocks:    until all ranks have called, at most `timeout_ns`.
/// Errors:    INVALID_ARGUMENT    NULL, an empty name, a negative timeout
///            RESOURCE_EXHAUSTED  more than COMMSCHED_MAX_GATHER_BYTES together
///            ABORTED             a rank is lost
///            DEADLINE_EXCEEDED   not all came; names those missing
///            Then every rank that comes gets an error.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_context_gather(
    commsched_context_t* context, const commsched_gather_desc_t* desc);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_GATHER_H_
