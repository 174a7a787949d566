// Calls without a graph, on four ranks that are threads: a ring of sends, and
// sums over all ranks and over pairs of neighbours, told by completions.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "commsched/channel.hpp"

namespace {

namespace cs = commsched::api;

constexpr int kRanks = 4;
constexpr uint64_t kAll = 1;  // What completions call the channels.
constexpr uint64_t kPair = 2;

void Check(const cs::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

template <typename T>
T Value(cs::Result<T> result) {
  Check(result.status());
  return *std::move(result);
}

// What a rank has to show.
struct Shown {
  float received = -1;
  std::vector<float> sums = {1, 2, 3};
  float pair_sum = 0;
  int num_told = 0;
};

cs::Channel CreateChannel(const cs::Context& context,
                          const std::vector<int32_t>& ranks, const char* axis,
                          uint64_t key, const cs::Completions& completions) {
  const cs::Group group = Value(cs::Group::Create(context, axis, ranks));
  cs::ChannelSpec spec;
  spec.completions = &completions;
  spec.key = key;
  return Value(cs::Channel::Create(context, group, spec));
}

// Takes completions until there are `expected`.
void Serve(cs::Completions* completions, int expected, Shown* shown) {
  std::vector<commsched_completion_t> taken(8);
  while (shown->num_told < expected) {
    const uint64_t count = Value(completions->Next(&taken));
    for (uint64_t i = 0; i < count; ++i) {
      if (taken[i].status != COMMSCHED_OK) std::exit(1);
      ++shown->num_told;
    }
  }
}

void RunRank(const cs::World& world, int rank, Shown* shown) {
  const cs::Context context = Value(cs::Context::Create(world, rank));
  cs::Completions completions = Value(cs::Completions::Create(64));
  const int first = rank / 2 * 2;
  cs::Channel all =
      CreateChannel(context, {0, 1, 2, 3}, "dp", kAll, completions);
  cs::Channel pair =
      CreateChannel(context, {first, first + 1}, "tp", kPair, completions);
  std::thread server([&] { Serve(&completions, 5, shown); });

  // Every rank sends first. What is sent stays until the request is done.
  const float own = static_cast<float>(rank);
  const int next = (rank + 1) % kRanks;
  const int before = (rank + kRanks - 1) % kRanks;
  Value(all.Submit(cs::SendOf(next, &own, 1)));
  const uint64_t received =
      Value(all.Submit(cs::RecvOf(before, &shown->received, 1)));
  Check(all.Wait(received));

  // Three numbers in two requests, and one over the pair.
  for (float& value : shown->sums) value *= own + 1;
  Value(all.Submit(cs::AllReduceOf(shown->sums.data(), 2)));
  Value(all.Submit(cs::AllReduceOf(&shown->sums[2], 1)));
  shown->pair_sum = own + 1;
  Value(pair.Submit(cs::AllReduceOf(&shown->pair_sum, 1)));
  server.join();
}

}  // namespace

int main() {
  const cs::World world = Value(cs::World::CreateInproc(kRanks));
  std::vector<Shown> shown(kRanks);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank] { RunRank(world, rank, &shown[rank]); });
  }
  for (std::thread& rank : ranks) rank.join();

  std::printf("the ring passed");
  for (const Shown& of : shown) std::printf(" %.0f", of.received);
  std::printf(" on\nsums over all ranks:");
  for (float sum : shown[0].sums) std::printf(" %.0f", sum);
  std::printf("\nsums over pairs:");
  for (const Shown& of : shown) std::printf(" %.0f", of.pair_sum);
  int told = 0;
  for (const Shown& of : shown) told += of.num_told;
  std::printf("\neach rank was told of %d requests\n", told / kRanks);
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? 0 : 1;
}
