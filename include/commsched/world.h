/// World and context: the set of ranks, and one rank of it.
#ifndef COMMSCHED_WORLD_H_
#define COMMSCHED_WORLD_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/link_profile.h"
#include "commsched/status.h"
#include "commsched/types.h"
#include "commsched/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The ranks of one job: threads of this process, or processes of which this is
/// one. Thread-safe.
typedef struct commsched_world commsched_world_t;

/// One rank. Several may live in one process, each driven by its own thread.
typedef struct commsched_context commsched_context_t;

typedef struct commsched_world_desc {
  uint64_t struct_size;  ///< Set by commsched_world_desc_init().
  uint32_t abi_version;  ///< Set by commsched_world_desc_init().
  int32_t size;          ///< Number of ranks, 1..4096.
  /// "inproc" (NULL means that): ranks are threads of this process. "null":
  /// launches succeed at once and move nothing; for measuring overhead. Or the
  /// name of a backend plugin (commsched/info.h).
  const char* backend;
  /// For the backend to read; NULL means "". "inproc" takes
  /// "link_bytes_per_s=1.25e8,link_latency_ns=50000": every rank has an
  /// emulated link of that bandwidth, per direction, full duplex, and latency,
  /// which is 0 if left out. With "" collectives run at the speed of memory.
  const char* backend_config;
  /// Where the ranks of this process compute, and where their memory is: HOST
  /// (the default), or CUDA for a backend that moves memory of such devices.
  commsched_device_kind_t device_kind;
  /// CUDA: which device, of those that this process sees, all ranks of the
  /// process use; -1 (the default): rank r the r-th, modulo their number.
  int32_t device;
} commsched_world_desc_t;

static inline commsched_world_desc_t commsched_world_desc_init(void) {
  commsched_world_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  desc.abi_version = COMMSCHED_ABI_VERSION;
  desc.device = -1;
  return desc;
}

/// Creates the meeting point of `desc->size` ranks that are threads of this
/// process.
///
/// Ownership: `desc` is read during the call. Release with
///            commsched_world_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, size outside 1..4096, a
///                                 configuration that the backend does not
///                                 take, a desc not made by _init()
///            FAILED_PRECONDITION  `abi_version` is newer than the library
///            NOT_FOUND            no backend is called `backend`
///            UNAVAILABLE          no CUDA device, or not that one
///            UNIMPLEMENTED        CUDA, in a build without it
///            or why the backend cannot make its part of a world
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_world_create_inproc(
    const commsched_world_desc_t* desc, commsched_world_t** out_world);

/// How a process joins the other processes of its job.
typedef struct commsched_join_desc {
  uint64_t struct_size;  ///< Set by commsched_join_desc_init().
  uint32_t abi_version;  ///< Set by commsched_join_desc_init().
  /// This process' rank; -1 (the default): rank, size, control server, token
  /// and epoch are those of the environment, and the fields for them here are
  /// not read.
  int32_t rank;
  int32_t size;  ///< Number of ranks, 1..4096.
  uint32_t reserved;
  uint64_t epoch;  ///< Equal on all ranks; counts the restarts of the job.
  /// host:port of the job's control server. NULL only if `size` is 1.
  const char* control;
  const char* token;  ///< The job's token; NULL means "".
  /// A backend that connects processes: "null", or a plugin. NULL: "ucx".
  const char* backend;
  const char* backend_config;  ///< As in commsched_world_desc_t.
  /// To join, and from then on for all others to; 0: COMMSCHED_JOIN_TIMEOUT_S,
  /// by default 60 s. No other limit applies to a rank that has not joined.
  int64_t timeout_ns;
  /// As in commsched_world_desc_t; `device` of -1: local rank r uses the r-th.
  commsched_device_kind_t device_kind;
  int32_t device;
  /// File with the job's profile of links (commsched/link_profile.h): that of
  /// rank 0 holds for all, and on other ranks no file is opened. NULL:
  /// COMMSCHED_LINK_PROFILE; "", or neither: the defaults hold.
  const char* link_profile;
} commsched_join_desc_t;

static inline commsched_join_desc_t commsched_join_desc_init(void) {
  commsched_join_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  desc.abi_version = COMMSCHED_ABI_VERSION;
  desc.rank = -1;
  desc.device = -1;
  return desc;
}

/// Makes this process one rank of a job of processes.
///
/// The environment is that of `commsched run` (COMMSCHED_RANK,
/// COMMSCHED_WORLD_SIZE, COMMSCHED_LOCAL_RANK, COMMSCHED_LOCAL_WORLD_SIZE,
/// COMMSCHED_CONTROL), torchrun, Open MPI's or MPICH's mpirun, or srun; without
/// any of them the process is a job of one. If nobody runs a control server
/// (COMMSCHED_CONTROL=host:port), rank 0 does: ranks on one host find it by
/// what the environment says of the job, MASTER_ADDR, MASTER_PORT and the
/// launcher's name for it; on several it listens at MASTER_ADDR and
/// COMMSCHED_PORT, by default the port after MASTER_PORT, and needs a token,
/// COMMSCHED_TOKEN or in the file COMMSCHED_TOKEN_FILE.
///
/// A rank whose process ends or goes silent, or that has not joined when the
/// time is up, breaks the sessions of all others with ABORTED, which names it.
///
/// Ownership: `desc` is read during the call. Release with
///            commsched_world_destroy().
/// Threads:   any; once per process and job.
/// Blocks:    until this rank has joined, up to `timeout_ns`.
/// Errors:    INVALID_ARGUMENT     NULL, a field or a variable of the
///                                 environment outside its range (named), a
///                                 job of another size; on rank 0, the file of
///                                 links holds no profile
///            FAILED_PRECONDITION  the backend connects threads only; the ranks
///                                 are on several hosts and nothing says where
///                                 they meet, or there is no token; the job is
///                                 another one, or in another epoch;
///                                 `abi_version` is newer than the library
///            NOT_FOUND            no backend is called `backend`; on rank 0,
///                                 there is no file of links
///            UNAUTHENTICATED      the token is not the job's
///            ALREADY_EXISTS       another process has joined as this rank
///            UNAVAILABLE          somebody else listens where rank 0 should;
///                                 rank 0 cannot read the file of links
///            ABORTED              this rank comes too late, or its launcher
///                                 said that it has ended
///            DEADLINE_EXCEEDED    the control server could not be reached; the
///                                 message names rank 0 if that is to run it
///            RESOURCE_EXHAUSTED   no thread or descriptor, here or there; on
///                                 rank 0, a file of links of more than 65536
///                                 bytes
///            or why the backend cannot make its part of a world
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_world_join(
    const commsched_join_desc_t* desc, commsched_world_t** out_world);

/// Gives up the caller's handle. The world itself lives until its last context
/// is destroyed; a job of processes, until the last context of all worlds that
/// it was split into is destroyed, too. Accepts NULL.
///
/// Threads:   any, once per handle.
/// Blocks:    never; the end of a world of processes, until all ranks have
///            come to it or one is gone, up to 60 s. If a session has failed
///            and none was created since, until a second after the failure.
///            Where worlds that were split off have not ended yet, it waits for
///            each of them as long first, for all at once.
/// Since:     0.1
COMMSCHED_API void commsched_world_destroy(commsched_world_t* world);

/// Returns the number of ranks.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API int32_t commsched_world_size(const commsched_world_t* world);

/// Returns the rank that this process is, or -1 if all ranks are threads of it.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API int32_t commsched_world_rank(const commsched_world_t* world);

/// Makes the calling program rank `rank` of `world`.
///
/// Ownership: release with commsched_context_destroy().
/// Threads:   any; each context is then used as its functions say.
/// Blocks:    never: contexts of other ranks may come later.
/// Errors:    INVALID_ARGUMENT  NULL, or `rank` not in 0..size-1, or another
///                              process
///            ALREADY_EXISTS    this rank has a live context
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_context_create(
    commsched_world_t* world, int32_t rank, commsched_context_t** out_context);

/// Makes a world of some ranks of the context's world, and the calling rank a
/// rank of it, without a server or a join of its own. So a process is a rank of
/// several worlds: a process group of a framework is one.
///
/// Collective over `members`: each of them calls this with the same members, in
/// the same order, and the same `name`; no other rank does. A member's rank in
/// the new world is its place in `members`. A rank makes one split of a world
/// at a time, and members make those that they have in common in one order.
///
/// The same members and name may be used again: each time makes another world.
/// The first calls of all members with these arguments belong together, and so
/// do the second ones: after an error, a member that has not called yet gets
/// the same error when it does.
///
/// The new world has the backend, its configuration, the devices, the profile
/// of links, the hosts, the token, the epoch and the time limits of this one,
/// and an instance of the backend of its own: no session, communicator, thread
/// or failure is shared. Groups, meshes, sessions, recordings, gatherings and
/// messages number ranks as the new world does. It may be split, too.
///
/// A failure of a session of one world does nothing to sessions of another. A
/// rank that is lost breaks the sessions of the worlds that it is a rank of,
/// and no others; the loss of the control server breaks those of all.
///
/// `context` and the handle of its world may be destroyed before the new world,
/// which ends with its last context. The end of a world waits for nobody, so
/// that ranks may end theirs in any order, but for the last one of a job: that
/// ends the job, and waits as commsched_world_destroy() says.
///
/// Shape:     `members` holds `num_members` ranks of the context's world, at
///            least 1, each once, the caller's among them.
/// Ownership: arguments are copied. Release with commsched_context_destroy().
/// Threads:   any, one at a time for a context.
/// Blocks:    until all ranks of the job have joined and all members have
///            called, up to the timeout of commsched_world_join(), or, in a
///            world of threads, COMMSCHED_JOIN_TIMEOUT_S.
/// Errors:    INVALID_ARGUMENT     NULL; no members, or one twice; a
///                                 `name` that is not 1 to 63 printable ASCII
///                                 characters
///            OUT_OF_RANGE         a member is not in the world
///            NOT_FOUND            this context's rank is not among `members`
///            FAILED_PRECONDITION  two ranks wait for each other with different
///                                 members, orders or names (both calls are
///                                 named); another thread splits this context;
///                                 another member could not make its part of
///                                 the world
///            DEADLINE_EXCEEDED    a member has not called (named)
///            ABORTED              a member is lost
///            or why the ranks have not joined, or why the backend cannot make
///            its part of a world
///            After an error no member has the world.
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_context_split(
    commsched_context_t* context, const int32_t* members, uint32_t num_members,
    const char* name, commsched_context_t** out_context);

/// Gives up the caller's handle; the context, and its hold on the rank, lives
/// until its last child (stream, group, mesh, session, trace) is
/// destroyed. Accepts NULL.
///
/// Threads:   any, once per handle.
/// Since:     0.1
COMMSCHED_API void commsched_context_destroy(commsched_context_t* context);

/// Makes a second handle of the same rank, for whoever needs it for longer than
/// `context` is there.
///
/// Ownership: release with commsched_context_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_context_duplicate(
    const commsched_context_t* context, commsched_context_t** out_context);

/// Returns this context's rank.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API int32_t
commsched_context_rank(const commsched_context_t* context);

/// Returns the size of this context's world.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API int32_t
commsched_context_world_size(const commsched_context_t* context);

/// Returns how many ranks of this context's world are on this host.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API int32_t
commsched_context_local_size(const commsched_context_t* context);

/// Returns the name of the backend of this context's world, for
/// commsched_plan_options_t::backend; NULL for a NULL context.
///
/// Ownership: the context's; lives as long as it.
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API const char* commsched_context_backend(
    const commsched_context_t* context);

/// Returns the kind of device on which this context's rank computes, HOST for a
/// NULL context, and leaves which one in `*out_device` (may be NULL): CUDA's
/// number; 0 for the host.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API commsched_device_kind_t commsched_context_device(
    const commsched_context_t* context, int32_t* out_device);

/// Returns the profile of the context's job, which is that of rank 0, equal on
/// all ranks, and whether it was given one: 0 where the defaults hold, as they
/// do in a world of threads. `out_given` may be NULL.
///
/// Threads:   any.
/// Blocks:    until all ranks of the job have joined, or one is lost.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
///            or why the ranks have not joined
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_context_link_profile(
    commsched_context_t* context, commsched_link_profile_t* out_profile,
    int32_t* out_given);

/// Tells on which host each rank of the context's world is: hosts are numbered
/// from 0 in the order of their first ranks. Ranks share one if they share a
/// kernel, a network namespace of it and COMMSCHED_HOST_ID. Threads of one
/// process do; a rank of which that is not known is on a host of its own.
///
/// Shape:     `out_hosts` has room for `num_ranks`, the size of the world; NULL
///            and 0: only `*out_num_hosts` is asked for.
/// Threads:   any.
/// Blocks:    until all ranks of the job have joined, or one is lost.
/// Errors:    INVALID_ARGUMENT  NULL, another `num_ranks`
///            or why the ranks have not joined
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_context_hosts(commsched_context_t* context, int32_t* out_hosts,
                        int32_t num_ranks, int32_t* out_num_hosts);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_WORLD_H_
