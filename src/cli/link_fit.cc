#include "cli/link_fit.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

namespace commsched::cli {
namespace {

double MedianOfSize(const std::vector<LinkSample>& samples, uint64_t bytes,
                    double LinkSample::*field) {
  std::vector<double> values;
  for (const LinkSample& sample : samples) {
    if (sample.bytes == bytes) values.push_back(sample.*field);
  }
  return MedianOf(std::move(values));
}

int64_t Nanoseconds(double seconds) {
  return std::max<int64_t>(0, std::llround(seconds * 1e9));
}

double RateOf(const std::vector<LinkSample>& samples) {
  std::vector<double> rates;
  double largest = 0;
  for (size_t i = 1; i < std::size(kLinkBytes); ++i) {
    const double seconds =
        MedianOfSize(samples, kLinkBytes[i], &LinkSample::seconds);
    largest = static_cast<double>(kLinkBytes[i]) / std::max(seconds, 1e-9);
    for (size_t k = 1; k < i; ++k) {
      const double more =
          seconds - MedianOfSize(samples, kLinkBytes[k], &LinkSample::seconds);
      if (more <= 0) continue;
      rates.push_back(static_cast<double>(kLinkBytes[i] - kLinkBytes[k]) /
                      more);
    }
  }
  return rates.empty() ? largest : MedianOf(std::move(rates));
}

}  // namespace

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

commsched_link_level_t FitLevel(const std::vector<LinkSample>& samples) {
  const uint64_t small = kLinkBytes[0];
  commsched_link_level_t level = {};
  level.latency_ns =
      Nanoseconds(MedianOfSize(samples, small, &LinkSample::seconds));
  level.message_ns =
      Nanoseconds(MedianOfSize(samples, small, &LinkSample::cpu_seconds) / 2);
  level.bytes_per_s = RateOf(samples);
  return level;
}

LinkPairs PairsOf(const std::vector<int32_t>& hosts, size_t most) {
  LinkPairs pairs;
  std::vector<int32_t> first;  // by host
  std::vector<bool> has_second;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto host = static_cast<size_t>(hosts[rank]);
    const auto number = static_cast<int32_t>(rank);
    if (host == first.size()) {
      first.push_back(number);
      has_second.push_back(false);
      if (host > 0 && pairs.network.size() < most) {
        pairs.network.emplace_back(first[0], number);
      }
    } else if (!has_second[host]) {
      has_second[host] = true;
      if (pairs.host.size() < most)
        pairs.host.emplace_back(first[host], number);
    }
  }
  return pairs;
}

}  // namespace commsched::cli
