// A CUDA runtime, its driver and an NCCL without a GPU, in one shared object
// that exports the vendor's names: COMMSCHED_CUDART_LIB and COMMSCHED_NCCL_LIB
// point at it.
//
// Functional, with the rules that matter (each cites where it comes from):
// streams run in order, on threads of their own or by a seed
// (fake_gpu_deterministic()); an event knows its last record only, and waiting
// for one that was never recorded does not wait; there is a current device per
// thread; some errors stick. Device memory cannot be touched by the host: its
// addresses have no rights, and the stand-ins use a second mapping of the same
// pages.
//
// Ranks of NCCL are threads of one process.
#ifndef COMMSCHED_TEST_FAKES_GPU_FAKE_GPU_H_
#define COMMSCHED_TEST_FAKES_GPU_FAKE_GPU_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What devices say from now on: how many multiprocessors they have, 132 until
// then. Returns what they said before.
int fake_gpu_multiprocessors(int number);

// How often a function of the vendor's has been called, by its name.
uint64_t fake_gpu_num_calls(const char* name);

// How often the calling thread has been told that work was not complete.
uint64_t fake_gpu_num_not_ready(void);

// The `nth` call of `name` from now on, counted from 1, returns `code` and does
// nothing. 0: none does.
void fake_gpu_fail(const char* name, uint64_t nth, int code);

// From here on calls of `name` do not return, as those that wait for a lock of
// the driver's which another thread holds, until "" is. One name at a time.
void fake_gpu_hold(const char* name);
// How many calls are held.
uint64_t fake_gpu_num_held(void);

// Work on streams is held up at random, by up to `most_us`, from `seed`. 0:
// not.
void fake_gpu_delay(uint64_t seed, uint32_t most_us);

// On: everything is done when it is asked for, nothing moves and no call is
// counted, so that what is left is what the caller of a table costs. While
// nothing is enqueued.
void fake_gpu_null(int on);

// Where the host finds what is at `device_address`.
void* fake_gpu_peek(void* device_address);

// Enqueues fn(user) on a stream: a kernel.
int fake_gpu_launch(void* stream, void (*fn)(void* user), void* user);

// The same, with what it reads and writes; both may be said of the same bytes.
// `name` is for fake_gpu_first_race().
typedef struct fake_gpu_range {
  const void* address;
  size_t bytes;
  int writes;
} fake_gpu_range_t;
int fake_gpu_launch_ranges(void* stream, const char* name,
                           const fake_gpu_range_t* ranges, size_t num_ranges,
                           void (*fn)(void* user), void* user);

// Not 0: from here on streams have no threads. Work is left where it is until
// a host asks for something that depends on it, such as by a query; then one
// piece after the other is done, from a stream that `seed` picks among those
// which can go on. With one host thread the order is a function of the seed.
// Races are looked for, too. 0: threads again. While nothing is enqueued.
void fake_gpu_deterministic(uint64_t seed);

// Races since fake_gpu_deterministic(): two accesses to the same memory, one of
// them a write, that no stream, no wait for an event and no host orders. They
// are found when the second is enqueued, whenever either is done. Known are the
// accesses of copies, fills, collectives, kernels of src/kernels and
// fake_gpu_launch_ranges(); and to free memory is one, too.
uint64_t fake_gpu_races(void);
// What the first one is; "": there is none.
const char* fake_gpu_first_race(void);

// On: what one thread has been told of complete work, all know at once. For
// hosts whose threads tell each other, which the runtime cannot see; races that
// depend on who has looked when are not found then. From the next
// fake_gpu_deterministic() on it is off.
void fake_gpu_hosts_share(int on);

// Communicators that have not been destroyed or aborted, streams and events
// that have not been destroyed, and bytes that have not been freed.
uint64_t fake_gpu_num_comms(void);
uint64_t fake_gpu_num_streams(void);
uint64_t fake_gpu_num_events(void);
uint64_t fake_gpu_allocated_bytes(void);
// Graphs that can be launched and have not been destroyed.
uint64_t fake_gpu_num_graphs(void);

// The least priority with which calls of `name` run in launches of a graph, a
// cudaGraphExec_t. Lower numbers are higher priorities. INT_MIN: it has none.
int fake_gpu_priority_in_graph(const void* exec, const char* name);

// What communicators report as their asynchronous error from here on: an
// ncclResult_t; 0: nothing.
void fake_gpu_async_error(int result);

// Aborts that have freed memory of a communicator while a kernel of another
// member was running.
uint64_t fake_nccl_num_freed_under_kernels(void);

// On: cudaMalloc waits for NCCL's kernels that run on its device.
void fake_gpu_malloc_waits(int on);
// NCCL's kernels that have begun and not ended, on all devices.
uint64_t fake_nccl_num_running(void);

// Registrations of memory (ncclCommRegister) that have not been taken back.
uint64_t fake_nccl_num_registered(void);

// From here on NCCL is of `version`, such as 21903 for 2.19.3, and lacks what
// came later. Returns what it was: at first that of the environment's
// FAKE_NCCL_VERSION, or of the header that it was built with.
int fake_nccl_version(int version);

// From here on the CUDA runtime, or its driver, is of `version`, such as 12060
// for 12.6. Both return what it was: at first that of the headers.
int fake_cuda_runtime_version(int version);
int fake_cuda_driver_version(int version);
// From here on devices have this compute capability, such as 80 for 8.0, and
// take images of kernels for it. Returns what it was: 90 at first.
int fake_gpu_compute_capability(int capability);

// What the last communicator was configured with; INT_MIN: NCCL's default.
typedef struct FakeNcclConfig {
  int blocking, max_ctas, min_ctas, cga;
} FakeNcclConfig;
FakeNcclConfig fake_nccl_last_config(void);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_TEST_FAKES_GPU_FAKE_GPU_H_
