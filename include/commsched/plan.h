/// The plan: what will be launched, in which order, after which events.
///
/// A plan is immutable and may be shared by any number of sessions and threads.
/// Making one is a pure function of graph, options and profile: equal inputs
/// give equal bytes on every rank (I8).
#ifndef COMMSCHED_PLAN_H_
#define COMMSCHED_PLAN_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/graph.h"
#include "commsched/link_profile.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_plan commsched_plan_t;

typedef uint32_t commsched_schedule_t;
enum {
  COMMSCHED_OVERLAP = 0,  ///< Collectives run beside compute.
  /// No overlap: every compute op first waits for all collectives that became
  /// due before it, as calls written by hand would.
  COMMSCHED_SERIAL = 1
};

/// In which order launches go that could go at once.
typedef uint32_t commsched_priority_t;
enum {
  COMMSCHED_PRIORITY_AUTO = 0,  ///< By need where that is predicted to gain.
  COMMSCHED_PRIORITY_OFF = 1,   ///< As they get ready.
  COMMSCHED_PRIORITY_ON = 2     ///< By need.
};

/// A value of commsched_plan_options_t::coalesce_bytes. Neighbours are merged
/// where the cost model predicts that the step gets no longer: a launch less
/// (and a latency, on a backend with COMMSCHED_BACKEND_STREAM_ORDERED), against
/// what its members wait for each other, its first consumer for all of it, and
/// the copies or the list that carry it. What is saved has to be 10 % of the
/// merged launch, or 1 % where one is tiny beside the other and is not waited
/// for. Nothing is merged across a compute op whose cost is not known (no
/// estimate, none measured), as nobody can tell what it hides, and none beyond
/// `max_bytes_in_flight` or `partition_bytes`. The plan's text says of each
/// launch why. With a policy: as far as it leaves the decision.
#define COMMSCHED_COALESCE_AUTO UINT64_MAX

typedef struct commsched_plan_options {
  uint64_t struct_size;
  commsched_schedule_t schedule;
  uint32_t deterministic;           ///< 1: sums in the order of the tree (I4,
                                    ///< commsched/plugin.h).
  uint32_t max_launches_in_flight;  ///< Window; 0: no limit.
  uint32_t num_comm_lanes;          ///< 0 means 1.
  uint64_t max_bytes_in_flight;     ///< Window; 0: no limit.
  /// Merge neighbours up to this; 0: no merging; COMMSCHED_COALESCE_AUTO, which
  /// commsched_plan_options_init() sets: by cost.
  uint64_t coalesce_bytes;
  uint64_t arena_bytes;  ///< Limit of the arena; 0: no limit.
  /// Split larger collectives; 0: none. The pieces of those that give each
  /// rank a part, as ALL_GATHER and REDUCE_SCATTER, take a backend with
  /// COMMSCHED_BACKEND_STRIDED; those of ALL_REDUCE, for one, do not.
  uint64_t partition_bytes;
  commsched_priority_t priority;
  const char* policy;  ///< Name of a loaded policy plugin; NULL: ours.
  const char* codec;   ///< Name of a loaded codec plugin; NULL: none.
  /// Name of the backend that sessions of the plan will run on, such as
  /// commsched_context_backend(): the plan has nothing that it cannot do.
  /// Merged collectives are packed where it takes no lists, and none is split
  /// that would take strides. FAILED_PRECONDITION, naming the collective, if
  /// the backend lacks its kind, dtype or reduction, or the order of sums of a
  /// deterministic plan; NOT_FOUND if no backend has that name. NULL: one that
  /// can do everything; a session on a lesser one is then refused.
  const char* backend;
  /// On which host each rank of the job is, as commsched_context_hosts() tells
  /// all ranks alike; copied. A `lossy` REDUCE_SCATTER of all of them is then
  /// left unencoded where no host's link carries less with `codec`: encoded,
  /// every rank sends every other one its part, where a `backend` with
  /// COMMSCHED_BACKEND_HOST_SUMS sends sums of a host's ranks. The plan's text
  /// gives both numbers. NULL: not known.
  const int32_t* host_of_rank;
  uint64_t num_ranks;  ///< Length of `host_of_rank`, at most 4096; 0 of NULL.
} commsched_plan_options_t;

static inline commsched_plan_options_t commsched_plan_options_init(void) {
  commsched_plan_options_t options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.coalesce_bytes = COMMSCHED_COALESCE_AUTO;
  return options;
}

/// What things cost. Measured by whoever runs the plan; a zero field takes the
/// default named beside it.
typedef struct commsched_cost_profile {
  uint64_t struct_size;
  double link_bytes_per_s;  ///< Per rank and direction; 0: 10e9.
  /// From the last byte on the link to the end of a collective. The collectives
  /// behind it are on the link meanwhile, other than on a lane of a backend
  /// with COMMSCHED_BACKEND_STREAM_ORDERED. 0 is 0.
  int64_t link_latency_ns;
  int64_t launch_ns;        ///< The processor's time for one launch; 0: 20000.
  double copy_bytes_per_s;  ///< Packing, local reduction; 0: 5e9.
  double flops_per_s;       ///< For ops that give flops; 0: 50e9.
  double memory_bytes_per_s;  ///< For ops that give bytes; 0: 10e9.
  /// Ranks that share `num_cores` cores are one compute resource; with more
  /// ranks than cores their launches use it, too. 0 and 0: every rank has a
  /// core of its own. Set both or neither.
  uint32_t num_ranks_sharing;
  uint32_t num_cores;
  /// Measured thread-CPU ns of op i, i < num_ops; replaces the graph's
  /// estimates. For collectives: CPU ns of their copies and reductions. NULL:
  /// none.
  const int64_t* op_cost_ns;
  uint64_t num_ops;
} commsched_cost_profile_t;

static inline commsched_cost_profile_t commsched_cost_profile_init(void) {
  commsched_cost_profile_t profile;
  memset(&profile, 0, sizeof(profile));
  profile.struct_size = sizeof(profile);
  return profile;
}

/// Sets what a plan's costs have of links, from a profile of them:
/// `link_bytes_per_s`, `link_latency_ns` and `launch_ns` of `costs`, for groups
/// of all of `num_ranks` ranks on `num_hosts` hosts.
///
/// Ranks on one host move bytes at that level's rate. Between hosts all ranks
/// of a host share its link, over which what they reduce or gather goes once;
/// the rate is per rank such that this takes as long as it does there. A
/// collective has the latency of a message to others and one back, on each
/// level that it crosses, and a launch costs the messages that a rank sends and
/// receives for it on its way through all others.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set, a value outside
///                              its range, not
///                              1 <= `num_hosts` <= `num_ranks`
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_cost_profile_set_links(
    const commsched_link_profile_t* links, int32_t num_ranks, int32_t num_hosts,
    commsched_cost_profile_t* costs);

/// Steady state of the plan under a profile. Times in ns, per step and rank.
typedef struct commsched_prediction {
  uint64_t struct_size;
  int64_t step_ns;
  int64_t compute_ns;        ///< Busy time of the compute lanes.
  int64_t comm_ns;           ///< Launches, from the link to their end, summed.
  int64_t exposed_ns;        ///< comm without compute.
  int64_t lower_bound_ns;    ///< No plan can be faster (docs/lower_bound.md).
  int64_t bound_compute_ns;  ///< Its parts: summed CPU / cores,
  int64_t bound_link_ns;     ///< busy time of a link direction,
  int64_t bound_cycle_ns;    ///< longest dependency cycle / distance,
  int64_t bound_phases_ns;   ///< sum of phases between barriers.
  uint64_t peak_bytes_in_flight;
  int64_t exposed_cap_ns;         ///< `exposed_ns` by cause (docs/blame.md):
  int64_t exposed_dependency_ns;  ///< exactly these five
  int64_t exposed_order_ns;
  int64_t exposed_link_ns;
  int64_t exposed_straggler_ns;  ///< 0: a role by itself waits for nobody.
} commsched_prediction_t;

static inline commsched_prediction_t commsched_prediction_init(void) {
  commsched_prediction_t prediction;
  memset(&prediction, 0, sizeof(prediction));
  prediction.struct_size = sizeof(prediction);
  return prediction;
}

typedef struct commsched_plan_info {
  uint64_t struct_size;
  uint64_t num_ops;
  uint64_t num_launches;  ///< Per step.
  /// Per step, before they are coalesced or split: one in pieces counts once.
  uint64_t num_collectives;
  uint64_t num_waits;          ///< Event waits kept.
  uint64_t num_waits_implied;  ///< Event waits that others imply.
  uint64_t arena_bytes;
  uint64_t max_launch_bytes;  ///< Payload of the largest launch.
  uint8_t fingerprint[16];    ///< XXH3-128, big endian.
  /// What place groups (commsched_buffer_desc_t) add to the arena that the plan
  /// needs: the smallest one that is found for its order of ops and launches,
  /// less the smallest that is found with every buffer placed by itself. Both
  /// searches are the planner's own, which are not exhaustive.
  uint64_t place_group_bytes;
} commsched_plan_info_t;

static inline commsched_plan_info_t commsched_plan_info_init(void) {
  commsched_plan_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

/// Plans and verifies. Fails, rather than return a plan that is not proved free
/// of races and deadlocks.
///
/// `options` NULL means commsched_plan_options_init(); `profile` NULL means
/// commsched_cost_profile_init().
///
/// Ownership: arguments are copied; the graph may be changed or destroyed.
/// Threads:   any; the graph must not be changed meanwhile.
/// Blocks:    no; about 1 us per op; by cost (`coalesce_bytes`) up to 2 us, and
///            up to 10 us where merged launches do not fit `arena_bytes`, as
///            several plans are tried then.
/// Errors:    NOT_FOUND           no policy or codec of that name: says what
///                                there is, and where it was looked for
///            INVALID_ARGUMENT    an op that reads what no op of the step
///                                writes of an OWNED buffer (both are named);
///                                buffers of a place group that are alive at
///                                once (both are named, and the ops);
///                                NULL, an unknown schedule, a profile for
///                                another number of ops, a cycle, a time or an
///                                op's cost above 10^15 ns (about 11 days), a
///                                step above 10^16 ns
///            OUT_OF_RANGE        owned buffers and packing memory of more than
///                                2^63-1 bytes, collectives of more than 2^60
///            RESOURCE_EXHAUSTED  an arena limit below what some op needs; the
///                                message gives the least size that works
///            INTERNAL            the verifier refused the plan: a bug of ours
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_plan_build(
    const commsched_graph_t* graph, const commsched_plan_options_t* options,
    const commsched_cost_profile_t* profile, commsched_plan_t** out_plan);

/// A role: ranks whose graphs are equal and that take the same place in the
/// job. Each stage of a pipeline is a role of its own, also where two stages'
/// graphs are the same.
typedef struct commsched_role_desc {
  uint64_t struct_size;
  const commsched_graph_t* graph;
  const commsched_cost_profile_t* profile;  ///< NULL: every default.
  /// By group id, the role (index in the array of roles) at each position of
  /// the group, as many as it has members; a NULL entry: all are of this role.
  /// NULL: so are all members of all groups.
  const uint32_t* const* role_of_member;
  uint32_t num_groups;  ///< Length of `role_of_member`; 0 if that is NULL.
  uint32_t reserved;
} commsched_role_desc_t;

static inline commsched_role_desc_t commsched_role_desc_init(void) {
  commsched_role_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Plans a job whose ranks run several different graphs, such as the stages of
/// a pipeline: all together, so that the orders in which they communicate are
/// parts of one (I1). Every rank plans all roles and creates its session on the
/// plan of its own; `out_plans[i]` is that of `roles[i]`.
///
/// A group of two graphs is the same if name, size and roles of the members
/// are. A collective on a group of several roles must be declared in each of
/// them, with the same name, kind, dtype, reduction, root and counts. The k-th
/// SEND from one position of a group to another, in declared order, is met by
/// the k-th RECV there, of the same dtype and count.
///
/// Shape:     `roles` and `out_plans` have `num_roles` entries, 1 to 512; all
///            of `roles` have the same struct_size.
/// Ownership: arguments are copied; the graphs may be changed or destroyed.
///            Each plan is released with commsched_plan_destroy().
/// Threads:   any; the graphs must not be changed meanwhile.
/// Blocks:    no; about 2 us per op of all roles, by cost as said there.
/// Errors:    as commsched_plan_build(), naming the role, and
///            INVALID_ARGUMENT  no roles or too many, a NULL graph, groups
///                              whose roles differ or do not exist, a
///                              collective that a role lacks or declares
///                              otherwise, a SEND without RECV or the reverse,
///                              a pair of two sizes, orders of the roles that
///                              would deadlock (the ops of a cycle are named)
///            On error `out_plans` is not written.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_plan_build_roles(
    const commsched_role_desc_t* roles, uint32_t num_roles,
    const commsched_plan_options_t* options, commsched_plan_t** out_plans);

/// Gives up the handle; sessions keep the plan they run. Accepts NULL.
///
/// Threads:   any, once per handle.
/// Since:     0.1
COMMSCHED_API void commsched_plan_destroy(commsched_plan_t* plan);

/// Fills `out_info`, made by commsched_plan_info_init().
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_plan_get_info(
    const commsched_plan_t* plan, commsched_plan_info_t* out_info);

/// Where an OWNED buffer lies in the arena of every session of `plan`: bytes
/// from its start, and how many. Buffers whose uses never meet may have the
/// same.
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            NOT_FOUND            no such buffer
///            FAILED_PRECONDITION  the buffer is not OWNED
/// Since:     0.3
COMMSCHED_API commsched_status_t
commsched_plan_place(const commsched_plan_t* plan, commsched_buffer_id_t buffer,
                     uint64_t* out_offset, uint64_t* out_bytes);

/// Predicts a step of `plan` under `profile` (NULL: the one it was built with).
///
/// Threads:   any.
/// Blocks:    no; about 1 us per op.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set, a profile for
///                              another number of ops or with a negative or
///                              non-finite value, times above those that
///                              commsched_plan_build() takes
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_plan_predict(
    const commsched_plan_t* plan, const commsched_cost_profile_t* profile,
    commsched_prediction_t* out_prediction);

typedef uint32_t commsched_format_t;
enum {
  COMMSCHED_TEXT = 0,
  COMMSCHED_JSON = 1,
  COMMSCHED_DOT = 2  ///< Graphviz.
};

/// Explains the plan: launches in key order with members, way of coalescing and
/// why, waits, window, arena, prediction and lower bound. JSON:
/// docs/plan_json.md. DOT: lanes, nodes and events, for `dot -Tsvg`.
///
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, an unknown format
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_plan_explain(
    const commsched_plan_t* plan, commsched_format_t format, char** out_text);

/// Draws the map of a job: per role and axis, which buckets travel, how many
/// bytes each sends per step and rank, how long that takes on the link, and how
/// much of it is predicted to be exposed, and why.
///
/// `plans`: all roles that were planned together, in order; or one plan, which
/// is then described as if no other role kept it waiting.
///
/// Ownership: release `*out_text` with commsched_string_free().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, no plan, plans that are not the roles of
///                              one job in order, a format other than TEXT and
///                              JSON (docs/plan_json.md)
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_plan_describe(
    const commsched_plan_t* const* plans, uint32_t num_plans,
    commsched_format_t format, char** out_text);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_PLAN_H_
