#include "bench/messages/least.h"

#include <algorithm>
#include <cmath>

namespace commsched {
namespace {

// A direction carries `fixed` + `slope` times the share that its host adds up.
struct Line {
  double fixed;
  double slope;
};
struct HostLink {
  Line out;
  Line in;
};

// Adds up, by host, what each sends of a sum over positions low..high-1.
void AddPieces(const std::vector<int>& host_of, int low, int high, int widening,
               std::vector<double>* sent) {
  const bool is_one_host =
      std::all_of(host_of.begin() + low, host_of.begin() + high,
                  [&](int host) { return host == host_of[low]; });
  if (is_one_host) {
    (*sent)[host_of[low]] += std::min(high - low, widening);
    return;
  }
  int middle = low + 1;
  while (low + 2 * (middle - low) < high) middle = low + 2 * (middle - low);
  AddPieces(host_of, low, middle, widening, sent);
  AddPieces(host_of, middle, high, widening, sent);
}

// Whether there are shares, of `elements` in all, with which no direction
// carries more.
bool HasShares(const std::vector<HostLink>& links, double elements,
               double busiest) {
  double least_of_all = 0;
  double most_of_all = 0;
  for (const HostLink& link : links) {
    double least = 0;
    double most = elements;
    for (const Line& line : {link.out, link.in}) {
      const double left = busiest - line.fixed;
      if (line.slope > 0) {
        most = std::min(most, left / line.slope);
      } else if (line.slope < 0) {
        least = std::max(least, left / line.slope);
      } else if (left < 0) {
        return false;
      }
    }
    constexpr double kRounding = 1e-6;
    least = std::ceil(least - kRounding);
    most = std::floor(most + kRounding);
    if (least > most) return false;
    least_of_all += least;
    most_of_all += most;
  }
  return least_of_all <= elements && most_of_all >= elements;
}

double LeastOfShares(const std::vector<HostLink>& links, double elements) {
  double low = 0;
  double high = 0;
  for (const HostLink& link : links) {
    high += std::abs(link.out.fixed) + std::abs(link.in.fixed) +
            elements * (std::abs(link.out.slope) + std::abs(link.in.slope));
  }
  constexpr int kRounds = 80;  // Each halves the error.
  for (int i = 0; i < kRounds; ++i) {
    const double middle = (low + high) / 2;
    (HasShares(links, elements, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace

double LeastLinkBytes(const LeastCase& least) {
  const auto& [kind, host_of, elements, element_bytes, widening] = least;
  const int num_hosts = 1 + *std::max_element(host_of.begin(), host_of.end());
  if (num_hosts == 1 || kind == COMMSCHED_BARRIER) return 0;
  const auto size = static_cast<int>(host_of.size());
  std::vector<double> ranks(num_hosts);
  for (const int host : host_of) ranks[host] += 1.0 / size;
  std::vector<double> sent(num_hosts);
  AddPieces(host_of, 0, size, widening, &sent);
  double all_sent = 0;
  for (const double pieces : sent) all_sent += pieces;
  const auto all = static_cast<double>(elements);
  double most = 0;  // Of one element.
  std::vector<HostLink> links;
  for (int host = 0; host < num_hosts; ++host) {
    const double own = sent[host];
    const double others = all_sent - own;
    switch (kind) {
      case COMMSCHED_ALL_REDUCE:
        links.push_back({{own * all, num_hosts - 1 - own}, {all, others - 1}});
        break;
      case COMMSCHED_REDUCE:
        links.push_back(host == host_of[0]
                            ? HostLink{{own * all, -own}, {all, others - 1}}
                            : HostLink{{own * all, 1 - own}, {0, others}});
        break;
      case COMMSCHED_REDUCE_SCATTER:
        most = std::max({most, own * (1 - ranks[host]), others * ranks[host]});
        break;
      case COMMSCHED_ALL_GATHER:  // Whatever has to leave, and to come.
        most = std::max({most, ranks[host], 1 - ranks[host]});
        break;
      case COMMSCHED_ALL_TO_ALL:
        most = std::max(most, ranks[host] * (1 - ranks[host]) * size);
        break;
      default:  // A broadcast.
        most = 1;
    }
  }
  return element_bytes *
         (links.empty() ? most * all : LeastOfShares(links, all));
}

}  // namespace commsched
