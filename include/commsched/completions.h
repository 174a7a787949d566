/// Completions: where one thread learns what has become of the requests of many
/// channels and recordings.
///
/// An object of its own: channels and recordings of any context are given it
/// when they are made (commsched_channel_desc_t, commsched_recording_desc_t).
/// The library calls nobody back: a thread of the program's waits here, and
/// does with what has finished what it likes. Where progress is the caller's,
/// things finish while a call of the recording runs; to wait here drives
/// nothing.
#ifndef COMMSCHED_COMPLETIONS_H_
#define COMMSCHED_COMPLETIONS_H_

#include <stdint.h>

#include "commsched/export.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_completions commsched_completions_t;

/// What has become of one request. Never grows.
typedef struct commsched_completion {
  uint64_t key;  ///< That its channel or recording was given.
  /// Its number in the channel, or among the submissions of the recording that
  /// were accepted, from 1 on.
  uint64_t request;
  /// What was submitted with it (commsched_channel_op_t); of a recording, the
  /// id of the collective.
  uint64_t user;
  /// OK, or what the channel or recording has failed with, whose status has the
  /// message (commsched_channel_status(), commsched_recording_status()).
  /// ABORTED if the recording was destroyed before.
  commsched_status_t status;
  uint32_t reserved;  ///< 0.
} commsched_completion_t;

enum { COMMSCHED_MAX_COMPLETIONS = 1048576 };

/// Creates completions with room for `capacity` requests: those that have not
/// finished, and those that have and are not taken. A submit that finds no room
/// is RESOURCE_EXHAUSTED. Memory grows with what there is at once, 32 bytes
/// each.
///
/// Ownership: channels and recordings keep what they need. Release with
///            commsched_completions_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, or `capacity` not in
///                              1..COMMSCHED_MAX_COMPLETIONS
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_completions_create(
    uint64_t capacity, commsched_completions_t** out_completions);

/// Takes what has finished, in the order in which it did: up to `num_out` of
/// them, and at least one, for which it waits up to `timeout_ns`. 0: what there
/// is now. INT64_MAX: as long as it takes. When the time is over, or upon
/// commsched_completions_wake(), it is none: `*out_count` is 0, which is no
/// error.
///
/// Each completion is taken once. It may be there before the submit that it is
/// of has returned; `user` tells them apart.
///
/// Threads:   any; of several that wait each gets others.
/// Blocks:    up to `timeout_ns`.
/// Errors:    INVALID_ARGUMENT  NULL, `num_out` 0, `timeout_ns` below 0
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_completions_next(
    commsched_completions_t* completions, commsched_completion_t* out,
    uint64_t num_out, int64_t timeout_ns, uint64_t* out_count);

/// Ends a commsched_completions_next() that waits, or else the next one that
/// would: for who wants its thread back.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
/// Since:     0.2
COMMSCHED_API commsched_status_t
commsched_completions_wake(commsched_completions_t* completions);

/// Gives up the handle; what finishes later nobody learns of. Accepts
/// NULL.
///
/// Threads:   any, once; nobody may be in commsched_completions_next().
/// Since:     0.2
COMMSCHED_API void commsched_completions_destroy(
    commsched_completions_t* completions);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_COMPLETIONS_H_
