// Rules of NCCL's collectives, sends and receives, in the words of nccl.h.
#include <cstdint>
#include <string>
#include <vector>

#include "test/fakes/rules/nccl_ranks.h"
#include "test/fakes/rules/rules.h"

namespace commsched::rules {
namespace {

std::string AllReduceGivesAllTheSame() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                            r.comm, r.stream));
    r.Synchronize();
    r.Require(r.Read(r.receive, kCount) == std::vector<float>(kCount, 3),
              "each rank has the sum");
  });
}

std::string AllReduceMayBeInPlace() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.AllReduce(r.send, r.send, kCount, ncclFloat, ncclSum, r.comm,
                            r.stream));
    r.Synchronize();
    r.Require(r.Read(r.send, kCount) == std::vector<float>(kCount, 3),
              "each rank has the sum where its input was");
  });
}

std::string AllGatherInPlaceSendsItsBlock() {
  return OnRanks([](Rank& r) {
    float* const mine = r.receive + static_cast<size_t>(r.rank) * kCount;
    r.Write(mine, static_cast<float>(r.rank + 1), kCount);
    r.Must(
        r.nccl.AllGather(mine, r.receive, kCount, ncclFloat, r.comm, r.stream));
    r.Synchronize();
    std::vector<float> expected(kCount, 1);
    expected.resize(kRanks * kCount, 2);
    r.Require(r.Read(r.receive, kRanks * kCount) == expected,
              "block r is that of rank r");
  });
}

std::string ReduceScatterInPlaceKeepsOtherBlocks() {
  return OnRanks([](Rank& r) {
    float* const mine = r.send + static_cast<size_t>(r.rank) * kCount;
    r.Must(r.nccl.ReduceScatter(r.send, mine, kCount, ncclFloat, ncclSum,
                                r.comm, r.stream));
    r.Synchronize();
    r.Require(r.Read(mine, kCount) == std::vector<float>(kCount, 3),
              "the own block is the sum");
  });
}

std::string OnlyTheRootReceivesAReduction() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.Reduce(r.send, r.rank == 0 ? r.receive : nullptr, kCount,
                         ncclFloat, ncclSum, 0, r.comm, r.stream));
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == (r.rank == 0 ? 3.0f : -1.0f),
              "the root has the sum, and the other rank nothing");
  });
}

std::string AGroupLetsSendsAndReceivesMeet() {
  return OnRanks([](Rank& r) {
    const int peer = 1 - r.rank;
    r.Must(r.nccl.GroupStart());
    r.Must(r.nccl.Send(r.send, kCount, ncclFloat, peer, r.comm, r.stream));
    r.Must(r.nccl.Recv(r.receive, kCount, ncclFloat, peer, r.comm, r.stream));
    r.Must(r.nccl.GroupEnd());
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == static_cast<float>(peer + 1),
              "each rank has what the other sent");
  });
}

std::string ARankMaySendToItself() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.GroupStart());
    r.Must(r.nccl.Send(r.send, kCount, ncclFloat, r.rank, r.comm, r.stream));
    r.Must(r.nccl.Recv(r.receive, kCount, ncclFloat, r.rank, r.comm, r.stream));
    r.Must(r.nccl.GroupEnd());
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == static_cast<float>(r.rank + 1),
              "it has what it sent");
  });
}

std::string NothingStartsBeforeTheGroupEnds() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.GroupStart());
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                            r.comm, r.stream));
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == -1, "nothing is enqueued yet");
    r.Must(r.nccl.GroupEnd());
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == 3, "the group is");
  });
}

std::string ABroadcastCopiesWhatTheRootHas() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.Broadcast(r.send, r.receive, kCount, ncclFloat, /*root=*/1,
                            r.comm, r.stream));
    r.Synchronize();
    r.Require(r.Read(r.receive, kCount) == std::vector<float>(kCount, 2),
              "each rank has what rank 1 had");
  });
}

std::string AllToAllPutsWhatRankISentAtI() {
  return OnRanks(
      [](Rank& r) {
        // Rank r sends 10 r + j to rank j.
        for (int j = 0; j < kRanks; ++j) {
          r.Write(r.send + static_cast<size_t>(j) * kCount,
                  static_cast<float>(10 * r.rank + j), kCount);
        }
        r.Must(r.nccl.AlltoAll(r.send, r.receive, kCount, ncclFloat, r.comm,
                               r.stream));
        r.Synchronize();
        std::vector<float> expected(kCount, static_cast<float>(r.rank));
        expected.resize(kRanks * kCount, static_cast<float>(10 + r.rank));
        r.Require(r.Read(r.receive, kRanks * kCount) == expected,
                  "block i is what rank i sent");
      },
      /*aborts=*/false, /*oldest=*/22800);
}

std::string NothingIsReducedOfNothing() {
  return OnRanks([](Rank& r) {
    r.Must(r.nccl.AllReduce(r.send, r.receive, 0, ncclFloat, ncclSum, r.comm,
                            r.stream));
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == -1, "no element is written");
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, ncclSum,
                            r.comm, r.stream));
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == 3, "the next call is met");
  });
}

std::string TheAverageOfIntegersIsOneOfThem() {
  return OnRanks([](Rank& r) {
    const int32_t mine = r.rank == 0 ? 7 : 8;
    int32_t average = 0;
    r.Must(r.cuda.Memcpy(r.send, &mine, sizeof(mine), cudaMemcpyHostToDevice));
    r.Must(r.cuda.StreamSynchronize(nullptr));
    r.Must(r.nccl.AllReduce(r.send, r.receive, 1, ncclInt32, ncclAvg, r.comm,
                            r.stream));
    r.Synchronize();
    r.Must(r.cuda.Memcpy(&average, r.receive, sizeof(average),
                         cudaMemcpyDeviceToHost));
    r.Require(average == 7, "7.5 is rounded towards zero");
  });
}

// Ranks have other scalars here: it is each one's own.
std::string AScalarMultipliesWhatARankGives() {
  return OnRanks([](Rank& r) {
    float scalar = r.rank == 0 ? 0.5f : 2.0f;
    ncclRedOp_t op = ncclSum;
    r.Must(r.nccl.RedOpCreatePreMulSum(&op, &scalar, ncclFloat,
                                       ncclScalarHostImmediate, r.comm));
    scalar = 100;  // It has been read.
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, op, r.comm,
                            r.stream));
    r.Must(r.nccl.RedOpDestroy(op, r.comm));
    r.Synchronize();
    r.Require(r.Read(r.receive, kCount) == std::vector<float>(kCount, 4.5f),
              "1 * 0.5 + 2 * 2 is everywhere");
  });
}

std::string AnOperationMayBeDestroyedBeforeItsGroupEnds() {
  return OnRanks([](Rank& r) {
    float scalar = 0.5f;
    ncclRedOp_t op = ncclSum;
    r.Must(r.nccl.RedOpCreatePreMulSum(&op, &scalar, ncclFloat,
                                       ncclScalarHostImmediate, r.comm));
    r.Must(r.nccl.GroupStart());
    r.Must(r.nccl.AllReduce(r.send, r.receive, kCount, ncclFloat, op, r.comm,
                            r.stream));
    r.Must(r.nccl.RedOpDestroy(op, r.comm));
    r.Must(r.nccl.GroupEnd());
    r.Synchronize();
    r.Require(r.Read(r.receive, 1)[0] == 1.5f, "the sum is of the products");
  });
}

}  // namespace

std::vector<Rule> NcclRules() {
  return {
#define RULE(name, source, sentence) {#name, source, sentence, &name}
      RULE(AllReduceGivesAllTheSame, "ncclAllReduce",
           "leaves identical copies of result on each recvbuff."),
      RULE(AllReduceMayBeInPlace, "ncclAllReduce",
           "In-place operation will happen if sendbuff == recvbuff."),
      RULE(AllGatherInPlaceSendsItsBlock, "ncclAllGather",
           "In-place operations will happen if sendbuff == recvbuff + rank * "
           "sendcount."),
      RULE(ReduceScatterInPlaceKeepsOtherBlocks, "ncclReduceScatter",
           "In-place operations will happen if recvbuff == sendbuff + rank * "
           "recvcount."),
      RULE(OnlyTheRootReceivesAReduction, "ncclReduce",
           "recvbuff may be NULL on all calls except for root device."),
      RULE(AGroupLetsSendsAndReceivesMeet, "ncclSend",
           "If multiple ncclSend and ncclRecv operations need to progress "
           "concurrently to complete, they must be fused within a "
           "ncclGroupStart/ ncclGroupEnd section."),
      RULE(ARankMaySendToItself, "ncclSend",
           "If multiple ncclSend and ncclRecv operations need to progress "
           "concurrently to complete, they must be fused within a "
           "ncclGroupStart/ ncclGroupEnd section."),
      RULE(NothingStartsBeforeTheGroupEnds, "ncclGroupStart",
           "Start a group call. All calls to NCCL until ncclGroupEnd will be "
           "fused into a single NCCL operation."),
      RULE(ABroadcastCopiesWhatTheRootHas, "ncclBroadcast",
           "Copies count values from root to all other devices."),
      RULE(AllToAllPutsWhatRankISentAtI, "ncclAlltoAll",
           "Data to send to destination rank j is taken from sendbuff+j*count "
           "and data received from source rank i is placed at "
           "recvbuff+i*count."),
      RULE(NothingIsReducedOfNothing, "ncclAllReduce",
           "(a count of 0 is a call like any other, and moves nothing)"),
      RULE(TheAverageOfIntegersIsOneOfThem, "ncclRedOp_t",
           "(the average of integers is the sum divided as integers are)"),
      RULE(AScalarMultipliesWhatARankGives, "ncclRedOpCreatePreMulSum",
           "Creates a new reduction operator which pre-multiplies input values "
           "by a given scalar locally before reducing them with peer values "
           "via summation."),
      RULE(AnOperationMayBeDestroyedBeforeItsGroupEnds, "ncclRedOpDestroy",
           "An operator may be destroyed as soon as the last NCCL function "
           "which is given that operator returns."),
#undef RULE
  };
}

}  // namespace commsched::rules
