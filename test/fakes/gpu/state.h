// What the stand-ins of functions share.
#ifndef COMMSCHED_TEST_FAKES_GPU_STATE_H_
#define COMMSCHED_TEST_FAKES_GPU_STATE_H_

#include "calls.h"
#include "event.h"
#include "memory.h"
#include "stream.h"

#endif  // COMMSCHED_TEST_FAKES_GPU_STATE_H_
