#include "plan/place.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "absl/container/btree_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "plan/align.h"
#include "plan/fit.h"
#include "plan/slots.h"

namespace commsched {
namespace {

// FitBySize takes too long beyond this.
constexpr size_t kMaxFitBySize = 4096;
// It takes too long beyond this in each try of FitWithRest.
constexpr size_t kMaxRestingBySize = 256;

constexpr uint64_t kMaxArenaBytes = std::numeric_limits<int64_t>::max();

constexpr uint32_t kNone = Plan::kNone;

// A node's accesses to what has one lifetime.
struct Use {
  uint32_t position = 0;
  bool takes_over = false;    // writes the whole and does not read
  uint32_t previous = kNone;  // of the lifetime, in uses_
};

// What a lifetime goes through, as indices in uses_.
struct Chain {
  uint32_t first = kNone;
  uint32_t last = kNone;
};

bool WritesWholeOnly(const Graph& graph, const Access& access) {
  if (access.mode != AccessMode::kWrite) return false;
  const Region& region = access.region;
  return region.kind == RegionKind::kWhole ||
         (region.kind == RegionKind::kRange &&
          region.count == graph.buffer(access.buffer).count);
}

class Placer {
 public:
  Placer(const Plan& plan, const Sequence& sequence)
      : plan_(plan), graph_(*plan.graph), sequence_(sequence) {}

  absl::StatusOr<Arena> Run() {
    ListLifetimes();
    RETURN_IF_ERROR(CheckBytes());
    places_ = SlotsOf(arena_.lifetimes);
    Fit fit = FitSideBySide(places_.slots);
    const uint64_t limit = plan_.options.arena_bytes;
    if (limit == 0 || fit.bytes <= limit) {
      Keep(fit);
      AddEdgesUnshared();
      return std::move(arena_);
    }
    FindLifetimes();
    places_ = SlotsOf(arena_.lifetimes);
    fit = FitWithin(limit);
    if (fit.bytes > limit) return Refuse(fit.bytes);
    Keep(fit);
    AddEdges();
    return std::move(arena_);
  }

  PlaceGroupReport Report() {
    ListLifetimes();
    FindLifetimes();
    const Slots together = SlotsOf(arena_.lifetimes);
    const Slots apart = SlotsApart(arena_.lifetimes);
    PlaceGroupReport report;
    report.num_groups = together.num_groups;
    report.bytes = Smallest(together.slots);
    // Without groups the places with them would do, too.
    report.bytes_apart = std::min(report.bytes, Smallest(apart.slots));
    return report;
  }

 private:
  void Keep(const Fit& fit) {
    for (uint32_t slot : places_.of_lifetime) {
      arena_.offsets.push_back(fit.offsets[slot]);
    }
    arena_.bytes = fit.bytes;
  }

  // The first attempt that fits, or else the smallest.
  Fit FitWithin(uint64_t limit) const {
    const std::vector<Slot>& slots = places_.slots;
    Fit fit = FitInOrderOfTime(slots);
    if (fit.bytes <= limit) return FitWithRest(std::move(fit), limit);
    if (slots.size() > kMaxFitBySize) return fit;
    Fit tighter = FitBySize(slots);
    if (tighter.bytes < fit.bytes) fit = std::move(tighter);
    // Placed in order of time, a place group keeps its memory between two
    // stays, so that few plans with groups fit.
    const bool rests = graph_.has_place_groups() && fit.bytes <= limit;
    return rests ? FitWithRest(std::move(fit), limit) : fit;
  }

  static uint64_t Smallest(const std::vector<Slot>& slots) {
    const uint64_t bytes = FitInOrderOfTime(slots).bytes;
    if (slots.size() > kMaxFitBySize) return bytes;
    return std::min(bytes, FitBySize(slots).bytes);
  }

  // Whoever takes memory over waits for its last user, most often a launch
  // that has only just become due. So memory rests for as many positions of the
  // sequence as the limit allows: by bisection, in O(n log^2 n), or of few
  // lifetimes as much time as FitBySize() takes log n times.
  Fit FitWithRest(Fit fit, uint64_t limit) const {
    uint32_t good = 0;
    uint32_t bad = static_cast<uint32_t>(sequence_.nodes.size());
    while (bad - good > 1) {
      const uint32_t rest = good + (bad - good) / 2;
      std::vector<Slot> resting = places_.slots;
      for (Slot& slot : resting) {
        for (Stay& stay : slot.stays) stay.end += rest;
      }
      Fit attempt = FitInOrderOfTime(resting);
      if (attempt.bytes > limit && resting.size() <= kMaxRestingBySize) {
        attempt = FitBySize(resting);
      }
      if (attempt.bytes <= limit) {
        fit = std::move(attempt);
        good = rest;
      } else {
        bad = rest;
      }
    }
    return fit;
  }

  // All but when they begin and end.
  void ListLifetimes() {
    arena_.lifetimes.reserve(graph_.buffers().size());
    for (uint32_t b = 0; b < graph_.buffers().size(); ++b) {
      if (graph_.buffers()[b].ownership != Ownership::kOwned) continue;
      arena_.lifetimes.push_back(
          {.buffer = BufferId(b),
           .launch = {},
           .bytes = graph_.buffers()[b].bytes(),
           .place_group = graph_.buffers()[b].place_group});
    }
    for (uint32_t k = 0; k < plan_.launches.size(); ++k) {
      if (plan_.launches[k].way != Way::kPack) continue;
      arena_.lifetimes.push_back({.buffer = {},
                                  .launch = LaunchId(k),
                                  .bytes = plan_.launches[k].staging_bytes});
    }
  }

  void FindLifetimes() {
    const std::vector<Lifetime>& lifetimes = arena_.lifetimes;
    std::vector<uint32_t> of_buffer(graph_.buffers().size(), kNone);
    std::vector<uint32_t> of_launch(plan_.launches.size(), kNone);
    for (uint32_t i = 0; i < lifetimes.size(); ++i) {
      (lifetimes[i].buffer.valid() ? of_buffer[lifetimes[i].buffer.value()]
                                   : of_launch[lifetimes[i].launch.value()]) =
          i;
    }
    chains_.resize(lifetimes.size());
    for (uint32_t p = 0; p < sequence_.nodes.size(); ++p) {
      const NodeRef node = sequence_.nodes[p];
      if (node.kind == NodeRef::Kind::kOp) {
        AddUses(OpId(node.index), p, of_buffer);
        continue;
      }
      for (OpId op : plan_.launches[node.index].members) {
        AddUses(op, p, of_buffer);
      }
      const uint32_t staging = of_launch[node.index];
      if (staging != kNone) AddUse(staging, p, /*takes_over=*/true);
    }
    for (size_t i = 0; i < chains_.size(); ++i) SetLifetime(i);
  }

  void AddUses(OpId op, uint32_t position,
               const std::vector<uint32_t>& of_buffer) {
    for (const Access& access : graph_.op(op).accesses) {
      const uint32_t i = of_buffer[access.buffer.value()];
      if (i != kNone) AddUse(i, position, WritesWholeOnly(graph_, access));
    }
  }

  void AddUse(uint32_t i, uint32_t position, bool takes_over) {
    Chain& chain = chains_[i];
    if (chain.last != kNone && uses_[chain.last].position == position) {
      // An op that also reads the buffer needs what was there.
      Use& use = uses_[chain.last];
      use.takes_over = use.takes_over && takes_over;
      return;
    }
    const uint32_t index = static_cast<uint32_t>(uses_.size());
    uses_.push_back({position, takes_over, chain.last});
    if (chain.first == kNone) chain.first = index;
    chain.last = index;
  }

  void SetLifetime(size_t i) {
    Lifetime& lifetime = arena_.lifetimes[i];
    const Chain& chain = chains_[i];
    if (chain.first == kNone) {
      lifetime.for_ever = lifetime.place_group == 0;
      if (!lifetime.for_ever) lifetime.begin = 1;  // never alive
      return;
    }
    lifetime.for_ever = !uses_[chain.first].takes_over;
    lifetime.begin = uses_[chain.first].position;
    lifetime.end = uses_[chain.last].position;
  }

  // Bounds all sums of sizes and offsets: no fit takes more than everything
  // side by side.
  absl::Status CheckBytes() const {
    uint64_t bytes = 0;
    for (const Lifetime& lifetime : arena_.lifetimes) {
      const uint64_t more = AlignUp(lifetime.bytes);
      if (more > kMaxArenaBytes - bytes) {
        return absl::OutOfRangeError(absl::StrCat(
            "arena: ", Describe(lifetime), " comes on top of ", bytes,
            "; the limit of all is ", kMaxArenaBytes, " bytes"));
      }
      bytes += more;
    }
    return absl::OkStatus();
  }

  absl::Status Refuse(uint64_t least) const {
    if (sequence_.nodes.empty()) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "arena_bytes ", plan_.options.arena_bytes, " is too small for the ",
          "buffers of a graph without ops, the largest of them ", LargestAt(0),
          "; the least size that works is ", least, " bytes"));
    }
    // Bytes alive at each position, by differences.
    std::vector<uint64_t> more(sequence_.nodes.size() + 1, 0);
    std::vector<uint64_t> less(sequence_.nodes.size() + 1, 0);
    uint64_t alive = 0;
    for (const Slot& slot : places_.slots) {
      if (slot.for_ever) {
        alive += AlignUp(slot.bytes);
        continue;
      }
      for (const Stay& stay : slot.stays) {
        more[stay.begin] += AlignUp(slot.bytes);
        less[stay.end + 1] += AlignUp(slot.bytes);
      }
    }
    uint64_t peak = 0;
    uint32_t at = 0;
    for (uint32_t p = 0; p < sequence_.nodes.size(); ++p) {
      alive = alive + more[p] - less[p];
      if (alive <= peak) continue;
      peak = alive;
      at = p;
    }
    return absl::ResourceExhaustedError(absl::StrCat(
        "arena_bytes ", plan_.options.arena_bytes, " is too small: ", peak,
        " bytes are alive at op '", NameAt(at), "', the largest of them ",
        LargestAt(at), "; the least size that works is ", least, " bytes"));
  }

  const std::string& NameAt(uint32_t position) const {
    const NodeRef node = sequence_.nodes[position];
    return node.kind == NodeRef::Kind::kOp
               ? graph_.op(OpId(node.index)).name
               : graph_.op(plan_.launches[node.index].members.front()).name;
  }

  std::string LargestAt(uint32_t position) const {
    const Lifetime* largest = nullptr;
    for (const Lifetime& lifetime : arena_.lifetimes) {
      const bool alive = lifetime.for_ever || (lifetime.begin <= position &&
                                               position <= lifetime.end);
      if (!alive) continue;
      if (largest == nullptr || lifetime.bytes > largest->bytes) {
        largest = &lifetime;
      }
    }
    return largest == nullptr ? "none" : Describe(*largest);
  }

  std::string Describe(const Lifetime& lifetime) const {
    if (lifetime.buffer.valid()) {
      return absl::StrCat("buffer '", graph_.buffer(lifetime.buffer).name,
                          "' of ", lifetime.bytes, " bytes");
    }
    const Launch& launch = plan_.launches[lifetime.launch.value()];
    return absl::StrCat("the packing memory of '",
                        graph_.op(launch.members.front()).name, "' of ",
                        lifetime.bytes, " bytes");
  }

  // Who shares memory with nobody waits for nobody; only a launch in the next
  // step for itself, before it packs again.
  void AddEdgesUnshared() {
    for (const Lifetime& lifetime : arena_.lifetimes) {
      if (lifetime.buffer.valid()) continue;
      for (NodeRef to : FirstUses(RefOf(lifetime.launch))) {
        arena_.edges.push_back({.from = RefOf(lifetime.launch),
                                .to = to,
                                .distance = 1,
                                .cause = WaitCause::kArena});
      }
    }
  }

  // Plays two steps through the arena: whoever finds memory that another had
  // waits for its last accessors.
  void AddEdges() {
    std::vector<uint32_t> order(arena_.lifetimes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return arena_.lifetimes[a].begin < arena_.lifetimes[b].begin;
    });
    for (uint32_t step = 0; step < 2; ++step) {
      for (uint32_t i : order) {
        if (!arena_.lifetimes[i].IsNeverAlive()) Occupy(step, i);
      }
    }
  }

  struct Occupied {
    uint64_t end = 0;
    uint32_t lifetime = 0;
    uint32_t step = 0;
  };

  void Occupy(uint32_t step, uint32_t i) {
    const uint64_t begin = arena_.offsets[i];
    const uint64_t end = begin + AlignUp(arena_.lifetimes[i].bytes);
    auto it = occupied_.upper_bound(begin);
    if (it != occupied_.begin()) --it;
    // Edges to an occupant of several pieces are made once per piece; lanes.h
    // drops the copies.
    std::vector<std::pair<uint64_t, Occupied>> left;
    while (it != occupied_.end() && it->first < end) {
      const auto [at, was] = *it;
      if (was.end <= begin) {
        ++it;
        continue;
      }
      TakeOver(was, step, i);
      if (at < begin) left.push_back({at, {begin, was.lifetime, was.step}});
      if (was.end > end) left.push_back({end, was});
      it = occupied_.erase(it);
    }
    for (const auto& piece : left) occupied_.insert(piece);
    occupied_[begin] = {end, i, step};
  }

  void TakeOver(const Occupied& was, uint32_t step, uint32_t i) {
    const bool same_place =
        places_.of_lifetime[was.lifetime] == places_.of_lifetime[i];
    // Accesses to a buffer, and to buffers of a place group, are ordered by the
    // graph.
    if (same_place && arena_.lifetimes[i].buffer.valid()) return;
    const int distance = static_cast<int>(step - was.step);
    if (distance == 0 && step == 1) return;  // as in the first step
    const std::vector<NodeRef> first =
        FirstUses(sequence_.nodes[arena_.lifetimes[i].begin]);
    for (uint32_t position : LastUses(was.lifetime)) {
      for (NodeRef to : first) {
        arena_.edges.push_back({.from = sequence_.nodes[position],
                                .to = to,
                                .distance = distance,
                                .cause = WaitCause::kArena});
      }
    }
  }

  // `node`, or all pieces of the collective that it is one of: they do not wait
  // for one another.
  std::vector<NodeRef> FirstUses(NodeRef node) const {
    if (node.kind == NodeRef::Kind::kOp) return {node};
    const Launch& launch = plan_.launches[node.index];
    if (launch.piece.of == 1) return {node};
    std::vector<NodeRef> nodes;
    for (LaunchId piece : plan_.LaunchesOf(launch.members.front())) {
      nodes.push_back(RefOf(piece));
    }
    return nodes;
  }

  // Accesses since the last one that is ordered after all before it. Of the
  // pieces of a collective, each of which takes its part over, that is the last
  // one: they complete in order.
  std::vector<uint32_t> LastUses(uint32_t i) const {
    std::vector<uint32_t> last;
    for (uint32_t at = chains_[i].last; at != kNone; at = uses_[at].previous) {
      last.push_back(uses_[at].position);
      if (uses_[at].takes_over) break;
    }
    std::reverse(last.begin(), last.end());
    return last;
  }

  const Plan& plan_;
  const Graph& graph_;
  const Sequence& sequence_;
  Arena arena_;
  Slots places_;               // of its lifetimes
  std::vector<Use> uses_;      // in order of the sequence
  std::vector<Chain> chains_;  // by lifetime, through uses_
  absl::btree_map<uint64_t, Occupied> occupied_;
};

}  // namespace

absl::StatusOr<Arena> PlaceInArena(const Plan& plan, const Sequence& sequence) {
  return Placer(plan, sequence).Run();
}

PlaceGroupReport ReportPlaceGroups(const Plan& plan, const Sequence& sequence) {
  return Placer(plan, sequence).Report();
}

}  // namespace commsched
