// Launches for a backend's table.
#ifndef COMMSCHED_TEST_SUPPORT_LAUNCHES_H_
#define COMMSCHED_TEST_SUPPORT_LAUNCHES_H_

#include <cstdint>

#include "commsched/plugin.h"

namespace commsched {

inline commsched_launch_t LaunchOf(commsched_collective_t kind,
                                   commsched_dtype_t dtype,
                                   commsched_reduce_op_t reduce_op,
                                   int32_t root, uint32_t deterministic,
                                   uint32_t num_members,
                                   const commsched_member_t* members) {
  commsched_launch_t launch{};
  launch.struct_size = sizeof(launch);
  launch.slot = UINT32_MAX;
  launch.kind = kind;
  launch.dtype = dtype;
  launch.reduce_op = reduce_op;
  launch.root = root;
  launch.deterministic = deterministic;
  launch.num_members = num_members;
  launch.members = members;
  return launch;
}

}  // namespace commsched

#endif  // COMMSCHED_TEST_SUPPORT_LAUNCHES_H_
