/// Channels: collectives, sends and receives without a graph, over one group.
///
/// What is submitted goes out in the order of the submits and on memory that
/// each of them names; it needs no plan and no steps. Who has steps that are
/// alike is better served by a session or a recording, which merge and order
/// what they launch; a channel is for what comes in between, and beside them.
///
/// Collectives of a channel go in one order: all members submit the same ones
/// in that order, and they finish in it. Sends and receives are matched by pair
/// of ranks and tag, in the order of their submits, and wait for nothing else:
/// a receive may be submitted long before its send, and pairs and rings in any
/// order.
///
/// Where the backend enqueues on streams of a device, who submits enqueues, and
/// memory is the device's. There are no tags; what a pair of ranks sends and
/// receives goes in the order of its submits, both ways: two that both send
/// first wait for each other, which is an error at the deadline. A batch is one
/// launch, which waits for no other, and meets the batches of other ranks, not
/// what they submit one by one. A rank's first send to another, or receive from
/// it, makes the connection of the pair; nobody waits for that. But a first
/// launch of a kind, size and type for which the backend has something to
/// connect may wait for the other members in its call: f32 in some sizes is
/// connected when the channel is made, and, among up to 16 ranks, batches.
///
/// A failure is the channel's: the first one sticks, every member learns of it,
/// every later call returns it, and all that has not finished finishes with it.
/// A rank that is lost fails the channels of its groups, and no others. Buffers
/// of requests that had not finished then must stay until the channel is
/// destroyed.
#ifndef COMMSCHED_CHANNEL_H_
#define COMMSCHED_CHANNEL_H_

#include <stdint.h>
#include <string.h>

#include "commsched/completions.h"
#include "commsched/export.h"
#include "commsched/group.h"
#include "commsched/status.h"
#include "commsched/stream.h"
#include "commsched/trace.h"
#include "commsched/types.h"
#include "commsched/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_channel commsched_channel_t;

/// Kinds that only channels have, beside those of commsched_collective_t. n is
/// the size of the group, and the root is `peer`.
enum {
  COMMSCHED_GATHER = 32,  ///< every in c (or counts[rank]) -> root's out n*c
  COMMSCHED_SCATTER = 33  ///< root's in n*c -> every out c (or counts[rank])
};

/// In place of a peer: any. Refused by name, until there is something for it.
enum { COMMSCHED_ANY_PEER = -1 };

/// Limits of a channel.
enum {
  COMMSCHED_MAX_COLLECTIVES_IN_FLIGHT = 64,
  COMMSCHED_MAX_TRANSFERS_IN_FLIGHT = 256
};

typedef struct commsched_channel_desc {
  uint64_t struct_size;
  /// Where the channel tells what has finished; NULL: nowhere. Kept alive.
  commsched_completions_t* completions;
  uint64_t key;  ///< What its completions call the channel.
  /// The window: collectives that are under way at once; 0: the most. Those
  /// beyond wait in the channel. Equal on all members.
  uint32_t max_in_flight;
  /// The same of sends and receives, gathers and scatters apart.
  uint32_t max_transfers;
  /// Bytes of collectives that are under way at once, as far as there are
  /// several; 0: no limit.
  uint64_t max_bytes_in_flight;
  /// How long a launch may take once those before it are complete, and how long
  /// creation may wait for other members; 0: COMMSCHED_TIMEOUT_S.
  int64_t launch_timeout_ns;
  /// File for the flight record; NULL: none. Copied.
  const char* flight_path;
  /// Where launches are recorded; NULL: nowhere. Kept alive. It may be that of
  /// a session and of other channels of the rank; while the channel is created
  /// nobody else may use it.
  commsched_trace_t* trace;
} commsched_channel_desc_t;

static inline commsched_channel_desc_t commsched_channel_desc_init(void) {
  commsched_channel_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// What is submitted. n is the size of the group; peers and roots are ranks in
/// it.
typedef struct commsched_channel_op {
  uint64_t struct_size;
  commsched_collective_t kind;
  commsched_dtype_t dtype;  ///< Any (docs/types.md).
  commsched_reduce_op_t reduce_op;
  int32_t peer;  ///< SEND, RECV: the other one; rooted kinds: the root.
  uint64_t tag;  ///< SEND, RECV: below 2^63; 0 on a device.
  /// As commsched_collective_t says; NULL for a side that the rank has not. In
  /// place, where a graph's collective may be: input and output, or this rank's
  /// part in the whole, are the same memory.
  const void* input;
  void* output;
  /// Elements; of kinds with parts, of one part. Unused if there are `counts`.
  uint64_t count;
  /// Uneven parts: n of REDUCE_SCATTER, ALL_GATHER, GATHER and SCATTER, equal
  /// on all members; of ALL_TO_ALL 2n, which are this rank's own: what it sends
  /// to each, then what it gets of each. Else NULL. Read during the call.
  const uint64_t* counts;
  uint32_t num_counts;
  uint32_t deterministic;  ///< 1: sums in the order of the tree (I4).
  uint64_t user;           ///< For the completion.
  double scale;            ///< PREMUL_SUM: what each input is multiplied by.
} commsched_channel_op_t;

static inline commsched_channel_op_t commsched_channel_op_init(void) {
  commsched_channel_op_t op;
  memset(&op, 0, sizeof(op));
  op.struct_size = sizeof(op);
  return op;
}

/// Creates a channel over `group`. Collective: all members of the group call
/// this, and nobody else. Two that have several channels in common create them
/// in one order; if they do not, both get an error at once that names what each
/// of them creates.
///
/// The channel is a communicator of its own, which gets on by the rank's
/// progress thread, and in calls that wait. On a device it is two, of which one
/// is for batches, and one for each pair of ranks that has sent something.
///
/// Shape:     `desc` may be NULL: all its fields are 0.
/// Ownership: what is passed is copied, or kept alive. Release with
///            commsched_channel_destroy().
/// Threads:   any, one of a rank at a time.
/// Blocks:    until all members have come, up to `launch_timeout_ns`.
/// Errors:    INVALID_ARGUMENT     NULL, a group of another context, a limit
///                                 above the most, a timeout below 0
///            FAILED_PRECONDITION  a member creates another channel, has other
///                                 limits, or cannot take part
///            DEADLINE_EXCEEDED    a member has not come, or is not connected
///            RESOURCE_EXHAUSTED   no thread
///            On error no member has a channel.
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_channel_create(
    commsched_context_t* context, commsched_group_t* group,
    const commsched_channel_desc_t* desc, commsched_channel_t** out_channel);

/// Waits until all that was submitted has finished, and releases everything. To
/// be rid of a channel whose peers may not answer, abort it before. Accepts
/// NULL.
///
/// Threads:   any, once; no other call of the channel may be running.
/// Blocks:    as long as deadlines let it; then up to `launch_timeout_ns` for
///            what is still under way after a failure.
/// Since:     0.2
COMMSCHED_API void commsched_channel_destroy(commsched_channel_t* channel);

/// Submits `op`, which goes out once what `stream` has been given so far is
/// done, and what was submitted before it is out; `*out_request` is its number:
/// 1, 2, 3, ... A shape no larger than one that was submitted before allocates
/// nothing.
///
/// Ownership: `op` and its counts are read during the call. Buffers stay the
///            caller's, who leaves them alone until the request has finished.
///            A HOST stream must outlive the channel.
/// Threads:   any; collectives that several threads submit are in the order in
///            which the calls happen to be made, which the program has to make
///            the same on all members.
/// Blocks:    never for another rank. For room in `stream`, if it is full.
/// Errors:    INVALID_ARGUMENT    NULL, an unknown kind or type, a buffer that
///                                is NULL, misaligned, on another device, or
///                                overlaps other than in place, a peer, root
///                                or tag out of range, counts of another
///                                number, a stream of elsewhere
///            FAILED_PRECONDITION `stream` is being captured
///            UNIMPLEMENTED       what the backend does not do: sends and
///                                receives, gathers, scatters, own counts, a
///                                type, a reduction; COMMSCHED_ANY_PEER
///            RESOURCE_EXHAUSTED  no room in its completions
///            and the channel's first failure. Then nothing was submitted.
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_channel_submit(
    commsched_channel_t* channel, const commsched_channel_op_t* op,
    commsched_stream_t stream, uint64_t* out_request);

/// Submits sends and receives that finish together, as one request. `user` is
/// that of the first.
///
/// Shape:     `ops`: `num_ops` pointers, at least 1. Up to 64, or 2n if that is
///            more, may have the same tag.
/// Ownership: as commsched_channel_submit(), as all that follows.
/// Threads:   any.
/// Blocks:    never for another rank.
/// Errors:    as commsched_channel_submit(), and
///            INVALID_ARGUMENT  no ops, another kind. Then nothing of the batch
///                              was submitted.
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_channel_submit_batch(
    commsched_channel_t* channel, const commsched_channel_op_t* const* ops,
    uint32_t num_ops, commsched_stream_t stream, uint64_t* out_request);

/// Says whether `request` has finished: 0 or 1.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            OUT_OF_RANGE      nothing of that number has been submitted
///            and the channel's first failure
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_channel_test(
    commsched_channel_t* channel, uint64_t request, uint32_t* out_done);

/// Waits until `request` has finished, up to `timeout_ns`. 0: looks once.
/// INT64_MAX: until the channel's own deadline, which fails it.
///
/// Threads:   any number.
/// Blocks:    up to `timeout_ns`.
/// Errors:    INVALID_ARGUMENT   NULL, `timeout_ns` below 0
///            OUT_OF_RANGE       nothing of that number has been submitted
///            DEADLINE_EXCEEDED  it has not finished; it may be waited for
///            again and the channel's first failure
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_channel_wait(
    commsched_channel_t* channel, uint64_t request, int64_t timeout_ns);

/// Has `stream` wait: work enqueued on it from now on comes after `request`.
/// Where it is the caller, the call waits.
///
/// Ownership: as commsched_channel_submit().
/// Threads:   any.
/// Blocks:    a CALLER stream until the request has finished; one of a device
///            until the request is on its stream, which it is at once but for
///            the first of a pair of ranks, and those beyond the window.
/// Errors:    INVALID_ARGUMENT  NULL, not a stream, one of elsewhere
///            OUT_OF_RANGE      nothing of that number has been submitted
///            and the channel's first failure
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_channel_before(
    commsched_channel_t* channel, uint64_t request, commsched_stream_t stream);

/// Fails the channel on all members: their calls return ABORTED with `reason`
/// and this rank's number. Accepts NULL.
///
/// Threads:   any.
/// Blocks:    never.
/// Since:     0.2
COMMSCHED_API void commsched_channel_abort(commsched_channel_t* channel,
                                           const char* reason);

/// Returns the channel's first failure, or OK.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, and the first failure
/// Since:     0.2
COMMSCHED_API commsched_status_t
commsched_channel_status(const commsched_channel_t* channel);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_CHANNEL_H_
