// Rules of NCCL's communicators and groups, in the words of nccl.h.
#include <cstring>
#include <string>
#include <vector>

#include "test/fakes/rules/nccl_ranks.h"
#include "test/fakes/rules/rules.h"

namespace commsched::rules {
namespace {

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

// Two ranks that call different collectives wait for each other.
std::string AnAbortEndsWhatHangs() {
  return OnRanks(
      [](Rank& r) {
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
      RULE(AHealthyCommunicatorHasNoError, "ncclCommGetAsyncError",
           "Checks whether the comm has encountered any asynchronous errors"),
      RULE(GroupsNest, "ncclGroupEnd",
           "(of groups within groups, the outermost end starts the calls)"),
      RULE(AGroupThatHasNotBegunDoesNotEnd, "ncclGroupEnd",
           "(a group that has not begun cannot end)"),
#undef RULE
      {"AnAbortEndsWhatHangs", "ncclCommAbort",
       "aborts any operations that might still be running on the device.",
       &AnAbortEndsWhatHangs, /*stand_in_only=*/true},
      {"AStreamOfAnotherDeviceIsRefused", "CUDA Stream Semantics",
       "(a stream is of the communicator's device)",
       &AStreamOfAnotherDeviceIsRefused, /*stand_in_only=*/true},
      {"MemoryIsDeregisteredOnce", "ncclCommDeregister",
       "(a handle is valid until it is deregistered)",
       &MemoryIsDeregisteredOnce, /*stand_in_only=*/true},
  };
}

}  // namespace commsched::rules
