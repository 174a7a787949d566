#ifndef COMMSCHED_PLUGINS_NCCL_COMM_H_
#define COMMSCHED_PLUGINS_NCCL_COMM_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "library.h"
#include "rank.h"
#include "support/outcome.h"
#include "warm_up.h"

namespace commsched::nccl {

// A communicator. NCCL's is made by the rank's thread from a unique id, which
// the first member leaves for the others. It counts as ready after an
// all-reduce, by which members agree whether they register memory; and, once it
// has been told which launches to expect, after a launch of each class of them
// (warm_up.h): the first use of a connection makes it, and waits for the peer.
//
// A launch that was not expected, and has something to connect, has members say
// first what they are about to launch (first_launch.cc).
//
// One that members make in any order has a thread of its own to join on, which
// calls NCCL once all have come, and has all of them connected for messages.
//
// MarkAborted, Status: any thread. The abort that follows: one thread. All
// else: one at a time.
class Comm : public std::enable_shared_from_this<Comm> {
 public:
  // `rank` outlives it. Begins to make it; blocks for nobody.
  static Outcome Create(Rank* rank, const commsched_comm_desc_t& desc,
                        std::shared_ptr<Comm>* out_comm);
  ~Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // May block for some milliseconds.
  Outcome IsReady(uint32_t* out_ready);
  // Has the rank's thread join, if the unique id is there. Not of one that is
  // made in any order, which joins by itself.
  Outcome TryJoin(bool* out_joins);
  // The launches to come. The rank's thread connects what they need and none
  // before has, and registers memory: until then it is not ready, and launches
  // wait.
  Outcome Expect(const commsched_launch_t* launches, uint32_t num_launches);
  Outcome Launch(const commsched_launch_t& launch, cudaStream_t stream);
  Outcome Status();
  // Leaves, on the rank's thread; kDeadlineExceeded if that takes longer.
  Outcome Destroy(int64_t deadline_ns);

  // ---- The abort, in the order of AbortAll() (abort.h) ----

  // Marks it: whether nobody has before.
  bool MarkAborted(commsched_status_t status, const std::string& why);
  // True: the caller now owns NCCL's communicator, which is null if it was
  // never made, and has to abort or destroy it and then call Left(). False:
  // another thread owns it. Waits for a launch that is under way.
  bool Take(ncclComm_t* out_comm);
  // Likewise, but waits for nobody. False: a launch is under way, or a look.
  bool TryTake(bool* out_is_mine, ncclComm_t* out_comm);
  // NCCL's communicator, while a launch is under way: it stays until somebody
  // takes it. Else null.
  ncclComm_t launching() const {
    return launching_.load(std::memory_order_relaxed);
  }
  // Whether graphs may have launches of it; for good once it was taken.
  bool may_be_in_graphs() const {
    return has_streams_.load(std::memory_order_relaxed);
  }
  // Its kernels have ended on this rank, which the members on the host may wait
  // for.
  void SayEnded();
  // Waits for those members; kDeadlineExceeded, or why one does not come.
  Outcome AwaitEnded(int64_t deadline_ns);
  // NCCL's communicator is gone.
  void Left();

  const std::string& name() const { return name_; }

  // Has memory registered once launches are expected, if all members want that
  // and NCCL takes the memory of all of them. A number for Deregister(); 0: it
  // will not be. Before Expect(), with nothing under way.
  uint64_t Register(void* address, uint64_t bytes);
  void Deregister(uint64_t number);

 private:
  // kJoining: it is with the rank's thread, which joins or connects; kLeaving:
  // with who has taken it.
  enum class State {
    kNoId,
    kJoining,
    kWarming,
    kReady,
    kFailed,
    kLeaving,
    kGone
  };

  Comm(Rank* rank, const commsched_comm_desc_t& desc);
  // The first one stays.
  void Fail(Outcome why);
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  Outcome Failure();
  // Memory that is to be registered.
  struct Registration {
    uint64_t number = 0;
    void* address = nullptr;
    uint64_t bytes = 0;
    void* handle = nullptr;  // NCCL's; null: it is not.
  };

  bool TakeLocked(ncclComm_t* out_comm);  // With both locks.
  void Join(const ncclUniqueId& id);
  // Of one that is made in any order, on a thread of its own: once all members
  // have come.
  void JoinApart(const ncclUniqueId& id);
  Outcome AwaitMembers(ncclUniqueId* id);
  Outcome AwaitValue(const std::string& key, void* value, uint64_t bytes);
  std::string KeyOfMember(int member) const;
  // Has `calls` made, on the rank's thread and device, with a stream that is
  // theirs. They may wait for other members. Then it is ready, or has failed.
  void Meet(const std::function<Outcome(cudaStream_t)>& calls);
  Outcome MakeStream(cudaStream_t* out_stream);
  Outcome AwaitKernels(cudaStream_t stream);
  Outcome Connect(const ncclUniqueId& id, cudaStream_t stream);
  // Has the rank's thread connect what `warm_up` has.
  Outcome ConnectFor(WarmUp warm_up);
  Outcome ConnectLaunches(const WarmUp& warm_up, cudaStream_t stream);
  Outcome LaunchClasses(const WarmUp& warm_up, cudaStream_t stream);
  Outcome Exchange(const WarmUp& warm_up, cudaStream_t stream);
  // A message from each member to each other one.
  Outcome ExchangeAmongAll(cudaStream_t stream);
  // Has members say whether they all do; has_agreed() knows once what is on
  // `stream` has been done.
  Outcome Agree(bool mine, cudaStream_t stream);
  bool has_agreed() const;
  bool RegisterAll();
  void DeregisterAll();
  // Whether it goes on: nobody has aborted it in between.
  bool EnterWarmUp();
  void EndJoin();
  void FinishJoin(Outcome outcome);
  void Leave();
  // first_launch.cc
  // Waits for the members that `launch` connects to launch it, too, if any are
  // to be connected. Lets go of `lock`, which holds mu_, meanwhile.
  Outcome MeetForFirst(const commsched_launch_t& launch,
                       std::unique_lock<std::mutex>* lock);
  Outcome MeetAll(const commsched_launch_t& launch);
  Outcome MeetPeers(const commsched_launch_t& launch);
  Outcome LaunchOnStream(const commsched_launch_t& launch, cudaStream_t stream,
                         std::unique_lock<std::mutex>* lock);
  std::string EndedKey(int member) const;
  // Whether graphs may have launches of it: captures have streams of their own.
  bool MayBeInGraphs(cudaStream_t stream);
  Outcome LaunchScaled(const commsched_launch_t& launch, cudaStream_t stream);
  ncclRedOp_t ReductionOf(const commsched_launch_t& launch) const;
  Outcome LaunchMembers(const commsched_launch_t& launch, cudaStream_t stream);
  template <typename Members>
  Outcome InGroup(const Members& members);
  // deterministic.cc
  bool ReducesInOrder(const commsched_launch_t& launch) const;
  bool HasInputs(uint64_t bytes);
  WarmUp Connected();
  Outcome AddInputs(uint64_t bytes);
  // Lets go of `lock`, which holds mu_, while memory is made.
  Outcome FindInputs(const commsched_launch_t& launch,
                     std::unique_lock<std::mutex>* lock, char** out_inputs);
  Outcome LaunchInOrder(const commsched_launch_t& launch, cudaStream_t stream,
                        std::unique_lock<std::mutex>* lock);
  Outcome ExchangeInputs(const commsched_launch_t& launch,
                         const commsched_member_t& member, char* inputs,
                         cudaStream_t stream);
  Outcome ReduceInputs(const commsched_launch_t& launch,
                       const commsched_member_t& member, const char* inputs,
                       cudaStream_t stream);
  Outcome GatherParts(const commsched_launch_t& launch,
                      const commsched_member_t& member, cudaStream_t stream);
  Outcome LaunchMember(const commsched_launch_t& launch,
                       const commsched_member_t& member, cudaStream_t stream);
  Outcome LaunchUneven(const commsched_launch_t& launch,
                       const commsched_member_t& member, cudaStream_t stream);
  Outcome ExchangeAll(const commsched_launch_t& launch,
                      const commsched_member_t& member, cudaStream_t stream);
  Outcome Check(const char* call, ncclResult_t result) const {
    return library_.Check(call, result, comm_);
  }

  Rank& rank_;
  const Library& library_;
  ncclConfig_t config_ = NCCL_CONFIG_INITIALIZER;
  const std::string key_;   // Of the unique id.
  const std::string name_;  // For messages.
  const int size_;
  const int group_rank_;
  const bool in_any_order_;
  std::vector<int> ranks_;    // Of the world, by member. Constant.
  std::vector<int> on_host_;  // Other members there. Constant.

  // Held from a look at comm_ until NCCL has answered, and by who takes it
  // away.
  std::mutex look_mu_;
  // Inside of look_mu_: held by launches and by who leaves.
  std::mutex mu_;
  std::condition_variable changed_;
  State state_ = State::kNoId;
  ncclComm_t comm_ = nullptr;
  std::atomic<ncclComm_t> launching_{nullptr};  // Written with mu_.
  // An element per member, made before it is ready. Barriers use the first.
  Rank::Scratch barrier_;
  // Of the warm-up, while it lasts.
  Rank::Scratch warm_up_;
  bool is_expected_ = false;  // Expect() has been called.
  WarmUp warmed_up_;          // What it has connected.
  uint64_t num_met_ = 0;      // Collectives that members have met for.
  // Of launches: the first one's; and whether another one had another.
  cudaStream_t stream_ = nullptr;
  bool has_stream_ = false;
  std::atomic<bool> has_streams_{false};  // Written with mu_.
  // How many members have said yes, in units of kYes (comm.cc).
  float num_agreed_ = 0;
  bool registers_ = false;  // All members do.
  std::vector<Registration> registered_;
  uint64_t num_registered_ = 0;  // Ever.
  // Where launches put what their reductions take, one after the other.
  std::vector<Rank::Scratch> inputs_;
  const kernels::CudaKernels* kernels_ = nullptr;
  ncclRedOp_t scaled_sum_ = ncclSum;  // Of the launch under way.
  std::atomic<bool> aborted_{false};
  std::atomic<bool> leaves_{false};  // Changes with mu_.
  std::mutex failure_mu_;            // Inside of mu_; held for no call.
  Outcome failure_;
  std::atomic<bool> failed_{false};  // Whether there is one.
};

// Calls `members` in one group of NCCL's.
template <typename Members>
Outcome Comm::InGroup(const Members& members) {
  const ncclResult_t begun = library_.GroupStart();
  if (begun != ncclSuccess) return Check("ncclGroupStart", begun);
  Outcome outcome = members();
  // Begun is to be ended, whatever came between.
  const ncclResult_t ended = library_.GroupEnd();
  if (ended != ncclSuccess && outcome.ok()) {
    outcome = Check("ncclGroupEnd", ended);
  }
  return outcome;
}

}  // namespace commsched::nccl

#endif  // COMMSCHED_PLUGINS_NCCL_COMM_H_
