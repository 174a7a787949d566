/// All that a plugin includes: tables of functions, filled in by it, that the
/// library finds in a shared object by one symbol (docs/writing_a_plugin.md).
///
/// Kinds: a *backend* moves the bytes; a *policy* decides merges and the order
/// of launches when a plan is made; a *codec* decides what travels for a
/// collective that may lose precision; an *observer* sees decisions and
/// completions. The built-in backends ("inproc", "null") are reached through
/// these tables and nothing else.
///
/// Rules for all tables. They live until the process ends; plugins are never
/// unloaded. `struct_size` is the size that the plugin was compiled with:
/// tables grow at the end, and functions that a shorter table lacks count as
/// NULL. Pointers to functions may be NULL only where it says "(optional)".
/// Functions that can fail return a commsched_status_t and then put a
/// NUL-terminated reason into `message`, of `message_size` bytes; without one
/// the error names plugin and call, and a value that is not a status code is
/// INTERNAL. No exception leaves a function. What the host passes in, it may
/// extend at the end, too: read a field only if `struct_size` says that it is
/// there.
///
/// Backends are at ABI 1, all others at 0: both may still change between minor
/// versions, backends until one of a device has run on hardware.
#ifndef COMMSCHED_PLUGIN_H_
#define COMMSCHED_PLUGIN_H_

#include <stdint.h>

#include "commsched/launch_estimate.h"
#include "commsched/link_profile.h"
#include "commsched/status.h"
#include "commsched/stream.h"
#include "commsched/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- The order of sums ------------------------------------------------------
//
// Reductions that are to give the same bits everywhere combine what the
// positions of a group, which are its ranks in order, have in the order of a
// binary tree: that of [lo, hi) is that of [lo, m) and that of [m, hi), in this
// order, with m - lo the largest power of two below hi - lo. Its nodes are
// aligned blocks of 2^k positions, and those that end where the group does: so
// who has all of a node can sum it up, and send one partial sum.
//
// f16 and bf16 are combined in f32, and rounded once, at the end. AVG divides
// once, by the size of the group, at the end. Integers wrap in their own type;
// for AVG they are summed exactly.
//
// PREMUL_SUM rounds the scale to the type in which elements are combined, which
// is f64 for f64 and else f32; each element is multiplied by it, and the
// product rounded to that type, before it is added. So a partial sum is one of
// products.

/// What a sum is made of: the elements of one position, or the partial sum of a
/// node. Elements of partial sums: f32 for f16 and bf16; for AVG int64_t for
/// i8, u8 and i32, and 128 bits, aligned to 16 bytes, for i64; else the type
/// itself. Never grows.
typedef struct commsched_piece {
  uint32_t lo;  ///< Positions lo..hi-1: a node of the tree.
  uint32_t hi;
  uint32_t is_partial;  ///< 0: elements, of one position. 1: partial sums.
  uint32_t reserved;    ///< 0.
  const void* data;
} commsched_piece_t;

/// The sum of a node of the tree from pieces of it.
typedef struct commsched_tree_sum {
  uint64_t struct_size;
  commsched_dtype_t dtype;
  commsched_reduce_op_t op;
  uint32_t size;        ///< Positions of the group.
  uint32_t num_pieces;  ///< At least 1.
  /// In the order of positions, each beginning where the one before ends.
  const commsched_piece_t* pieces;
  uint64_t count;  ///< Elements of each.
  /// Overlaps no piece, or is one of as wide elements.
  void* output;
  uint32_t output_is_partial;  ///< 0: all positions are there, and the result
                               ///< is divided and rounded.
  uint32_t reserved;           ///< 0.
  double scale;  ///< PREMUL_SUM: of commsched_launch_t. Since 0.2.
} commsched_tree_sum_t;

// ---- Host and list ----------------------------------------------------------

/// What the library offers to plugins. Passed to init; valid until the process
/// ends. Functions may be called from any thread; `user` goes with each.
typedef struct commsched_host {
  uint64_t struct_size;
  void* user;
  /// One line for the log, `level` as in commsched/log.h. Not in steady-state
  /// calls (launch, poll, encode, decode, on_event).
  void (*log)(void* user, int32_t level, const char* message);
  /// The clock of every time in these tables: ns, monotonic.
  int64_t (*now_ns)(void* user);
  /// Memory aligned to 64 bytes; NULL if there is none. `free` takes NULL.
  void* (*alloc)(void* user, uint64_t bytes);
  void (*free)(void* user, void* address);
  /// The library's deterministic reduction of what every position of a group
  /// has: that of reduce_tree, of raw pieces 0..num_inputs-1 of as many. So
  /// every backend that uses it gives the same bits. `output` may be one of the
  /// inputs, or overlap none. INVALID_ARGUMENT for an unknown dtype or
  /// operation, PREMUL_SUM, which takes reduce_tree, or no inputs.
  commsched_status_t (*reduce)(void* user, commsched_dtype_t dtype,
                               commsched_reduce_op_t op, uint32_t num_inputs,
                               const void* const* inputs, uint64_t count,
                               void* output);
  /// The table of the backend called `name`, whose file is loaded if need be,
  /// or NULL: how a backend stands on another one. Not in init; may block.
  const struct commsched_backend* (*backend)(void* user, const char* name);
  /// The library's deterministic reduction of a node of the tree
  /// (commsched_tree_sum_t). INVALID_ARGUMENT for an unknown dtype or
  /// operation, a piece that is no node, or pieces that do not follow each
  /// other or are not a node together. Never blocks, never allocates.
  commsched_status_t (*reduce_tree)(void* user,
                                    const commsched_tree_sum_t* sum);
} commsched_host_t;

typedef uint32_t commsched_plugin_kind_t;
enum {
  COMMSCHED_PLUGIN_BACKEND = 0,   ///< commsched_backend_t
  COMMSCHED_PLUGIN_POLICY = 1,    ///< commsched_policy_t
  COMMSCHED_PLUGIN_CODEC = 2,     ///< commsched_codec_t
  COMMSCHED_PLUGIN_OBSERVER = 3,  ///< commsched_observer_t
  COMMSCHED_PLUGIN_NUM_KINDS = 4
};

/// The fields that the table of every kind begins with.
typedef struct commsched_plugin_head {
  uint64_t struct_size;
  uint32_t abi;    ///< COMMSCHED_<KIND>_ABI
  uint32_t flags;  ///< Of the kind: capabilities, dtypes, events; else 0.
  /// Unique among plugins of the kind: 1 to 63 of A-Z a-z 0-9 _ - and dots.
  const char* name;
  const char* version;  ///< 1 to 63 printable ASCII characters.
} commsched_plugin_head_t;

/// One plugin of a list. Never grows.
typedef struct commsched_plugin {
  commsched_plugin_kind_t kind;
  uint32_t reserved;  ///< 0.
  const void* table;
} commsched_plugin_t;

enum { COMMSCHED_PLUGIN_LIST_ABI = 0, COMMSCHED_PLUGIN_MAX_PLUGINS = 64 };

/// What a shared object exports as `commsched_plugins_v0`.
typedef struct commsched_plugin_list {
  uint64_t struct_size;
  uint32_t abi;          ///< COMMSCHED_PLUGIN_LIST_ABI
  uint32_t num_plugins;  ///< 1..COMMSCHED_PLUGIN_MAX_PLUGINS
  const commsched_plugin_t* plugins;
  /// (optional) Called once, before anything else of the list, by the thread
  /// that loads it. Not OK: no plugin of the list can be used on this machine,
  /// and `message`, which commsched_info() shows, says why. OK: `message`, if
  /// there is one, says what was found, such as the version of a vendor's
  /// library; it is logged and shown, too.
  commsched_status_t (*init)(const commsched_host_t* host, char* message,
                             uint64_t message_size);
} commsched_plugin_list_t;

/// Declares, and exports, the list of a plugin:
///
///     COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {...};
#ifdef __cplusplus
#define COMMSCHED_PLUGIN_LIST \
  extern "C" COMMSCHED_API const commsched_plugin_list_t
#else
#define COMMSCHED_PLUGIN_LIST COMMSCHED_API const commsched_plugin_list_t
#endif

// ---- Backend ----------------------------------------------------------------
//
// A rank is opened first, one per rank of the world that lives in the process;
// it joins communicators, each member with the same id; once comm_ready says
// so, launch() is called for each launch, in the same order on every member,
// which never waits for another rank; then poll() until it says done; at the
// end everything is destroyed in the opposite order. Launches of a communicator
// become done in the order in which they were launched: poll the oldest first.
// Only those that are TAGGED have no place in that order, neither in when they
// are launched nor in when they are done: poll each of them.
//
// Threads. The host makes the calls of one rank one after the other, from
// whatever thread; of the same rank only `abort`, `comm_status`, `wait` and
// `interrupt` may run beside another call, `launch` of an INLINE backend beside
// that of another communicator, and `launch` of a STREAM_ORDERED backend beside
// calls of other communicators; `wait` only where the backend is WAITS_BESIDE.
// Different ranks are called at once. Callers of a session call `launch` and
// `poll`, too: one that does not return holds its caller.
//
// Failures. A launch that fails, or a communicator, is a matter of this rank
// alone: the host tells the others, and calls `abort` on all ranks. A backend
// reports what it finds by itself, such as a peer that is gone.

enum { COMMSCHED_BACKEND_ABI = 1 };

/// Sets of reductions (commsched_backend_t::reductions), to be or'ed.
enum {
  COMMSCHED_BACKEND_BASIC_REDUCTIONS = 31,     ///< SUM to PROD
  COMMSCHED_BACKEND_BITWISE_REDUCTIONS = 224,  ///< BAND, BOR, BXOR
  COMMSCHED_BACKEND_SCALED_REDUCTIONS = 256    ///< PREMUL_SUM
};

/// What a backend can do, or'ed. Plans that are made for it ask for nothing
/// else (commsched_plan_options_t::backend).
enum {
  /// launch() takes more than one member. Those of kind SEND may have several
  /// in any case.
  COMMSCHED_BACKEND_VECTORED = 1,
  /// launch() completes before it returns; poll() is not called.
  COMMSCHED_BACKEND_INLINE = 2,
  /// launch() enqueues on a device stream; poll() is not called, completion is
  /// seen through events of that stream.
  COMMSCHED_BACKEND_STREAM_ORDERED = 4,
  /// Not asked for any more: reductions could be asked to sum in the order of
  /// ranks, 0 + 1 + 2 ..., until 0.1. Now it is COMMSCHED_BACKEND_TREE_SUMS.
  COMMSCHED_BACKEND_DETERMINISTIC = 8,
  /// Takes members whose parts are not dense (input_stride, output_stride).
  COMMSCHED_BACKEND_STRIDED = 16,
  /// Takes launches of kind SEND: lists of sends and receives, which are
  /// matched per pair of ranks in the order of launches and of lists.
  COMMSCHED_BACKEND_P2P = 32,
  /// The ranks of a world may be processes, on several hosts.
  COMMSCHED_BACKEND_PROCESSES = 64,
  /// Reductions can be asked to sum in the order of the tree, above.
  COMMSCHED_BACKEND_TREE_SUMS = 128,
  /// What the ranks of a host have for a reduction leaves it as partial sums of
  /// the nodes that the host has all positions of, or as it is where that is no
  /// more bytes.
  COMMSCHED_BACKEND_HOST_SUMS = 256,
  /// `wait` may run beside other calls of its rank. Without this, as in 0.1, no
  /// thread launches or polls while one waits.
  COMMSCHED_BACKEND_WAITS_BESIDE = 512,
  /// Takes launches that are COMMSCHED_LAUNCH_TAGGED. Only with P2P, and not
  /// with INLINE or STREAM_ORDERED: nothing can be done out of order there.
  COMMSCHED_BACKEND_TAGS = 1024,
  /// Takes launches that are COMMSCHED_LAUNCH_OWN_COUNTS.
  COMMSCHED_BACKEND_OWN_COUNTS = 2048
};

/// How a launch differs from others of its kind, or'ed. A backend is given none
/// that it has not said it takes; it refuses one that it does not know.
enum {
  /// Of kind SEND: its sends and receives are matched by `tag`, too. The k-th
  /// send from one rank to another with a tag meets the k-th receive there with
  /// that tag, counted in the order of launches and of lists. Launches without
  /// a tag, and those with another one, do not count.
  ///
  /// It is done once its own sends and receives are, whatever was launched
  /// before it, and nothing that is launched after it waits for it. So a
  /// receive may be launched long before its send: it takes one request of
  /// max_in_flight, and holds up nothing. Pairs and rings may send and receive
  /// in any order, as long as all is launched.
  ///
  /// A send may be done only once its receive has been launched. Who waits for
  /// a send before it launches a receive that the other side waits for in the
  /// same way may wait for ever.
  COMMSCHED_LAUNCH_TAGGED = 1,
  /// Of kind ALL_TO_ALL: `counts` of each member are this rank's own, 2n of n
  /// ranks: how many elements it sends to each, then how many it gets of each.
  /// What it sends to itself it gets. All members of the communicator launch it
  /// with this flag. What another rank does not expect fails there, or on both,
  /// by an error that names both ranks.
  COMMSCHED_LAUNCH_OWN_COUNTS = 2
};

/// How the ranks of a world exchange addresses and ids: values under keys,
/// which every rank sees. The host's. Both block: only in rank_open, comm_ready
/// and comm_create, or on the backend's threads. Valid while the rank is open.
typedef struct commsched_oob {
  uint64_t struct_size;
  void* user;
  /// Leaves a value for everybody, once per key: ALREADY_EXISTS.
  commsched_status_t (*put)(void* user, const char* key, const void* value,
                            uint64_t bytes, char* message,
                            uint64_t message_size);
  /// Waits for a value: DEADLINE_EXCEEDED at `deadline_ns` of the host's clock.
  /// `*bytes` is the room that `value` has, and then the size that it needs:
  /// OUT_OF_RANGE if that is more.
  commsched_status_t (*get)(void* user, const char* key, void* value,
                            uint64_t* bytes, int64_t deadline_ns, char* message,
                            uint64_t message_size);
} commsched_oob_t;

/// How the instance of a world is made.
typedef struct commsched_instance_desc {
  uint64_t struct_size;
  int32_t world_size;
  /// The rank that this process is; -1: all ranks are threads of it.
  int32_t world_rank;
  /// Text of commsched_world_desc_t::backend_config; never NULL. A backend that
  /// takes no configuration refuses any but "".
  const char* config;
} commsched_instance_desc_t;

/// How a rank is opened.
typedef struct commsched_backend_rank_desc {
  uint64_t struct_size;
  uint64_t epoch;  ///< Counts the restarts of a job; equal on all ranks.
  int32_t world_rank;
  int32_t world_size;
  int32_t local_rank;  ///< Among the ranks on this machine.
  int32_t local_size;
  commsched_device_kind_t device_kind;
  int32_t device;  ///< Ordinal among the devices of the kind; 0 for the host.
  const commsched_oob_t* oob;
  /// Called when a poll() or comm_status() of this rank may have become useful.
  /// From any thread, often; must not call the backend.
  void (*wake)(void* user);
  void* wake_user;
  /// By world rank, of `world_size` each, where it is, for comparing: ranks of
  /// one host, which means one kernel, have the same text in `hosts`; those of
  /// them in one network namespace, in `networks`. "": not known. NULL if all
  /// ranks are threads of this process. Valid as long as the rank is open.
  const char* const* hosts;
  const char* const* networks;
  /// The job's profile of links, equal on all ranks; NULL: none was given, so
  /// that commsched_link_profile_init() holds. Valid as long as the rank is
  /// open.
  const commsched_link_profile_t* links;
} commsched_backend_rank_desc_t;

/// How a communicator is made.
typedef struct commsched_comm_desc {
  uint64_t struct_size;
  const char* id;        ///< Equal on all members, different for each comm.
  const char* axis;      ///< For messages.
  const int32_t* ranks;  ///< World ranks of the members, in group order.
  int32_t size;
  int32_t rank;            ///< This member, which is the rank that it is for.
  uint32_t max_in_flight;  ///< Launches that may be posted and not yet done.
  uint32_t max_members;    ///< Members of the largest launch.
  /// Launches of the session, on this and other communicators, that may be
  /// under way side by side: lanes of its plan. At least 1.
  uint32_t num_lanes;
  uint32_t asks_starts;  ///< 1: comm_starts will be called on this member.
  /// 1, if STREAM_ORDERED: its members come in any order with other
  /// communicators, which it does not hold up. Ready, all pairs are connected.
  uint32_t in_any_order;  ///< Since 0.2.
  uint32_t reserved;      ///< 0.
} commsched_comm_desc_t;

/// One collective of a launch. Addresses are resolved; counts are elements.
/// Never grows.
typedef struct commsched_member {
  const void* input;
  void* output;
  /// ALL_REDUCE, BROADCAST, REDUCE: elements. REDUCE_SCATTER, ALL_GATHER,
  /// ALL_TO_ALL with equal parts: elements of one part.
  uint64_t count;
  /// Uneven parts as in commsched_collective_desc_t, or those of
  /// COMMSCHED_LAUNCH_OWN_COUNTS, where they are never NULL. Else NULL.
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
/// root; or, of kind SEND, sends and receives of one pipeline tick, which
/// progress independently of each other. It, its members and their counts stay
/// until the launch is done, or the communicator destroyed; a STREAM_ORDERED
/// backend reads them during the call only.
/// What is behind `members` is there if `struct_size` says so, or a flag that
/// needs it is set.
typedef struct commsched_launch {
  uint64_t struct_size;
  uint64_t step;  ///< From 0; read during the call only. Equal on all members,
                  ///< as is `key`.
  uint64_t key;   ///< Its place in the order of all launches of a step.
  uint32_t slot;  ///< Which one of comm_expect it is; UINT32_MAX: none.
  commsched_collective_t kind;
  commsched_dtype_t dtype;
  commsched_reduce_op_t reduce_op;
  int32_t root;
  uint32_t deterministic;  ///< 1: sum in the order of the tree (I4).
  uint32_t num_members;
  uint32_t flags;  ///< COMMSCHED_LAUNCH_*; 0 until 0.1.
  const commsched_member_t* members;
  uint64_t tag;  ///< TAGGED: any number; else 0.
  /// PREMUL_SUM: what every input is multiplied by before it is added. Equal on
  /// all members. Since 0.2.
  double scale;
} commsched_launch_t;

typedef struct commsched_launch_result {
  uint32_t done;  ///< 1: complete; the request is free again. 0: not yet.
  uint32_t reserved;
  int64_t wake_at_ns;  ///< If not done: poll again then at the latest; 0: on
                       ///< wake.
  /// If done: when the last of the members that it waited for had issued it, by
  /// the host's clock here. 0: it is not known, or not yet (comm_starts). First
  /// data does not say it: it may come by way of others, and took time on
  /// links. Of kind SEND it may: when something of each sender had come.
  int64_t started_ns;
  int64_t cpu_ns;  ///< If done: thread-CPU spent by this member.
} commsched_launch_result_t;

/// When all members had issued a launch, and who was the last. Never grows.
typedef struct commsched_launch_start {
  uint64_t step;  ///< Of commsched_launch_t, as is `key`.
  uint64_t key;
  int64_t started_ns;  ///< When the last had, by the host's clock here.
  int64_t error_ns;    ///< At most so far from that: clocks of several hosts
                       ///< have been compared. 0: there is one clock.
  int32_t last_rank;   ///< Of the group: who that was.
  uint32_t reserved;   ///< 0.
} commsched_launch_start_t;

/// What a backend has allocated for itself on the device of a rank.
typedef struct commsched_backend_memory {
  uint64_t struct_size;
  uint64_t bytes;       ///< Now.
  uint64_t peak_bytes;  ///< At most so far.
  /// Allocations that launch() has made, which was not told to expect what it
  /// needed them for: each may have waited for the device.
  uint64_t launch_allocations;
} commsched_backend_memory_t;

typedef struct commsched_backend {
  uint64_t struct_size;
  uint32_t abi;  ///< COMMSCHED_BACKEND_ABI
  uint32_t capabilities;
  const char* name;
  const char* version;
  /// What it takes: bit k for commsched_collective_t k (kind SEND is
  /// COMMSCHED_BACKEND_P2P's), bit d for commsched_dtype_t d, bit r for
  /// commsched_reduce_op_t r. 0: what ABI 1 began with, which is all kinds, F32
  /// to U8 and SUM to PROD. What was added later is asked only of a backend
  /// that says it, and types after U8 of none: launches move them as U8. BAND,
  /// BOR and BXOR are of integers, PREMUL_SUM is of floating-point types.
  uint32_t kinds;
  uint32_t dtypes;
  uint32_t reductions;
  /// Where memory of launches may be: bit k for commsched_device_kind_t k.
  /// 0: on the host.
  uint32_t memory_kinds;

  /// Makes, for each world, what its ranks in this process share. Any thread.
  commsched_status_t (*instance_create)(const commsched_instance_desc_t* desc,
                                        void** out_instance, char* message,
                                        uint64_t message_size);
  /// Called when the last rank of the instance is closed. Any thread.
  void (*instance_destroy)(void* instance);

  /// Opens a rank that lives in this process. Waits for no other rank.
  commsched_status_t (*rank_open)(void* instance,
                                  const commsched_backend_rank_desc_t* desc,
                                  void** out_rank, char* message,
                                  uint64_t message_size);
  /// Called when the rank has no communicator and no registered memory left.
  void (*rank_close)(void* rank);

  /// Joins communicator `desc->id`. Does not wait for the others: they may come
  /// later. All ranks create those that they share in the same order.
  commsched_status_t (*comm_create)(void* rank,
                                    const commsched_comm_desc_t* desc,
                                    void** out_comm, char* message,
                                    uint64_t message_size);
  /// Issues a launch; `request` < max_in_flight names it until it is done.
  /// Never waits for another rank; allocates nothing for a launch that it was
  /// told to expect. `stream` for STREAM_ORDERED only: the same for all
  /// launches of a communicator, but for those that it captures into a graph,
  /// which the host keeps in order with the others. Once it has failed, the
  /// launch's memory is not touched any more.
  commsched_status_t (*launch)(void* comm, const commsched_launch_t* launch,
                               uint32_t request, commsched_stream_t stream,
                               char* message, uint64_t message_size);
  /// Makes progress on the launch `request` and reports. Never waits for
  /// another rank. NULL if INLINE or STREAM_ORDERED. Once it has failed, the
  /// launch's memory is not touched any more.
  commsched_status_t (*poll)(void* comm, uint32_t request,
                             commsched_launch_result_t* out_result,
                             char* message, uint64_t message_size);
  /// Fails these communicators of `rank`, of which some may have failed before:
  /// their first failure sticks. What is in flight fails, now and later, and
  /// the rank is woken. Only marks: does not wait, and tells no other rank.
  void (*abort)(void* rank, void* const* comms, uint32_t num_comms,
                commsched_status_t status, const char* message);
  /// Leaves the communicator; nothing is in flight, or it has failed. From here
  /// on no memory of launches is touched, of a STREAM_ORDERED backend once
  /// their streams have come to rest. DEADLINE_EXCEEDED at `deadline_ns` of the
  /// host's clock: it may still be, until the process ends. The handle is gone
  /// in any case.
  commsched_status_t (*comm_destroy)(void* comm, int64_t deadline_ns,
                                     char* message, uint64_t message_size);

  // All that follows is optional: NULL, or not there in a table that ends
  // before.

  /// Whether the communicator can be used: 0 or 1; else it is an error. Asked
  /// until it says 1, or fails, or the host's deadline; may block for some
  /// milliseconds. Once it says 1 this rank may make no progress until its
  /// first launch: nothing that others wait for may still have to go out. With
  /// 0 `message` may say what is missing ("rank 5 has not told its address").
  /// Sessions ask once more after comm_expect, which may have something to
  /// connect. NULL: it can be used once comm_create has returned.
  commsched_status_t (*comm_ready)(void* comm, uint32_t* out_ready,
                                   char* message, uint64_t message_size);
  /// The communicator's failure, or COMMSCHED_OK: how a member with nothing in
  /// flight learns of one, after its `wake`. NULL: it learns with its next
  /// launch.
  commsched_status_t (*comm_status)(void* comm, char* message,
                                    uint64_t message_size);
  /// Launches that will come on this communicator, such as those of a plan, in
  /// order, before its first step: what they need is made now. Addresses may be
  /// NULL, and counts the most that there will be, where memory is bound later.
  /// Valid during the call, `launch_bytes` apart.
  ///
  /// May be called again once it is ready, at any time: slots count on from
  /// those of the calls before. Waits for no other rank. Afterwards launch()
  /// allocates nothing for a launch that is no larger than one that was
  /// expected: equal but for its addresses, its tag, and counts that are no
  /// greater; of kind SEND, one with no more messages to the same ranks. A
  /// launch of slot UINT32_MAX may be larger, and may allocate.
  commsched_status_t (*comm_expect)(void* comm,
                                    const commsched_launch_t* launches,
                                    uint32_t num_launches, char* message,
                                    uint64_t message_size);
  /// Fills `out_ranks` with the first `capacity` members, as ranks of the
  /// group, that are known not to have issued `request`, which is not done and
  /// may be waiting for them; returns how many there are. 0: all have, or it is
  /// not known. Missing data is no proof: it may come by way of others. Who
  /// waits in an earlier launch is not to blame, and need not be listed. If
  /// there is comm_silent, `capacity` 0 asks members anew, and those are listed
  /// whose answer to what they were asked last, within two seconds, says so.
  /// Until it comes, when the rank is woken, comm_silent has them. Never
  /// blocks. NULL: errors name no missing rank.
  uint32_t (*comm_missing)(void* comm, uint32_t request, int32_t* out_ranks,
                           uint32_t capacity);
  /// (both or none) Makes memory known to communicators of the rank before
  /// launches use it. All ranks do so in the same order, after comm_ready, and
  /// sessions before comm_expect. `*out_handle` NULL: nothing was made known.
  commsched_status_t (*mem_register)(void* rank, void* const* comms,
                                     uint32_t num_comms, void* address,
                                     uint64_t bytes, void** out_handle,
                                     char* message, uint64_t message_size);
  void (*mem_unregister)(void* rank, void* handle);
  /// (both or none) How the host sleeps instead of on `wake`: until a poll() or
  /// comm_status() of the rank may have become useful, or `deadline_ns` of the
  /// host's clock (INT64_MAX: none), or an interrupt. May return for no reason.
  /// One thread at a time; others launch and poll beside it if WAITS_BESIDE.
  void (*wait)(void* rank, int64_t deadline_ns);
  /// Ends the wait() that is under way, or else the next one.
  void (*interrupt)(void* rank);
  /// (both or none) Memory of the rank's device that suits the backend, aligned
  /// to 256 bytes: sessions that are given no other take their arenas from it.
  /// `address` of mem_free is not registered any more.
  commsched_status_t (*mem_alloc)(void* rank, uint64_t bytes,
                                  void** out_address, char* message,
                                  uint64_t message_size);
  void (*mem_free)(void* rank, void* address);
  /// Fills in what `out_memory->struct_size` has room for. Any thread, beside
  /// other calls. NULL: the backend allocates nothing on devices.
  void (*mem_stats)(void* rank, commsched_backend_memory_t* out_memory);
  /// Likewise the members that comm_missing has asked about `request` and that
  /// have not answered: nobody makes progress for them, as of a process that is
  /// stopped, or of a rank that is driven by its caller only, who computes; or
  /// they are out of reach. They may have issued it, and `request` still wait
  /// for them. 0: nobody is asked, or all have answered. NULL: comm_missing
  /// knows at once.
  uint32_t (*comm_silent)(void* comm, uint32_t request, int32_t* out_ranks,
                          uint32_t capacity);
  /// Fills `out_starts` with up to `capacity` starts of launches that have
  /// become known, each once, and returns how many it has filled. Only of
  /// collectives whose results had `started_ns` 0; some time after them, the
  /// rank being woken; perhaps never, as of the last ones of a communicator.
  /// Called on members whose `asks_starts` is 1; members that do not ask do
  /// their part all the same. Never blocks. NULL: results say it.
  uint32_t (*comm_starts)(void* comm, commsched_launch_start_t* out_starts,
                          uint32_t capacity);
  /// Fills in what `out_estimate->struct_size` has room for: how `launch`,
  /// whose addresses may be NULL, would be done, and what that takes. It
  /// depends on the launch and on what all members have in common, so that all
  /// have the same answer, but for counts of their own; nothing is moved. Any
  /// thread, beside other calls, between comm_create and comm_destroy; may
  /// allocate. UNIMPLEMENTED: it is not known. NULL: of no launch.
  commsched_status_t (*comm_estimate)(void* comm,
                                      const commsched_launch_t* launch,
                                      commsched_launch_estimate_t* out_estimate,
                                      char* message, uint64_t message_size);
  /// sizeof(commsched_launch_t): how far apart the launches are that the plugin
  /// is given by comm_expect, as launches grow. A plugin that has comm_expect
  /// has to say it; to one whose table ends before they come as they were in
  /// 0.1, without what is behind `members`, and comm_expect is called once.
  uint64_t launch_bytes;
} commsched_backend_t;

// ---- Policy -----------------------------------------------------------------
//
// Replaces decisions of the planner; used by plans whose options name it. A
// policy decides from what it is given alone: equal questions have equal
// answers on every rank and in every run. An answer that would break the plan
// fails the planning and names the policy; it cannot make a wrong plan.

enum { COMMSCHED_POLICY_ABI = 0 };

typedef uint32_t commsched_merge_answer_t;
enum {
  COMMSCHED_MERGE_OURS = 0,  ///< What the library would do.
  COMMSCHED_MERGE_JOIN = 1,
  COMMSCHED_MERGE_SPLIT = 2
};

/// A collective, or a launch of several. Positions count the compute ops of a
/// step in the order in which they run.
typedef struct commsched_policy_item {
  uint64_t struct_size;
  const char* name;      ///< Of the first member.
  const char* axis;      ///< Name of the group.
  commsched_op_id_t op;  ///< First member.
  commsched_collective_t kind;
  commsched_dtype_t dtype;
  uint32_t group_size;   ///< Ranks.
  uint32_t num_members;  ///< Collectives.
  int32_t priority;      ///< Hint of the graph: the highest of the members.
  uint64_t bytes;        ///< What the window counts.
  int64_t link_ns;       ///< Predicted time on the link.
  uint32_t ready;        ///< Due once so many compute ops are done.
  uint32_t first_need;   ///< First compute op that needs it; UINT32_MAX: none
                         ///< of this step.
} commsched_policy_item_t;

/// Whether `next` joins the launch `open`, its predecessor.
typedef struct commsched_merge_question {
  uint64_t struct_size;
  const commsched_policy_item_t* open;
  const commsched_policy_item_t* next;
  uint64_t limit_bytes;  ///< coalesce_bytes of the options; 0: no merging, or
                         ///< by cost, which only `ours` says.
  uint32_t legal;        ///< 1: JOIN may be answered.
  commsched_merge_answer_t ours;  ///< JOIN or SPLIT.
} commsched_merge_question_t;

/// A launch that waits for its place in the order.
typedef struct commsched_policy_launch {
  uint64_t struct_size;
  const commsched_policy_item_t* item;
  uint32_t role;        ///< Whose positions `item` gives.
  uint32_t piece;       ///< Of a collective that was split: which part,
  uint32_t num_pieces;  ///< and of how many.
  uint32_t num_after;
  const uint32_t* after;  ///< Indices of launches that it depends on.
  /// From the beginning of the step, if communication took no time: when it
  /// could start, and when somebody needs it. INT64_MAX: nobody does.
  int64_t earliest_ns;
  int64_t need_ns;
} commsched_policy_launch_t;

typedef struct commsched_policy {
  uint64_t struct_size;
  uint32_t abi;       ///< COMMSCHED_POLICY_ABI
  uint32_t reserved;  ///< 0.
  const char* name;
  const char* version;

  /// (optional) Asked for every two neighbours, in order. Any thread, several
  /// at once, as is `order`.
  commsched_status_t (*merge)(const commsched_merge_question_t* question,
                              commsched_merge_answer_t* out_answer,
                              char* message, uint64_t message_size);
  /// (optional) Asked once per plan: `out_order[i]` is the index of the launch
  /// that goes i-th. `launches` are in the order in which they get ready;
  /// `out_order` is filled with UINT32_MAX, which, left alone, means ours. Each
  /// launch must come once, after those in its `after`, and no op may be held
  /// up: none whose `ready` is above the `first_need` of one that comes later.
  commsched_status_t (*order)(const commsched_policy_launch_t* const* launches,
                              uint32_t num_launches, uint32_t* out_order,
                              char* message, uint64_t message_size);
} commsched_policy_t;

// ---- Codec ------------------------------------------------------------------
//
// A collective declared `lossy` in its graph may travel encoded. Data is cut
// into blocks of `block_elements`; a block becomes `block_bytes` whatever the
// element type, the last block of a part being filled up by the codec. Elements
// are handed over as f32: the library converts f16 and bf16.
//
// Ranks must agree to the bit, so encode and decode are pure functions of their
// input, equal on every machine of a job. They never fail: what a codec cannot
// represent it decodes to something that is not finite.

enum { COMMSCHED_CODEC_ABI = 0 };
enum {
  COMMSCHED_CODEC_MAX_BLOCK_ELEMENTS = 4096,
  COMMSCHED_CODEC_MAX_BLOCK_BYTES = 16384
};

typedef struct commsched_codec {
  uint64_t struct_size;
  uint32_t abi;     ///< COMMSCHED_CODEC_ABI
  uint32_t dtypes;  ///< Bit COMMSCHED_F32, _F16, _BF16: worth applying to it.
  const char* name;
  const char* version;
  uint32_t block_elements;  ///< 1..COMMSCHED_CODEC_MAX_BLOCK_ELEMENTS
  uint32_t block_bytes;     ///< 1..COMMSCHED_CODEC_MAX_BLOCK_BYTES

  /// Encodes `count` elements into ceil(count / block_elements) blocks.
  /// `output` is aligned to 8 bytes. Any thread; never blocks, never allocates.
  void (*encode)(const float* input, uint64_t count, void* output);
  /// The reverse. Same rules.
  void (*decode)(const void* input, uint64_t count, float* output);
  /// (optional) Adds to `sum` what decode would give, to the same bits. NULL:
  /// the library decodes, then adds.
  void (*decode_add)(const void* input, uint64_t count, float* sum);
} commsched_codec_t;

// ---- Observer ---------------------------------------------------------------
//
// Sees what a session of one rank has been asked to do and what became of it.
// It can never break a step: what it returns is logged once, and ignored. It
// can slow one down: it is called between the launches.

enum { COMMSCHED_OBSERVER_ABI = 0 };

typedef uint32_t commsched_observer_event_kind_t;
enum {
  COMMSCHED_OBSERVE_STEP_BEGIN = 1,    ///< Its first launch is about to go.
  COMMSCHED_OBSERVE_STEP_END = 2,      ///< Its last launch is complete.
  COMMSCHED_OBSERVE_LAUNCH_BEGIN = 4,  ///< The backend has taken it.
  COMMSCHED_OBSERVE_LAUNCH_END = 8,    ///< It is complete.
  COMMSCHED_OBSERVE_FAILURE = 16       ///< The session's first failure; last.
};

/// A launch of the plan: a decision. Ids are places in key order.
typedef struct commsched_observed_launch {
  uint64_t struct_size;
  const char* name;  ///< "#3 reduce_scatter 'grad.0'+1 on axis dp"
  const char* axis;
  const char* reason;  ///< Why it was merged, or not.
  commsched_collective_t kind;
  commsched_dtype_t dtype;
  uint32_t num_members;  ///< Collectives of the graph in it.
  uint32_t lane;
  uint32_t coded;  ///< 1: travels through the plan's codec.
  uint32_t reserved;
  uint64_t bytes;  ///< Payload: what the window counts.
} commsched_observed_launch_t;

/// What was decided, handed over when the session is bound. Valid until detach.
typedef struct commsched_observed_plan {
  uint64_t struct_size;
  int32_t world_rank;
  int32_t world_size;
  uint8_t fingerprint[16];
  uint64_t num_ops;
  uint64_t num_launches;
  const commsched_observed_launch_t* const* launches;
} commsched_observed_plan_t;

typedef struct commsched_observer_event {
  uint64_t struct_size;
  commsched_observer_event_kind_t kind;
  uint32_t launch;  ///< LAUNCH_*: index into the plan's launches.
  uint64_t step;    ///< From 0.
  int64_t time_ns;
  /// LAUNCH_END: when it began, and what encoding did to the data that this
  /// rank sent: largest error, and root of the mean squared error over that of
  /// the data. 0 if not coded.
  int64_t begin_ns;
  double max_abs_error;
  double rms_relative_error;
  commsched_status_t status;  ///< FAILURE.
  uint32_t reserved;
  const char* message;  ///< FAILURE, else NULL. Valid during the call.
} commsched_observer_event_t;

typedef struct commsched_observer {
  uint64_t struct_size;
  uint32_t abi;     ///< COMMSCHED_OBSERVER_ABI
  uint32_t events;  ///< COMMSCHED_OBSERVE_* that it wants, or'ed.
  const char* name;
  const char* version;

  /// A session has been bound. The thread that creates it. Not OK: logged; the
  /// session goes on without this observer.
  commsched_status_t (*attach)(const commsched_observed_plan_t* plan,
                               void** out_observation, char* message,
                               uint64_t message_size);
  /// One call at a time per observation, on the thread that issues launches.
  /// Must not block nor call the library. CANCELLED: no more events, please;
  /// any other failure is logged once.
  commsched_status_t (*on_event)(void* observation,
                                 const commsched_observer_event_t* event,
                                 char* message, uint64_t message_size);
  /// The session is being destroyed; the last call for `observation`.
  void (*detach)(void* observation);
} commsched_observer_t;

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_PLUGIN_H_
