/// Pools: a second memory for what a step needs only for a moment, such as the
/// optimizer's state (commsched_engine_desc_t: optimizer_pool) or gradients
/// that wait for it (gradient_pool). Larger and slower than that of the step,
/// which it is copied to and from.
///
/// A pool is a table of functions, so that a program can bring its own; the
/// library has one that is a file. Functions here leave their message where
/// commsched_engine_last_error() finds it. Library: libcommsched_engine.
#ifndef COMMSCHED_POOL_H_
#define COMMSCHED_POOL_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/// A pool of one engine. One function runs at a time, but on several threads:
/// within steps on that of the copies.
typedef struct commsched_pool {
  uint64_t struct_size;
  void* user;
  /// Makes room for `bytes`, which then read as zeros. Comes once, before the
  /// others. What cannot be had is found here and not in a step.
  commsched_status_t (*reserve)(void* user, uint64_t bytes);
  /// Copies `bytes` from `offset` on. Never beyond what was reserved.
  commsched_status_t (*read)(void* user, uint64_t offset, void* out,
                             uint64_t bytes);
  commsched_status_t (*write)(void* user, uint64_t offset, const void* from,
                              uint64_t bytes);
  /// Message of the call that has just failed, valid until the next one. NULL:
  /// none but the code.
  const char* (*last_error)(void* user);
} commsched_pool_t;

static inline commsched_pool_t commsched_pool_init(void) {
  commsched_pool_t pool;
  memset(&pool, 0, sizeof(pool));
  pool.struct_size = sizeof(pool);
  return pool;
}

/// A pool that is a file without a name.
typedef struct commsched_file_pool commsched_file_pool_t;

/// Makes an empty file in `folder`. It has no name there, so that nothing is
/// left of it when the process ends, however that comes. Its bytes are taken
/// from the file system when they are reserved: a step finds no disk full.
///
/// Ownership: `folder` is read during the call. Release with
///            commsched_file_pool_destroy().
/// Threads:   any.
/// Blocks:    for the file system.
/// Errors:    INVALID_ARGUMENT    NULL; `folder` is not a folder
///            NOT_FOUND           there is no `folder`
///            PERMISSION_DENIED   no file may be made in it
///            RESOURCE_EXHAUSTED  no room for a file
///            UNAVAILABLE         the file system fails otherwise
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_file_pool_create(
    const char* folder, commsched_file_pool_t** out_pool);

/// Returns the table of `pool`, which must not be NULL. It reserves once:
/// RESOURCE_EXHAUSTED if the file system has no room, FAILED_PRECONDITION the
/// second time.
///
/// Ownership: `pool` must outlive what uses the table.
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API commsched_pool_t
commsched_file_pool_table(commsched_file_pool_t* pool);

/// Removes the file. Accepts NULL.
///
/// Threads:   any, once per handle, after what uses its table.
/// Blocks:    for the file system.
/// Since:     0.1
COMMSCHED_API void commsched_file_pool_destroy(commsched_file_pool_t* pool);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_POOL_H_
