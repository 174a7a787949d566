#ifndef COMMSCHED_TEST_CUDA_STREAM_ORDER_H_
#define COMMSCHED_TEST_CUDA_STREAM_ORDER_H_

#include "test/cuda/device_job.h"

namespace commsched::test {

// Whether two accesses of a rank to the same bytes, one of them a write, are
// ordered by no wait of the plans and by no stream. From what the graph says of
// accesses: shares no code with the planner, its verifier and the stand-ins.
bool HasRace(const DeviceJob& drawn, const Plans& plans);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CUDA_STREAM_ORDER_H_
