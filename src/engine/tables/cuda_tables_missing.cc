// What a build without CUDA has in place of cuda_tables.cc.
#include "engine/tables/device_tables.h"

namespace commsched::engine {

Status CudaTables(int32_t /*device*/, DeviceTables* /*out_tables*/) {
  return Status(COMMSCHED_UNIMPLEMENTED,
                "engine: it was built without CUDA's compiler, and so has no "
                "kernels for the rank's device");
}

}  // namespace commsched::engine
