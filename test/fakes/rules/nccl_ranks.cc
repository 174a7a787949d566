#include "test/fakes/rules/nccl_ranks.h"

#include <thread>

namespace commsched::rules {
namespace {

void RunRank(Rank& self, const ncclUniqueId& id, bool aborts,
             const Body& body) {
  void* memory[2] = {};
  self.Must(self.cuda.SetDevice(self.rank));
  self.Must(self.cuda.StreamCreateWithPriority(&self.stream,
                                               cudaStreamNonBlocking, 0));
  for (void*& each : memory) {
    self.Must(self.cuda.Malloc(&each, kRanks * kCount * sizeof(float)));
  }
  self.send = static_cast<float*>(memory[0]);
  self.receive = static_cast<float*>(memory[1]);
  self.Write(self.send, static_cast<float>(self.rank + 1), kRanks * kCount);
  self.Write(self.receive, -1, kRanks * kCount);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  self.Must(
      self.nccl.CommInitRankConfig(&self.comm, kRanks, id, self.rank, &config));
  if (self.comm != nullptr) body(self);
  if (self.comm != nullptr && !aborts) {
    self.Must(self.nccl.CommDestroy(self.comm));
  }
  for (void* each : memory) self.Must(self.cuda.Free(each));
  self.Must(self.cuda.StreamDestroy(self.stream));
}

}  // namespace

std::string OnRanks(const Body& body, bool aborts, int oldest) {
  Cuda cuda;
  Nccl nccl;
  std::string why = cuda.Load();
  if (why.empty()) why = nccl.Load();
  if (!why.empty()) return why;
  int version = 0;
  nccl.GetVersion(&version);
  if (version < oldest) return "";
  int num_devices = 0;
  cuda.GetDeviceCount(&num_devices);
  if (num_devices < kRanks) return "";
  ncclUniqueId id = {};
  nccl.GetUniqueId(&id);
  std::vector<Rank> ranks;
  for (int r = 0; r < kRanks; ++r) ranks.push_back({cuda, nccl, r});
  std::vector<std::thread> threads;
  for (Rank& rank : ranks) {
    threads.emplace_back([&] { RunRank(rank, id, aborts, body); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Rank& rank : ranks) {
    if (!rank.error.empty()) return rank.error;
  }
  return "";
}

}  // namespace commsched::rules
