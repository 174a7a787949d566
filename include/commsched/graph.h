/// The graph: what must happen in one training step.
///
/// Ops are declared in an order in which they could run one after the other.
/// Each declares what it reads and writes; the dependencies follow from that,
/// within the step and across the step boundary: a graph is cyclic, and what an
/// op of step t wrote may be read in step t+1. Functions that add leave the
/// graph unchanged when they fail.
///
/// A name is 1 to 256 bytes of UTF-8 without NUL; functions that add fail with
/// INVALID_ARGUMENT on any other.
///
/// Threads, for every function here: one thread per graph at a time, but calls
/// that take a const graph may run at once; separate graphs are independent.
/// None blocks.
#ifndef COMMSCHED_GRAPH_H_
#define COMMSCHED_GRAPH_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/status.h"
#include "commsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_graph commsched_graph_t;

/// Who owns a buffer's memory. A whole write to an OWNED buffer that no earlier
/// op of the step accesses starts it anew: what that op leaves unwritten, as a
/// collective with counts may, is undefined. So is OWNED memory before the
/// first step. What is read of it must be written by some op of the step, be it
/// a later one: planning refuses a graph that reads what nobody writes.
typedef uint32_t commsched_ownership_t;
enum {
  COMMSCHED_OWNED = 0,  ///< Placed in the plan's arena.
  COMMSCHED_BOUND = 1,  ///< The caller's; address given to the session.
  /// The caller's; address and count arrive in every step, with the `after` of
  /// the one compute op that writes the buffer. That op is the first to access
  /// it. Every access is WHOLE.
  COMMSCHED_LATE_BOUND = 2
};

typedef struct commsched_buffer_desc {
  uint64_t struct_size;
  const char* name;         ///< Unique among buffers; copied.
  commsched_dtype_t dtype;  ///< F32 to U8.
  commsched_ownership_t ownership;
  uint64_t count;  ///< Elements, at least 1; LATE_BOUND: at most so many.
  /// OWNED: all buffers of one number other than 0 are a place group. They lie
  /// at one address, the same in every step, and take turns there; their dtypes
  /// and counts may differ. In the order of declaration the first op to access
  /// one of them writes the whole of it and does not read it, and comes after
  /// the last op to access the one before. What is left there by the one before
  /// is undefined. Planning refuses a graph in which two are alive at once, and
  /// otherwise keeps them apart: the first op of one waits for all that access
  /// the one before, also from step to step.
  uint32_t place_group;
  uint32_t reserved;
} commsched_buffer_desc_t;

static inline commsched_buffer_desc_t commsched_buffer_desc_init(void) {
  commsched_buffer_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Part of a buffer.
typedef uint32_t commsched_region_kind_t;
enum {
  COMMSCHED_WHOLE = 0,
  COMMSCHED_RANGE = 1,  ///< `count` elements from `offset`.
  /// This rank's part of the whole buffer among `group`: equal parts in rank
  /// order, or the collective's own `counts`. Resolved when a session binds.
  COMMSCHED_SHARD = 2,
  /// `rows` rows of `count` elements, the first at `offset`, each `stride`
  /// after the one before: a range of heads of a [tokens, heads, dim] array. A
  /// collective takes it as a dense [rows, count] array; where it splits it,
  /// part p is a range of columns of every row, packed row by row.
  COMMSCHED_TILE = 3
};

typedef uint32_t commsched_access_mode_t;
enum { COMMSCHED_READ = 1, COMMSCHED_WRITE = 2, COMMSCHED_READ_WRITE = 3 };

/// One access. Zero-initialise, then set; a plain struct so that arrays of it
/// are easy to write. Never grows.
typedef struct commsched_access {
  commsched_buffer_id_t buffer;
  commsched_access_mode_t mode;  ///< Ignored in collectives.
  commsched_region_kind_t region;
  commsched_group_id_t group;  ///< SHARD only.
  uint64_t offset;             ///< RANGE and TILE, elements.
  uint64_t count;              ///< RANGE: elements. TILE: elements of a row.
  uint64_t rows;               ///< TILE only.
  uint64_t stride;             ///< TILE only: from row to row, elements.
} commsched_access_t;

typedef struct commsched_compute_desc {
  uint64_t struct_size;
  const char* name;  ///< Unique among ops; copied.
  const commsched_access_t* accesses;
  const commsched_op_id_t* after;  ///< Explicit dependencies; may be NULL.
  uint32_t num_accesses;
  uint32_t num_after;
  uint32_t lane;     ///< Compute lane (stream) 0..15 that runs the op.
  int32_t priority;  ///< Hint: higher is more urgent.
  /// Estimate. `cost_ns` if not 0, else flops and bytes by the cost profile.
  /// At most 10^15 ns, about 11 days.
  int64_t cost_ns;
  double flops;
  double bytes;
} commsched_compute_desc_t;

static inline commsched_compute_desc_t commsched_compute_desc_init(void) {
  commsched_compute_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

typedef struct commsched_collective_desc {
  uint64_t struct_size;
  const char* name;  ///< Unique among ops; copied.
  commsched_collective_t kind;
  commsched_reduce_op_t reduce_op;  ///< Reducing kinds only; SUM to PROD.
  commsched_group_id_t group;
  int32_t root;              ///< BROADCAST, REDUCE: rank in the group.
  commsched_access_t input;  ///< `mode` is ignored. Unused by BARRIER, RECV.
  /// In place: the same region as `input` for ALL_REDUCE, BROADCAST, REDUCE;
  /// for ALL_GATHER the input is the SHARD of the output's buffer, for
  /// REDUCE_SCATTER the output is the SHARD of the input's buffer. Any other
  /// overlap is refused. Unused by BARRIER, SEND.
  commsched_access_t output;
  /// Uneven splits, for all members: n elements for REDUCE_SCATTER and
  /// ALL_GATHER; n x n, row s = what s sends to each, for ALL_TO_ALL. NULL:
  /// equal splits. Zeros are allowed. Beside a TILE each is a multiple of its
  /// rows. With LATE_BOUND sides these are the most, as are the sides' counts.
  const uint64_t* counts;
  uint32_t num_counts;
  uint32_t num_after;
  const commsched_op_id_t* after;
  int32_t priority;
  /// SEND, RECV: the peer is the member at (own rank in the group +
  /// `peer_offset`) modulo the group's size; not 0 modulo the size. The k-th
  /// SEND from one member to another, in declared order, meets the k-th RECV
  /// there from the first; both are of one dtype and count.
  int32_t peer_offset;
  /// 1: a codec may change the bytes that travel. REDUCE_SCATTER, ALL_GATHER,
  /// ALL_TO_ALL, BROADCAST, SEND and RECV of F32, F16 or BF16; the last two
  /// travel as they are in this version.
  uint32_t lossy;
} commsched_collective_desc_t;

static inline commsched_collective_desc_t commsched_collective_desc_init(void) {
  commsched_collective_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Creates an empty graph.
///
/// Ownership: release with commsched_graph_destroy().
/// Threads:   any.
/// Errors:    INVALID_ARGUMENT  NULL
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_graph_create(commsched_graph_t** out_graph);

/// Releases the graph; plans made from it keep what they need. Accepts NULL.
///
/// Threads:   any, once per handle.
/// Since:     0.1
COMMSCHED_API void commsched_graph_destroy(commsched_graph_t* graph);

/// Makes room for `num_ops` ops in all.
///
/// Threads:   one per graph.
/// Errors:    INVALID_ARGUMENT    NULL
///            RESOURCE_EXHAUSTED  more than 2^24 ops
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_graph_reserve(commsched_graph_t* graph, uint64_t num_ops);

/// Adds a group of `size` ranks on the axis `name`; which ranks is said when a
/// session binds, so that one graph serves a whole role.
///
/// Threads:   one per graph.
/// Errors:    INVALID_ARGUMENT    NULL, not a name, `size` not in 1..4096
///            ALREADY_EXISTS      another group is called `name`
///            RESOURCE_EXHAUSTED  2^24 groups
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_graph_add_group(commsched_graph_t* graph, const char* name,
                          int32_t size, commsched_group_id_t* out_group);

/// Adds a buffer of `count` packed elements.
///
/// Threads:   one per graph.
/// Errors:    INVALID_ARGUMENT    NULL, not a name, an unknown dtype or
///                                ownership, `count` 0, a `place_group` of a
///                                buffer that is not OWNED
///            OUT_OF_RANGE        more than 2^63-1 bytes
///            ALREADY_EXISTS      another buffer is called `name`
///            RESOURCE_EXHAUSTED  2^24 buffers
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_graph_add_buffer(
    commsched_graph_t* graph, const commsched_buffer_desc_t* desc,
    commsched_buffer_id_t* out_buffer);

/// Adds an op that the caller runs, on a compute lane.
///
/// Threads:   one per graph.
/// Errors:    INVALID_ARGUMENT    NULL, not a name, two overlapping writes, an
///                                unknown mode or region, a TILE of 0 rows, of
///                                0 elements or of a stride less than its
///                                rows, an access to a LATE_BOUND buffer that
///                                is not WHOLE, comes before the op that writes
///                                it or writes it again, lane above 15, a flag
///                                other than 0 and 1, a negative or non-finite
///                                cost, `cost_ns` above 10^15
///            ALREADY_EXISTS      another op is called `name`
///            NOT_FOUND           an id that is not in this graph
///            OUT_OF_RANGE        a region outside its buffer; a SHARD whose
///                                buffer the group cannot share equally
///            RESOURCE_EXHAUSTED  2^24 ops
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_graph_add_compute(
    commsched_graph_t* graph, const commsched_compute_desc_t* desc,
    commsched_op_id_t* out_op);

/// Adds a collective, which the session launches.
///
/// Threads:   one per graph.
/// Errors:    as commsched_graph_add_compute(), and
///            INVALID_ARGUMENT  input and output of different dtypes, counts
///                              that do not fit the kind and the group, input
///                              and output that overlap but are not in place,
///                              a TILE whose rows the group cannot share,
///                              a `peer_offset` of the member itself, `lossy`
///                              for a kind or dtype that cannot be
///            OUT_OF_RANGE      `root` is not in the group
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_graph_add_collective(
    commsched_graph_t* graph, const commsched_collective_desc_t* desc,
    commsched_op_id_t* out_op);

/// Adds an explicit dependency: `to` of step t + `distance` starts after `from`
/// of step t is complete.
///
/// Threads:   one per graph.
/// Errors:    NOT_FOUND         an id that is not in this graph
///            INVALID_ARGUMENT  NULL; `distance` not 0 or 1; an edge within
///                              the step that closes a cycle of edges and
///                              `after` (the message names its ops); a cycle
///                              that accesses close, too, is found by
///                              commsched_plan_build()
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_graph_add_edge(commsched_graph_t* graph, commsched_op_id_t from,
                         commsched_op_id_t to, uint32_t distance);

/// Returns the number of ops: ids are 0 to one below it.
///
/// Threads:   any, while nobody adds.
/// Since:     0.1
COMMSCHED_API uint64_t commsched_graph_num_ops(const commsched_graph_t* graph);

/// Finds an op by name.
///
/// Threads:   any, while nobody adds.
/// Errors:    INVALID_ARGUMENT  NULL
///            NOT_FOUND         no op is called `name`
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_graph_find_op(const commsched_graph_t* graph, const char* name,
                        commsched_op_id_t* out_op);

/// Writes the graph as JSON, format "commsched-graph/1".
///
/// Ownership: release `*out_json` with commsched_string_free().
/// Threads:   any, while nobody adds.
/// Errors:    INVALID_ARGUMENT  NULL
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_graph_to_json(const commsched_graph_t* graph, char** out_json);

/// Reads what commsched_graph_to_json() wrote.
///
/// Shape:     `json` holds `length` bytes; no NUL is needed.
/// Ownership: release `*out_graph` with commsched_graph_destroy().
/// Threads:   any.
/// Errors:    INVALID_ARGUMENT    NULL, not JSON, an unknown format or field
///                                value
///            RESOURCE_EXHAUSTED  more than 2^24 ops
///            and those of the functions that add
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_graph_from_json(
    const char* json, uint64_t length, commsched_graph_t** out_graph);

/// Releases a string that the library returned. Accepts NULL.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API void commsched_string_free(char* string);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_GRAPH_H_
