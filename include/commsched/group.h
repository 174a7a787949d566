/// Groups of ranks, and the mesh of named axes that most groups come from.
#ifndef COMMSCHED_GROUP_H_
#define COMMSCHED_GROUP_H_

#include <stdint.h>

#include "commsched/export.h"
#include "commsched/status.h"
#include "commsched/world.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct commsched_group commsched_group_t;
typedef struct commsched_mesh commsched_mesh_t;

/// One axis of a mesh: "dp_shard", "dp_replicate", "sp", "tp", "pp" or any
/// other name. Never grows.
typedef struct commsched_axis {
  const char* name;
  int32_t size;
} commsched_axis_t;

/// Creates the group of `ranks`, on the axis called `axis`.
///
/// Local: ranks meet when a session is created. The position of a rank in
/// `ranks` is its rank in the group.
///
/// Ownership: arguments are copied. Release with commsched_group_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, an empty `axis`, no ranks, a rank twice
///            OUT_OF_RANGE      a rank that is not in the world
///            NOT_FOUND         this context's rank is not among `ranks`
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_group_create(
    commsched_context_t* context, const char* axis, const int32_t* ranks,
    uint32_t num_ranks, commsched_group_t** out_group);

/// Makes a second handle of the same group, for whoever needs it for longer
/// than `group` is there.
///
/// Ownership: release with commsched_group_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_group_duplicate(
    const commsched_group_t* group, commsched_group_t** out_group);

/// Gives up the handle; sessions that use the group keep what they need.
/// Accepts NULL.
///
/// Threads:   any, once per handle.
/// Since:     0.1
COMMSCHED_API void commsched_group_destroy(commsched_group_t* group);

/// Returns the number of ranks in the group.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API int32_t commsched_group_size(const commsched_group_t* group);

/// Returns this context's rank within the group.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API int32_t commsched_group_rank(const commsched_group_t* group);

/// Returns the world rank of the group's rank `rank`; -1 if `group` is NULL or
/// has no such rank.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API int32_t commsched_group_world_rank(const commsched_group_t* group,
                                                 int32_t rank);

/// Returns the name of the axis; NULL if `group` is NULL.
///
/// Ownership: the group's.
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API const char* commsched_group_axis(const commsched_group_t* group);

/// Lays the world out as a row-major array: the last axis varies fastest.
///
/// Ownership: arguments are copied. Release with commsched_mesh_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, no axes, a name empty or given twice, a
///                              size below 1, sizes whose product is not the
///                              world size
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_mesh_create(
    commsched_context_t* context, const commsched_axis_t* axes,
    uint32_t num_axes, commsched_mesh_t** out_mesh);

/// Creates the group of the ranks that differ from this one along `axis` only.
///
/// Ownership: release with commsched_group_destroy(); it does not need the mesh
///            any more.
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            NOT_FOUND         no axis is called `axis`
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_mesh_group(const commsched_mesh_t* mesh, const char* axis,
                     commsched_group_t** out_group);

/// Accepts NULL.
///
/// Threads:   any, once per handle.
/// Since:     0.1
COMMSCHED_API void commsched_mesh_destroy(commsched_mesh_t* mesh);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_GROUP_H_
