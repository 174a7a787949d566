#ifndef COMMSCHED_PLUGINS_NCCL_RANK_H_
#define COMMSCHED_PLUGINS_NCCL_RANK_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "config.h"
#include "kernels/cuda_kernels.h"
#include "library.h"
#include "support/outcome.h"

namespace commsched::nccl {

class Comm;

// One rank of a world: its device, and a thread for the calls of NCCL's that
// wait for other ranks. They run in the order in which they were asked for,
// which is the same on all ranks, so that ranks never wait for each other in a
// circle. An abort has a thread of its own, since it may have to end what that
// thread, or another abort, waits for.
//
// Thread-safe.
class Rank {
 public:
  Rank(const commsched_host_t* host, const Library* library,
       const Config& config, const commsched_backend_rank_desc_t& desc);
  // Its thread: before all else.
  Outcome Start(int world_rank);
  // What the thread still has to do is done first.
  ~Rank();
  // Deletes `rank`; or, if some job of its threads waits for ranks that do not
  // come, leaves all alone: the process may report and end. Waits for what its
  // threads ask the host, which lets go of it.
  static void Close(Rank* rank);
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  const Library& library() const { return library_; }
  const Config& config() const { return config_; }
  int64_t NowNs() const { return host_.now_ns(host_.user); }
  void Log(const std::string& message) const;
  void Wake();
  int world_size() const { return world_size_; }
  // Whether world rank `other` is on this rank's host, as far as that is known.
  bool IsOnHost(int other) const;
  // Of its device, once it was started.
  int multiprocessors() const { return multiprocessors_; }
  // Where the unique id of communicator `id` is left, which may be made and
  // ended again and again.
  std::string KeyOf(const std::string& id);

  // kCancelled: the rank has been closed.
  Outcome Put(const std::string& key, const void* value, uint64_t bytes);
  // kDeadlineExceeded: nobody has put it. Likewise.
  Outcome Get(const std::string& key, void* value, uint64_t bytes,
              int64_t deadline_ns);

  // Runs `call`, which returns an Outcome, with the rank's device as the
  // thread's current one. Where the device cannot be set, `call` is not run.
  template <typename Call>
  Outcome OnDevice(const Call& call) const {
    int before = device_;
    Outcome outcome = EnterDevice(&before);
    if (!outcome.ok()) return outcome;
    outcome = call();
    LeaveDevice(before);
    return outcome;
  }

  // Device memory. What is returned is given out again, and freed at the end:
  // to free memory waits for the device, and so for kernels that may wait for
  // an abort.
  struct Scratch {
    void* address = nullptr;
    uint64_t bytes = 0;
  };
  Outcome TakeScratch(uint64_t bytes, Scratch* out_scratch);
  void ReturnScratch(const Scratch& scratch);
  // A launch of communicator `name` had to take scratch, and has perhaps waited
  // for the device. The first time is logged.
  void CountLaunchAllocation(const std::string& name, uint64_t bytes);
  void FillStats(commsched_backend_memory_t* out_memory);

  // For arenas: memory of ncclMemAlloc, or of cuMemAlloc where NCCL has none.
  Outcome AllocateArena(uint64_t bytes, void** out_address);
  void FreeArena(void* address);

  // Kernels of the device, which are loaded the first time.
  Outcome Kernels(const kernels::CudaKernels** out_kernels);

  // Communicators join in the order in which they were made, whichever is asked
  // for first: `comm` is the next, after those before it.
  void WillJoin(const std::shared_ptr<Comm>& comm);
  // Lets those join whose unique id is there. May block for some milliseconds.
  Outcome JoinInOrder();

  // Runs `job` on the rank's thread, on its device.
  void Post(std::function<void()> job);
  // Runs `job` on a thread of its own, on the rank's device.
  void RunAside(const std::function<void()>& job);
  // Returns at `deadline_ns`, or once the rank is closed.
  void AwaitClose(int64_t deadline_ns);
  // Some job was not done by its deadline, and may never be.
  void GiveUp();

 private:
  void Run();
  template <typename Call>
  commsched_status_t Ask(const Call& call);
  bool FindScratch(uint64_t bytes, Scratch* out_scratch);
  Outcome EnterDevice(int* out_before) const;
  void LeaveDevice(int before) const;

  const commsched_host_t& host_;
  const Library& library_;
  const Config config_;
  const commsched_oob_t* const oob_;
  void (*const wake_)(void* user);
  void* const wake_user_;
  const std::string id_prefix_;
  const int world_rank_;
  const int world_size_;
  const std::vector<std::string> hosts_;  // By world rank; empty: all are here.
  const int device_;
  int multiprocessors_ = 0;  // Constant after Start().

  // No call of NCCL's or CUDA's is made while mu_ is held: such a call may wait
  // for a kernel that only an abort ends, and aborts take mu_.
  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool stop_ = false;
  bool busy_ = false;   // The thread, with a job.
  int num_asking_ = 0;  // Threads in a call of oob_.
  int num_aside_ = 0;   // Threads of `aside_` that have not ended their job.
  bool given_up_ = false;
  bool closed_ = false;
  std::map<std::string, uint64_t> num_made_;  // Communicators, by id.
  std::deque<std::weak_ptr<Comm>> to_join_;   // The host's calls only.

  std::vector<Scratch> free_scratch_;
  uint64_t scratch_bytes_ = 0;  // Never freed before the end: the peak, too.
  uint64_t launch_allocations_ = 0;
  std::set<void*> nccl_arenas_;  // Arenas that ncclMemFree takes.
  bool told_of_cuda_arenas_ = false;

  std::mutex kernels_mu_;  // Held while kernels are loaded. Aborts need none.
  std::unique_ptr<const kernels::CudaKernels> kernels_;

  std::vector<std::thread> aside_;
  std::thread thread_;
};

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_RANK_H_
