// Rules of NCCL's communicators and groups, in the words of nccl.h.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "test/fakes/rules/bench.h"
#include "test/fakes/rules/nccl_ranks.h"
#include "test/fakes/rules/rules.h"

namespace commsched::rules {
namespace {

// The first with ncclCommRevoke().
constexpr int kRevokes = 22807;

std::string TwoIdsDiffer() {
  Nccl nccl;
  const std::string why = nccl.Load();
  if (!why.empty()) return why;
  ncclUniqueId ids[2] = {};
  for (ncclUniqueId& id : ids) {
    if (nccl.GetUniqueId(&id) != ncclSuccess) return "ncclGetUniqueId failed";
  }
  return std::memcmp(&ids[0], &ids[1], sizeof(ids[0])) != 0
             ? ""
             : "does not hold: two ids differ";
}

// Handles may be null: where registration is off, for instance.
std::string RegisteredMemoryIsReducedAsAnyOther() {
  return OnRanks([](Rank& r) {
    void* handle = nullptr;
    r.Must(r.nccl.CommRegister(r.comm, r.send, kRanks * kCount * sizeof(float),
                               &handle));
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                            r.comm, r.stream));
    r.Synchronize();
    if (handle != nullptr) r.Must(r.nccl.CommDeregister(r.comm, handle));
    r.Require(r.Read(r.receive, kCount) == std::vector<float>(kCount, 3),
              "each rank has the sum");
  });
}

std::string MemoryIsDeregisteredOnce() {
  return OnRanks([](Rank& r) {
    void* handle = nullptr;
    r.Must(r.nccl.CommRegister(r.comm, r.send, kCount, &handle));
    r.Must(r.nccl.CommDeregister(r.comm, handle));
    r.Require(r.nccl.CommDeregister(r.comm, handle) == ncclInvalidUsage,
              "the handle is not valid any more");
  });
}

std::string AHealthyCommunicatorHasNoError() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                            r.comm, r.stream));
    r.Synchronize();
    ncclResult_t error = ncclInternalError;
    r.Must(r.nccl.CommGetAsyncError(r.comm, &error));
    r.Require(error == ncclSuccess, "no error is reported");
  });
}

std::string AStreamOfAnotherDeviceIsRefused() {
  return OnRanks([](Rank& r) {
    cudaStream_t stream = nullptr;
    r.Must(r.cuda.SetDevice(1 - r.rank));
    r.Must(r.cuda.StreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
    r.Must(r.cuda.SetDevice(r.rank));
    r.Require(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                               r.comm, stream) == ncclInvalidArgument,
              "the stream is not of the communicator's device");
    r.Must(r.cuda.StreamDestroy(stream));
  });
}

std::string GroupsNest() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.GroupStart());
    r.Must(r.nccl.GroupStart());
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                            r.comm, r.stream));
    r.Must(r.nccl.GroupEnd());
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == -1, "the inner end starts nothing");
    r.Must(r.nccl.GroupEnd());
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == 3, "the outer end does");
  });
}

std::string AGroupThatHasNotBegunDoesNotEnd() {
  return OnRanks([](Rank& r) {
    r.Require(r.nccl.GroupEnd() == ncclInvalidUsage,
              "an end has a start before it");
  });
}

// Sums that have been called before have their connections.
void ConnectSums(Rank& r, size_t count) {
  r.Must(r.nccl.AllReduce(r.send, r.send, count, ncclFloat, ncclSum, r.comm,
                          r.stream));
  r.Synchronize();
}

// The second call of a kind waits for nobody; the first does, in the thread
// that makes it, and so does the first of another size.
std::string TheFirstCallOfAKindWaitsForTheOthers() {
  std::atomic<int> num_returned{0};
  return OnRanks(
      [&](Rank& r) {
        const auto sum = [&](size_t count) {
          r.Must(r.nccl.AllReduce(r.send, r.receive, count, ncclFloat, ncclSum,
                                  r.comm, r.stream));
        };
        int expected = 0;
        for (const size_t count : {kCount, kCount / 16}) {
          for (const bool is_first : {true, false}) {
            if (r.rank == 0) {
              sum(count);
              ++num_returned;
            } else {
              // As long as it takes to run some hundred pieces of work.
              for (int i = 0; i < 200; ++i) r.Read(r.send, 1);
              r.Require(!is_first || num_returned == expected,
                        "the first call waits for the other rank's");
              while (!is_first && num_returned == expected) {
                std::this_thread::yield();
              }
              sum(count);
            }
            ++expected;
            r.Synchronize();
          }
        }
      },
      /*aborts=*/false, /*oldest=*/22200);
}

// Two ranks that call different collectives wait for each other.
std::string AnAbortEndsWhatHangs() {
  return OnRanks(
      [](Rank& r) {
        ConnectSums(r, kCount);
        ConnectSums(r, kCount / 2);
        const size_t count = r.rank == 0 ? kCount : kCount / 2;
        r.Must(r.nccl.AllReduce(r.send, r.receive, count, ncclFloat, ncclSum,
                                r.comm, r.stream));
        r.Require(r.cuda.StreamQuery(r.stream) == cudaErrorNotReady,
                  "ranks that do not match hang");
        r.cuda.GetLastError();
        r.Must(r.nccl.CommAbort(r.comm));
        r.Synchronize();
      },
      /*aborts=*/true);
}

// Memory stays until the abort.
std::string ARevocationEndsWhatHangs() {
  return OnRanks(
      [](Rank& r) {
        ConnectSums(r, kCount);
        ConnectSums(r, kCount / 2);
        const size_t count = r.rank == 0 ? kCount : kCount / 2;
        r.Must(r.nccl.AllReduce(r.send, r.receive, count, ncclFloat, ncclSum,
                                r.comm, r.stream));
        r.Must(r.nccl.CommRevoke(r.comm, NCCL_REVOKE_DEFAULT));
        r.Synchronize();
        r.Require(r.nccl.AllReduce(r.send, r.receive, count, ncclFloat, ncclSum,
                                   r.comm, r.stream) == ncclInvalidUsage,
                  "what is launched later is an invalid usage");
        r.Must(r.nccl.CommAbort(r.comm));
      },
      /*aborts=*/true, kRevokes);
}

std::string ARevocationHasNoFlags() {
  return OnRanks(
      [](Rank& r) {
        r.Require(r.nccl.CommRevoke(r.comm, 1) != ncclSuccess,
                  "a flag that is not there is refused");
      },
      /*aborts=*/false, kRevokes);
}

// A stream beside the rank's.
class SecondStream {
 public:
  explicit SecondStream(Rank* rank) : rank_(*rank) {
    rank_.Must(rank_.cuda.StreamCreateWithPriority(&stream_,
                                                   cudaStreamNonBlocking, 0));
  }
  ~SecondStream() { rank_.Must(rank_.cuda.StreamDestroy(stream_)); }
  SecondStream(const SecondStream&) = delete;
  SecondStream& operator=(const SecondStream&) = delete;

  // Rank 0 sends what is at `from`; rank 1 gets it at `to`.
  void SendToRank1(const float* from, float* to) {
    rank_.Must(rank_.rank == 0
                   ? rank_.nccl.Send(from, kCount, ncclFloat, /*peer=*/1,
                                     rank_.comm, stream_)
                   : rank_.nccl.Recv(to, kCount, ncclFloat, /*peer=*/0,
                                     rank_.comm, stream_));
  }
  bool IsBusy() {
    const cudaError_t code = rank_.cuda.StreamQuery(stream_);
    rank_.cuda.GetLastError();
    return code == cudaErrorNotReady;
  }
  void Synchronize() { rank_.Must(rank_.cuda.StreamSynchronize(stream_)); }

 private:
  Rank& rank_;
  cudaStream_t stream_ = nullptr;
};

// What is sent on one stream is the sum that is computed on the other, though
// no event orders them and the sum is late.
std::string AKernelWaitsForThoseOfItsCommunicator() {
  return OnRanks([](Rank& r) {
    SecondStream second(&r);
    void* busy[2] = {};
    for (void*& each : busy) r.Must(r.cuda.Malloc(&each, kBytes));
    for (int i = 0; i < 20; ++i) {
      r.Must(r.cuda.MemcpyAsync(busy[0], busy[1], kBytes,
                                cudaMemcpyDeviceToDevice, r.stream));
    }
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                            r.comm, r.stream));
    float* const sent = r.send + kCount;
    second.SendToRank1(r.receive, sent);
    second.Synchronize();
    r.Synchronize();
    r.Require(
        r.rank == 0 || r.Read(sent, kCount) == std::vector<float>(kCount, 3),
        "the send comes after the sum");
    for (void* each : busy) r.Must(r.cuda.Free(each));
  });
}

// So launches of one communicator on two streams wait for each other where the
// ranks launch them in another order.
std::string StreamsOfACommunicatorInTwoOrdersHang() {
  std::atomic<int> num_launched{0};
  return OnRanks(
      [&](Rank& r) {
        SecondStream second(&r);
        float* const sent = r.send + kCount;
        ConnectSums(r, kCount);
        second.SendToRank1(r.send, sent);
        second.Synchronize();
        if (r.rank == 1) second.SendToRank1(r.send, sent);
        r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                                r.comm, r.stream));
        if (r.rank == 0) second.SendToRank1(r.send, sent);
        ++num_launched;
        while (num_launched < kRanks) std::this_thread::yield();
        // As long as it takes to run some hundred pieces of work.
        for (int i = 0; i < 200; ++i) r.Read(sent, 1);
        r.Require(second.IsBusy(), "neither rank gets on with the send");
        r.Require(r.cuda.StreamQuery(r.stream) == cudaErrorNotReady,
                  "nor with the sum");
        r.cuda.GetLastError();
        r.Must(r.nccl.CommAbort(r.comm));
        r.Synchronize();
        second.Synchronize();
        r.Require(r.Read(r.receive, 1)[0] == -1, "nothing was summed up");
      },
      /*aborts=*/true);
}

}  // namespace

std::vector<Rule> NcclCommRules() {
  return {
#define RULE(name, source, sentence) {#name, source, sentence, &name}
      RULE(TwoIdsDiffer, "ncclGetUniqueId",
           "ncclGetUniqueId should be called once and the Id should be "
           "distributed to all ranks in the communicator before calling "
           "ncclCommInitRank."),
      RULE(RegisteredMemoryIsReducedAsAnyOther, "ncclCommRegister",
           "Register CUDA buffer for zero-copy operation"),
      RULE(ARevocationHasNoFlags, "ncclCommRevoke",
           "revokeFlags must be NCCL_REVOKE_DEFAULT (0)."),
      RULE(AHealthyCommunicatorHasNoError, "ncclCommGetAsyncError",
           "Checks whether the comm has encountered any asynchronous errors"),
      RULE(GroupsNest, "ncclGroupEnd",
           "(of groups within groups, the outermost end starts the calls)"),
      RULE(AGroupThatHasNotBegunDoesNotEnd, "ncclGroupEnd",
           "(a group that has not begun cannot end)"),
      RULE(AKernelWaitsForThoseOfItsCommunicator, "NVIDIA/nccl, issue 574",
           "NCCL collective operations on a given communicator are always "
           "serialized; NCCL adds CUDA events to enforce that."),
#undef RULE
      {"TheFirstCallOfAKindWaitsForTheOthers",
       "NCCL user guide, NCCL_RUNTIME_CONNECT (since 2.22)",
       "Dynamically connect peers during runtime (e.g., calling "
       "ncclAllreduce()) instead of init stage.",
       &TheFirstCallOfAKindWaitsForTheOthers, /*stand_in_only=*/true},
      {"StreamsOfACommunicatorInTwoOrdersHang", "NVIDIA/nccl, issue 574",
       "(what is serialized in another order on two ranks never ends; seen on "
       "an H200)",
       &StreamsOfACommunicatorInTwoOrdersHang, /*stand_in_only=*/true},
      {"AnAbortEndsWhatHangs", "ncclCommAbort",
       "aborts any operations that might still be running on the device.",
       &AnAbortEndsWhatHangs, /*stand_in_only=*/true},
      {"ARevocationEndsWhatHangs", "ncclCommRevoke",
       "ncclCommRevoke stops all in-flight operations",
       &ARevocationEndsWhatHangs, /*stand_in_only=*/true},
      {"AStreamOfAnotherDeviceIsRefused", "CUDA Stream Semantics",
       "(a stream is of the communicator's device)",
       &AStreamOfAnotherDeviceIsRefused, /*stand_in_only=*/true},
      {"MemoryIsDeregisteredOnce", "ncclCommDeregister",
       "(a handle is valid until it is deregistered)",
       &MemoryIsDeregisteredOnce, /*stand_in_only=*/true},
  };
}

}  // namespace commsched::rules
