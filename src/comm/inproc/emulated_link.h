#ifndef COMMSCHED_SRC_COMM_INPROC_EMULATED_LINK_H_
#define COMMSCHED_SRC_COMM_INPROC_EMULATED_LINK_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace commsched {

// An emulated link per rank and direction, full duplex, one transfer at a time
// per direction (docs/glossary.md). bytes_per_s 0: none.
struct LinkSpec {
  double bytes_per_s = 0;
  int64_t latency_ns = 0;
};

// From and to the configuration of the in-process backend
// (commsched_world_desc_t::backend_config): "" or
// "link_bytes_per_s=1.25e+08,link_latency_ns=50000", of which the latency may
// be left out. kInvalidArgument, naming the key, its value and the limit.
absl::StatusOr<LinkSpec> ParseLinkConfig(absl::string_view config);
std::string LinkConfig(const LinkSpec& link);

// When transfers would end on links of a given bandwidth and latency. Only
// arithmetic: who moves the bytes waits for the time that Book() gives.
//
// A rank has one link with two directions, and does one transfer at a time in
// each. A collective takes both directions of all its members, a send the
// sender's way out and the receiver's way in. A transfer starts when its
// members have arrived and its directions are free, keeps them busy for
// bytes / bandwidth and ends a latency later. As on a real link, the next one
// does not wait for that latency. It starts when the directions were
// *scheduled* to be free: a late wake-up of the host costs no bandwidth.
//
// Thread-safe.
class EmulatedLink {
 public:
  EmulatedLink(const LinkSpec& spec, int world_size)
      : spec_(spec), free_at_ns_(world_size) {}

  // Without a link every transfer ends when it starts.
  bool enabled() const { return spec_.bytes_per_s != 0; }

  // Books a transfer among the world ranks `ranks`, the last of which arrived
  // at `arrived_ns`, and returns when it ends. `bytes` is what one direction of
  // a member carries. One member needs no link.
  int64_t Book(absl::Span<const int32_t> ranks, int64_t arrived_ns,
               double bytes);

  // The same for a send of `bytes` between two world ranks.
  int64_t BookPair(int32_t from, int32_t to, int64_t arrived_ns, double bytes);

 private:
  // When the directions of a rank are free.
  struct Directions {
    int64_t out_ns = 0;
    int64_t in_ns = 0;
  };

  int64_t BusyNs(double bytes) const;
  int64_t ArrivalOf(int64_t off_link_ns) const;
  void Lock();
  void Unlock() { busy_.clear(std::memory_order_release); }

  const LinkSpec spec_;

  // Guards free_at_ns_. A spinlock, as launches must not block: it is held for
  // some loads and stores, and only transfers of different communicators that
  // fill at the same moment meet here.
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  std::vector<Directions> free_at_ns_;  // By world rank.
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_INPROC_EMULATED_LINK_H_
