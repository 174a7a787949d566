#include "test/support/admission_model.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

namespace commsched::test {
namespace {

struct RankState {
  uint32_t called = 0;
  uint32_t issued = 0;   // bit per launch
  uint32_t retired = 0;  // bit per launch
};

struct State {
  std::vector<RankState> ranks;
  uint64_t complete = 0;  // bit per event

  std::string Key() const {
    std::string key(reinterpret_cast<const char*>(&complete), sizeof(complete));
    key.append(reinterpret_cast<const char*>(ranks.data()),
               ranks.size() * sizeof(RankState));
    return key;
  }
};

bool Has(uint64_t mask, int bit) { return (mask >> bit & 1) != 0; }

class Explorer {
 public:
  explicit Explorer(const ModelJob& job) : job_(job) {
    for (size_t r = 0; r < job.ranks.size(); ++r) {
      for (const ModelLaunch& launch : job.ranks[r].launches) {
        for (int event : launch.events) {
          num_events_ = std::max(num_events_, event + 1);
        }
      }
    }
  }

  ModelResult Run() {
    State first;
    first.ranks.resize(job_.ranks.size());
    Reach(first);
    while (!queue_.empty() && result_.ok()) {
      std::vector<State> now;
      now.swap(queue_);
      for (const State& state : now) Visit(state);
    }
    result_.states = seen_.size();
    return result_;
  }

 private:
  void Reach(const State& state) {
    if (seen_.insert(state.Key()).second) queue_.push_back(state);
  }

  void Visit(const State& state) {
    moved_ = false;
    for (size_t r = 0; r < job_.ranks.size(); ++r) {
      Call(state, r);
      Issue(state, r);
      Retire(state, r);
    }
    for (int event = 0; event < num_events_; ++event) Complete(state, event);
    if (!moved_ && !IsFinal(state)) Report(&result_.deadlock, state, "stuck");
  }

  bool AllRetired(const State& state, size_t r,
                  const std::vector<int>& launches) const {
    return std::all_of(launches.begin(), launches.end(), [&](int launch) {
      return Has(state.ranks[r].retired, launch);
    });
  }

  State& Moved(const State& state) {
    moved_ = true;
    next_ = state;
    return next_;
  }

  void Call(const State& state, size_t r) {
    const std::vector<ModelCall>& calls = job_.ranks[r].calls;
    const uint32_t called = state.ranks[r].called;
    if (called == calls.size()) return;
    if (!AllRetired(state, r, calls[called].after)) return;
    ++Moved(state).ranks[r].called;
    Reach(next_);
  }

  void Issue(const State& state, size_t r) {
    const std::vector<ModelLaunch>& launches = job_.ranks[r].launches;
    for (int k = 0; k < static_cast<int>(launches.size()); ++k) {
      if (Has(state.ranks[r].issued, k)) continue;
      if (MayIssue(state, r, k)) {
        CheckSlot(state, r, k);
        CheckOrder(state, r, k);
        Moved(state).ranks[r].issued |= uint32_t{1} << k;
        CheckCaps(next_, r);
        Reach(next_);
      }
      if (!job_.may_overtake) return;
    }
  }

  bool MayIssue(const State& state, size_t r, int k) const {
    const ModelLaunch& launch = job_.ranks[r].launches[static_cast<size_t>(k)];
    for (int call : launch.calls) {
      if (state.ranks[r].called <= static_cast<uint32_t>(call)) return false;
    }
    if (!AllRetired(state, r, launch.after)) return false;
    if (!job_.enforced) return true;
    uint64_t bytes = 0;
    int launches = 0;
    InFlight(state, r, &launches, &bytes);
    if (launches == 0 && job_.empty_admits) return true;
    if (job_.max_launches != 0 && launches >= job_.max_launches) return false;
    return job_.max_bytes == 0 || bytes + launch.bytes <= job_.max_bytes;
  }

  void InFlight(const State& state, size_t r, int* launches,
                uint64_t* bytes) const {
    const RankState& rank = state.ranks[r];
    for (size_t k = 0; k < job_.ranks[r].launches.size(); ++k) {
      if (!Has(rank.issued & ~rank.retired, static_cast<int>(k))) continue;
      ++*launches;
      *bytes += job_.ranks[r].launches[k].bytes;
    }
  }

  void CheckCaps(const State& state, size_t r) {
    uint64_t bytes = 0;
    int launches = 0;
    InFlight(state, r, &launches, &bytes);
    const bool over =
        (job_.max_launches != 0 && launches > job_.max_launches) ||
        (job_.max_bytes != 0 && bytes > job_.max_bytes && launches > 1);
    if (over) {
      Report(&result_.over_cap, state,
             absl::StrCat("rank ", r, " has ", launches, " launches of ", bytes,
                          " bytes in flight"));
    }
  }

  // Who fills a slot that another has filled and nobody has emptied.
  void CheckSlot(const State& state, size_t r, int k) {
    const std::vector<ModelLaunch>& launches = job_.ranks[r].launches;
    const int slot = launches[static_cast<size_t>(k)].slot;
    if (slot < 0) return;
    for (int j = 0; j < static_cast<int>(launches.size()); ++j) {
      const ModelLaunch& other = launches[static_cast<size_t>(j)];
      if (j == k || other.slot != slot || !Has(state.ranks[r].issued, j)) {
        continue;
      }
      if (state.ranks[r].called > static_cast<uint32_t>(other.emptied_by)) {
        continue;
      }
      Report(&result_.overwrite, state,
             absl::StrCat("rank ", r, ": launch ", k, " overwrites launch ", j,
                          " in slot ", slot));
    }
  }

  // The n-th issue on a communicator is the same event on all its members.
  void CheckOrder(const State& state, size_t r, int k) {
    const ModelLaunch& launch = job_.ranks[r].launches[static_cast<size_t>(k)];
    if (launch.communicator < 0) return;
    const std::vector<int> mine = Issued(state, r, launch.communicator);
    for (size_t other = 0; other < job_.ranks.size(); ++other) {
      if (other == r) continue;
      const std::vector<int> theirs = Issued(state, other, launch.communicator);
      if (theirs.size() <= mine.size()) continue;
      if (theirs[mine.size()] == launch.events.front()) continue;
      Report(&result_.disorder, state,
             absl::StrCat("rank ", r, " issues event ", launch.events.front(),
                          " where rank ", other, " has issued event ",
                          theirs[mine.size()]));
    }
  }

  // Events issued on a communicator; in key order, which is the order of issue
  // unless a launch may overtake.
  std::vector<int> Issued(const State& state, size_t r,
                          int communicator) const {
    std::vector<int> events;
    const std::vector<ModelLaunch>& launches = job_.ranks[r].launches;
    for (size_t k = 0; k < launches.size(); ++k) {
      if (launches[k].communicator == communicator &&
          Has(state.ranks[r].issued, static_cast<int>(k))) {
        events.push_back(launches[k].events.front());
      }
    }
    return events;
  }

  void Complete(const State& state, int event) {
    if (Has(state.complete, event)) return;
    for (size_t r = 0; r < job_.ranks.size(); ++r) {
      for (size_t k = 0; k < job_.ranks[r].launches.size(); ++k) {
        const std::vector<int>& events = job_.ranks[r].launches[k].events;
        const bool takes_part =
            std::find(events.begin(), events.end(), event) != events.end();
        if (takes_part && !Has(state.ranks[r].issued, static_cast<int>(k))) {
          return;
        }
      }
    }
    Moved(state).complete |= uint64_t{1} << event;
    Reach(next_);
  }

  // The next launch of each lane, once all it takes part in is complete.
  void Retire(const State& state, size_t r) {
    const std::vector<ModelLaunch>& launches = job_.ranks[r].launches;
    uint32_t lanes_seen = 0;
    for (int k = 0; k < static_cast<int>(launches.size()); ++k) {
      if (Has(state.ranks[r].retired, k)) continue;
      const ModelLaunch& launch = launches[static_cast<size_t>(k)];
      if (Has(lanes_seen, launch.lane)) continue;
      lanes_seen |= uint32_t{1} << launch.lane;
      if (!Has(state.ranks[r].issued, k)) continue;
      if (!std::all_of(launch.events.begin(), launch.events.end(),
                       [&](int e) { return Has(state.complete, e); })) {
        continue;
      }
      Moved(state).ranks[r].retired |= uint32_t{1} << k;
      Reach(next_);
    }
  }

  bool IsFinal(const State& state) const {
    for (size_t r = 0; r < job_.ranks.size(); ++r) {
      const uint64_t all = (uint64_t{1} << job_.ranks[r].launches.size()) - 1;
      if (state.ranks[r].called != job_.ranks[r].calls.size()) return false;
      if (state.ranks[r].retired != all) return false;
    }
    return true;
  }

  void Report(std::string* what, const State& state, const std::string& text) {
    if (!what->empty()) return;
    *what = text;
    for (size_t r = 0; r < state.ranks.size(); ++r) {
      absl::StrAppend(what, "; rank ", r, " called ", state.ranks[r].called,
                      " issued ", absl::Hex(state.ranks[r].issued), " retired ",
                      absl::Hex(state.ranks[r].retired));
    }
  }

  const ModelJob& job_;
  int num_events_ = 0;
  absl::flat_hash_set<std::string> seen_;
  std::vector<State> queue_;
  State next_;
  bool moved_ = false;
  ModelResult result_;
};

// One role's plan as a rank of the model.
ModelRank RankOf(const Plan& plan, uint32_t role, const Meetings& meetings,
                 int num_steps,
                 std::map<std::pair<int, uint32_t>, int>* events) {
  ModelRank rank;
  const int num_calls = static_cast<int>(plan.nodes.size());
  const int num_launches = static_cast<int>(plan.launches.size());
  auto add_waits = [&](absl::Span<const Wait> waits, int step,
                       std::vector<int>* launches, std::vector<int>* calls) {
    for (const Wait& wait : waits) {
      const int from = step - wait.distance;
      if (from < 0) continue;
      const int index = static_cast<int>(wait.producer.index);
      if (wait.producer.kind == NodeRef::Kind::kLaunch) {
        launches->push_back(from * num_launches + index);
      } else if (calls != nullptr) {
        calls->push_back(
            from * num_calls +
            static_cast<int>(plan.node_of_op[wait.producer.index]));
      }
    }
  };
  for (int step = 0; step < num_steps; ++step) {
    for (const ComputeNode& node : plan.nodes) {
      ModelCall call;
      add_waits(node.waits, step, &call.after, nullptr);
      rank.calls.push_back(std::move(call));
    }
    for (const Launch& launch : plan.launches) {
      ModelLaunch model;
      model.lane = static_cast<int>(launch.lane);
      model.bytes = launch.payload_bytes;
      for (OpId op : launch.members) {
        const auto [it, is_new] =
            events->insert({{step, meetings.EventOf(RoleOp{role, op})},
                            static_cast<int>(events->size())});
        model.events.push_back(it->second);
      }
      for (OpId op : launch.producers) {
        model.calls.push_back(step * num_calls +
                              static_cast<int>(plan.node_of_op[op.value()]));
      }
      add_waits(launch.waits, step, &model.after, &model.calls);
      rank.launches.push_back(std::move(model));
    }
  }
  return rank;
}

}  // namespace

ModelResult Explore(const ModelJob& job) { return Explorer(job).Run(); }

ModelJob ModelOf(absl::Span<const std::shared_ptr<const Plan>> plans,
                 const Meetings& meetings, int num_steps) {
  ModelJob job;
  job.enforced = false;
  job.max_launches = static_cast<int>(plans[0]->options.max_launches_in_flight);
  job.max_bytes = plans[0]->options.max_bytes_in_flight;
  std::map<std::pair<int, uint32_t>, int> events;
  for (const auto& plan : plans) {
    job.ranks.push_back(
        RankOf(*plan, plan->role, meetings, num_steps, &events));
  }
  return job;
}

}  // namespace commsched::test
