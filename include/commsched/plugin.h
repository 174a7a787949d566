/// The table that a backend fills in: all that a backend plugin may include.
///
/// ABI v0: it may still change between minor versions. The built-in backends
/// ("inproc", "null") are reached through this table and nothing else. Loading
/// plugins at run time comes with a later version.
///
/// Life of a communicator: every member calls comm_create with the same id;
/// then, in the same order on every member, launch() for each launch, which
/// never blocks; then poll() from the same thread until it says done; destroy
/// when nothing is in flight, or abort first. Launches of a communicator become
/// done in the order in which they were launched: poll the oldest first. A
/// launch that fails breaks the communicator for all its members, as
/// comm_abort() with its status would.
#ifndef COMMSCHED_PLUGIN_H_
#define COMMSCHED_PLUGIN_H_

#include <stdint.h>

#include "commsched/status.h"
#include "commsched/stream.h"
#include "commsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { COMMSCHED_BACKEND_ABI = 0 };

/// What a backend can do, or'ed.
enum {
  /// launch() takes more than one member.
  COMMSCHED_BACKEND_VECTORED = 1,
  /// launch() completes before it returns; poll() is not called.
  COMMSCHED_BACKEND_INLINE = 2,
  /// launch() enqueues on a device stream; poll() is not called, completion is
  /// seen through events of that stream.
  COMMSCHED_BACKEND_STREAM_ORDERED = 4,
  /// Reductions can be asked to sum in rank order.
  COMMSCHED_BACKEND_DETERMINISTIC = 8,
  /// Takes members whose parts are not dense (input_stride, output_stride).
  COMMSCHED_BACKEND_STRIDED = 16,
  /// Takes launches of kind SEND: lists of sends and receives, which are
  /// matched per pair of ranks in the order of launches and of lists.
  COMMSCHED_BACKEND_P2P = 32
};

/// What the host offers to a backend. Valid until finalize returns.
typedef struct commsched_host {
  uint64_t struct_size;
  void* user;
  void (*log)(void* user, int32_t level, const char* message);
  int64_t (*now_ns)(void* user);
} commsched_host_t;

/// How a communicator is made.
typedef struct commsched_comm_desc {
  uint64_t struct_size;
  const char* id;        ///< Equal on all members, different for each comm.
  const char* axis;      ///< For messages.
  const int32_t* ranks;  ///< World ranks of the members, in group order.
  int32_t size;
  int32_t rank;  ///< This member.
  int32_t world_rank;
  uint32_t max_in_flight;  ///< Launches that may be posted and not yet done.
  uint32_t max_members;    ///< Members of the largest launch.
  /// Called when a poll() of this communicator may have become useful. From any
  /// thread, often; must not call the backend.
  void (*wake)(void* user);
  void* wake_user;
} commsched_comm_desc_t;

/// One collective of a launch. Addresses are resolved; counts are elements.
typedef struct commsched_member {
  const void* input;
  void* output;
  /// ALL_REDUCE, BROADCAST, REDUCE: elements. REDUCE_SCATTER, ALL_GATHER,
  /// ALL_TO_ALL with equal parts: elements of one part.
  uint64_t count;
  /// Uneven parts as in commsched_collective_desc_t, else NULL. Valid for the
  /// life of the communicator.
  const uint64_t* counts;
  /// Elements from one part to the next where a side has a part per rank; 0:
  /// `count`, parts are dense. Only for a STRIDED backend.
  uint64_t input_stride;
  uint64_t output_stride;
  int32_t peer;        ///< SEND, RECV: rank in the group.
  uint32_t direction;  ///< COMMSCHED_SEND or COMMSCHED_RECV in a launch of
                       ///< kind SEND; else 0.
} commsched_member_t;

/// What a backend is given at once: members of one kind, dtype, reduction,
/// root; or, of kind SEND, sends and receives of one tick, which progress
/// independently of each other. Valid until the launch is done.
typedef struct commsched_launch {
  commsched_collective_t kind;
  commsched_dtype_t dtype;
  commsched_reduce_op_t reduce_op;
  int32_t root;
  uint32_t deterministic;  ///< 1: sum in rank order 0..n-1 (design: I4).
  uint32_t num_members;
  const commsched_member_t* members;
} commsched_launch_t;

typedef struct commsched_launch_result {
  uint32_t done;  ///< 1: complete; the ticket is free again.
  uint32_t reserved;
  int64_t wake_at_ns;  ///< If not done: poll again then at the latest; 0: on
                       ///< wake.
  int64_t started_ns;  ///< If done: when all members had arrived.
  int64_t cpu_ns;      ///< If done: thread-CPU spent by this member.
} commsched_launch_result_t;

typedef struct commsched_backend {
  uint64_t struct_size;
  uint32_t abi;  ///< COMMSCHED_BACKEND_ABI
  uint32_t capabilities;
  const char* name;
  const char* version;

  /// Every function: returns a commsched_status_t; on failure `message`, of
  /// `message_size` bytes, holds a NUL-terminated reason.
  commsched_status_t (*comm_create)(void* backend,
                                    const commsched_comm_desc_t* desc,
                                    void** out_comm, char* message,
                                    uint64_t message_size);
  /// Issues a launch; `ticket` < max_in_flight names it until it is done.
  /// Never blocks, never allocates. `stream` for STREAM_ORDERED only.
  commsched_status_t (*launch)(void* comm, const commsched_launch_t* launch,
                               uint32_t ticket, commsched_stream_t stream,
                               char* message, uint64_t message_size);
  /// Makes progress on the launch `ticket` and reports. Never blocks for
  /// another rank. NULL if INLINE or STREAM_ORDERED. Once it has failed, the
  /// launch's memory is not touched any more.
  commsched_status_t (*poll)(void* comm, uint32_t ticket,
                             commsched_launch_result_t* out_result,
                             char* message, uint64_t message_size);
  /// Fails everything in flight on every member, now and later, and wakes them.
  /// The first failure sticks. Any thread.
  void (*comm_abort)(void* comm, commsched_status_t status,
                     const char* message);
  void (*comm_destroy)(void* comm);
  /// (optional) The communicator's failure, or COMMSCHED_OK: how a member with
  /// nothing in flight learns of an abort, after its `wake`. NULL: it learns
  /// with its next launch.
  commsched_status_t (*comm_status)(void* comm, char* message,
                                    uint64_t message_size);
  /// (optional) Makes memory known before launches use it. NULL: not needed.
  commsched_status_t (*comm_register)(void* comm, void* address, uint64_t bytes,
                                      char* message, uint64_t message_size);
  /// (optional) Fills `out_ranks` with the first `capacity` members, as ranks
  /// of the group, that have not issued what `ticket`, which is not done, waits
  /// for; returns how many there are. 0: all have, or it is not known. From the
  /// thread that polls; never blocks. NULL, or a table that ends before: errors
  /// name no missing rank.
  uint32_t (*comm_missing)(void* comm, uint32_t ticket, int32_t* out_ranks,
                           uint32_t capacity);
} commsched_backend_t;

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_PLUGIN_H_
