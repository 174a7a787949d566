// Small all-gathers and barriers, which gather nothing: of algorithm `tree`.
//
// Up to the first rank of each host; these exchange what they have, doubling it
// each round, whatever the number of hosts; then down the host. Of one host all
// ranks exchange, with several others each round.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_GATHERING_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_GATHERING_H_

#include <cstdint>

#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/builder.h"
#include "ucx/algorithms/layout.h"
#include "ucx/algorithms/operation.h"
#include "ucx/algorithms/packing.h"

namespace commsched::ucx {

// Functions are those of an algorithm (algorithm.h).
class Gathering {
 public:
  Gathering(const LaunchTask& task, Operation* operation);

  static Cost CostOf(const CostContext& context);
  static Crossing CrossingOf(const CostContext& context);
  uint64_t ScratchBytes() const;
  void Build();

 private:
  // What exchanges all that it has: a host, by its first rank, or where there
  // is but one, a rank.
  bool IsOneHost() const { return layout_.num_hosts() == 1; }
  int NumSites() const { return IsOneHost() ? size_ : layout_.num_hosts(); }
  int SiteOf(int rank) const {
    return IsOneHost() ? layout_.PlaceOf(rank) : layout_.HostOf(rank);
  }
  int FirstPlaceOf(int site) const {
    return IsOneHost() ? site : layout_.FirstPlaceOf(site);
  }
  uint64_t BytesOfSites(int count) const;
  uint64_t BytesOfPlaces(int begin, int end) const;
  char* AtPlace(int place) const;
  void Send(int peer, Phase phase, const void* data, uint64_t bytes);
  void ExchangeSites();

  const bool has_data_;
  const Layout& layout_;
  const int rank_;
  const int size_;
  Operation& op_;
  Builder build_;
  const Packing packing_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_GATHERING_H_
