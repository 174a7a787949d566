#ifndef COMMSCHED_PLUGINS_NCCL_TORCH_NCCL_H_
#define COMMSCHED_PLUGINS_NCCL_TORCH_NCCL_H_

#include "library.h"
#include "support/outcome.h"

namespace commsched::nccl {

// PyTorch's library asks the loader for libnccl.so.2, and gets the copy that
// the process has loaded, of whichever version. kFailedPrecondition if PyTorch
// is loaded and has another copy of NCCL than `library`; or the same, which we
// have loaded and which is older than the one that it was installed with.
// Thread-safe.
Outcome CheckNcclOfTorch(const Library& library);

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_TORCH_NCCL_H_
