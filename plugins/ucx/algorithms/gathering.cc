#include "ucx/algorithms/gathering.h"

#include <algorithm>
#include <vector>

#include "ucx/algorithms/rounds_cost.h"
#include "ucx/algorithms/tree_shape.h"

namespace commsched::ucx {
namespace {

// How ranks of one host gather: after each round they have `radix` times as
// much. Where they share cores a round is a turn of all of them, which costs
// more than a message: so the fewest rounds that keep the limit of small
// launches, and of those the fewest messages.
struct Rounds {
  int radix = 0;
  int count = 0;
  int64_t messages = 0;  // That a rank sends and receives.
};

Rounds FindRounds(int size) {
  const int64_t most_messages = MostSmallMessages(size);
  Rounds best;
  for (int radix = 2; 2 * (radix - 1) <= most_messages; ++radix) {
    Rounds rounds = {.radix = radix};
    for (int have = 1; have < size; have *= radix) {
      ++rounds.count;
      rounds.messages += 2 * (std::min(radix, CeilDiv(size, have)) - 1);
    }
    const bool is_first = best.radix == 0;
    if (rounds.messages > most_messages) continue;
    if (is_first || rounds.count < best.count) best = rounds;
  }
  return best;
}

// By the ranks of one host. All that has come is copied to the outputs.
Cost CostOfRounds(const CostContext& context) {
  const LinkLevel& within = context.links.host;
  const Rounds rounds = FindRounds(context.layout.size());
  return {rounds.count * within.latency_ns +
              rounds.messages * within.message_ns +
              2 * TransferNs(within, context.shape.bytes()),
          rounds.messages};
}

}  // namespace

Gathering::Gathering(const LaunchTask& task, Operation* operation)
    : has_data_(task.launch.kind == COMMSCHED_ALL_GATHER),
      layout_(task.layout),
      rank_(task.rank),
      size_(task.layout.size()),
      op_(*operation),
      build_(ElementBytes(task.launch.dtype),
             PartialBytes(task.launch.dtype, task.launch.reduce_op), operation),
      packing_(task, operation) {}

// What has come, before it is unpacked to the outputs.
uint64_t Gathering::ScratchBytes() const {
  return has_data_ ? ScratchBytesOf(packing_.Bytes(packing_.count())) : 0;
}

void Gathering::Build() {
  build_.SetScratch({}, ScratchBytes());
  build_.BeginSteps(kOwnSums);
  const Fan fan = IsOneHost() ? Fan{} : FindHostFan(layout_, rank_);
  if (has_data_) packing_.PackOwnPart(AtPlace(layout_.PlaceOf(rank_)));
  if (fan.num_children != 0 || size_ == 1) {
    const uint32_t step = build_.AddStep();
    for (int i = 0; i < fan.num_children; ++i) {
      const Fan::Child& child = fan.children[static_cast<size_t>(i)];
      build_.Receive(child.rank, kInputs, AtPlace(child.begin),
                     BytesOfPlaces(child.begin, child.end), step);
    }
  }
  char* const all = op_.scratch.address;
  if (fan.parent == kNobody) {
    ExchangeSites();
  } else {
    Send(fan.parent, kInputs, AtPlace(fan.begin),
         BytesOfPlaces(fan.begin, fan.end));
    const uint32_t step = build_.AddStep();
    build_.Receive(fan.parent, kResults, all, BytesOfSites(NumSites()), step);
  }
  for (int i = 0; i < fan.num_children; ++i) {
    build_.SendOn(fan.children[static_cast<size_t>(i)].rank, kResults, all,
                  BytesOfSites(NumSites()));
  }
  if (has_data_) {
    packing_.CopyOut(all, &build_, FirstPlaceOf(SiteOf(rank_)));
  }
  build_.Finish();
}

// What `count` sites have, beginning with this rank's: so it lies in the
// scratch.
uint64_t Gathering::BytesOfSites(int count) const {
  if (!has_data_) return 0;
  const int site = SiteOf(rank_);
  const int end = site + count;
  const uint64_t before = packing_.Begin(FirstPlaceOf(site));
  const uint64_t behind =
      end <= NumSites()
          ? packing_.Begin(FirstPlaceOf(end))
          : packing_.count() + packing_.Begin(FirstPlaceOf(end - NumSites()));
  return packing_.Bytes(behind - before);
}

// Of places of this site.
uint64_t Gathering::BytesOfPlaces(int begin, int end) const {
  if (!has_data_) return 0;
  return packing_.Bytes(packing_.Begin(end) - packing_.Begin(begin));
}

char* Gathering::AtPlace(int place) const {
  return op_.scratch.address +
         BytesOfPlaces(FirstPlaceOf(SiteOf(rank_)), place);
}

// After the last step, or at once if there is none.
void Gathering::Send(int peer, Phase phase, const void* data, uint64_t bytes) {
  if (op_.steps.empty()) {
    build_.Send(peer, phase, data, bytes);
  } else {
    build_.SendOn(peer, phase, data, bytes);
  }
}

// Each round with sites that are `have`, 2 `have` ... away: what the next
// `have` sites have, which lies one behind the other.
void Gathering::ExchangeSites() {
  const int num_sites = NumSites();
  const int site = SiteOf(rank_);
  const int radix = IsOneHost() ? FindRounds(size_).radix : 2;
  char* const all = op_.scratch.address;
  const auto first_of = [&](int number) {
    return layout_.RankAt(FirstPlaceOf((number + num_sites) % num_sites));
  };
  for (int have = 1; have < num_sites; have *= radix) {
    const int end = std::min(have * radix, num_sites);
    for (int far = have; far < end; far += have) {
      Send(first_of(site - far), kPartials, all,
           BytesOfSites(std::min(have, end - far)));
    }
    const uint32_t step = build_.AddStep();
    for (int far = have; far < end; far += have) {
      const uint64_t before = BytesOfSites(far);
      build_.Receive(first_of(site + far), kPartials, all + before,
                     BytesOfSites(std::min(far + have, end)) - before, step);
    }
  }
}

// What one has doubles each round.
Cost Gathering::CostOf(const CostContext& context) {
  const Layout& layout = context.layout;
  if (layout.num_hosts() == 1) return CostOfRounds(context);
  const uint64_t bytes = context.shape.bytes();
  const int within = CeilLog2(layout.most_ranks_per_host());
  const int between = CeilLog2(layout.num_hosts());
  RoundsCost cost(context);
  cost.AddRoundsNear(within, 0);
  cost.AddRoundsFar(between, 0);
  cost.AddRoundsNear(within, bytes);
  const auto num_hosts = static_cast<uint64_t>(layout.num_hosts());
  const uint64_t far_bytes = bytes - bytes / num_hosts;
  return {cost.ns() + TransferNs(context.links.network, far_bytes) +
              TransferNs(context.links.host, bytes / num_hosts),
          2 * (within + between)};
}

Crossing Gathering::CrossingOf(const CostContext& context) {
  const Layout& layout = context.layout;
  const int num_hosts = layout.num_hosts();
  const auto size = static_cast<uint64_t>(layout.size());
  std::vector<HostLoad>& links = *context.loads;
  links.assign(static_cast<size_t>(num_hosts), {});
  for (int distance = 1; distance < num_hosts; distance *= 2) {
    const int count = std::min(distance, num_hosts - distance);
    for (int host = 0; host < num_hosts; ++host) {
      uint64_t places = 0;
      for (int i = 0; i < count; ++i) {
        places += layout.RanksOf((host + i) % num_hosts).size();
      }
      const auto bytes =
          static_cast<int64_t>(context.shape.bytes() / size * places);
      const int to = (host - distance + num_hosts) % num_hosts;
      links[static_cast<size_t>(host)].out.fixed += bytes;
      links[static_cast<size_t>(to)].in.fixed += bytes;
    }
  }
  return {MostFixed(links), 0};
}

}  // namespace commsched::ucx
