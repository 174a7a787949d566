#include "cli/link_bench.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/checked.h"
#include "cli/coll_case.h"
#include "cli/link_fit.h"

namespace commsched::cli {
namespace {

constexpr int kRounds = 5;
constexpr size_t kMostPairs = 4;  // of a level
constexpr const char* kLevels[] = {"host", "network"};

using Pair = std::pair<int32_t, int32_t>;
using Graph = Handle<commsched_graph_t, commsched_graph_destroy>;
using Plan = Handle<commsched_plan_t, commsched_plan_destroy>;
using Group = Handle<commsched_group_t, commsched_group_destroy>;

Graph NewGraph() {
  commsched_graph_t* graph = nullptr;
  Check(commsched_graph_create(&graph), "graph");
  return Graph(graph);
}

// What the two ranks of a pair have: each sends to the other and receives from
// it, in one launch.
class Exchange {
 public:
  explicit Exchange(uint64_t bytes)
      : graph_(NewGraph()),
        sent_(bytes / sizeof(float), 1.0F),
        received_(bytes / sizeof(float)) {
    Check(commsched_graph_add_group(graph_.get(), "pair", 2, &group_), "group");
    AddBuffer("sent", &sent_, &bindings_[0]);
    AddBuffer("received", &received_, &bindings_[1]);
    commsched_access_t writes = {};
    writes.buffer = bindings_[0].buffer;
    writes.mode = COMMSCHED_WRITE;
    commsched_compute_desc_t fill = commsched_compute_desc_init();
    fill.name = "fill";
    fill.accesses = &writes;
    fill.num_accesses = 1;
    Check(commsched_graph_add_compute(graph_.get(), &fill, &fill_), "compute");
    AddMessage(COMMSCHED_SEND, "send");
    AddMessage(COMMSCHED_RECV, "receive");
  }

  const commsched_graph_t* graph() const { return graph_.get(); }
  const commsched_binding_t* bindings() const { return bindings_; }
  commsched_op_id_t fill() const { return fill_; }

 private:
  void AddBuffer(const char* name, std::vector<float>* memory,
                 commsched_binding_t* binding) {
    commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
    buffer.name = name;
    buffer.dtype = COMMSCHED_F32;
    buffer.ownership = COMMSCHED_BOUND;
    buffer.count = memory->size();
    Check(commsched_graph_add_buffer(graph_.get(), &buffer, &binding->buffer),
          "buffer");
    binding->address = memory->data();
    binding->bytes = memory->size() * sizeof(float);
  }

  void AddMessage(commsched_collective_t kind, const char* name) {
    commsched_collective_desc_t message = commsched_collective_desc_init();
    message.name = name;
    message.kind = kind;
    message.group = group_;
    message.peer_offset = 1;
    if (kind == COMMSCHED_SEND) {
      message.input.buffer = bindings_[0].buffer;
    } else {
      message.output.buffer = bindings_[1].buffer;
    }
    commsched_op_id_t op = 0;
    Check(commsched_graph_add_collective(graph_.get(), &message, &op), name);
  }

  const Graph graph_;
  std::vector<float> sent_;
  std::vector<float> received_;
  commsched_group_id_t group_ = 0;
  commsched_binding_t bindings_[2] = {};
  commsched_op_id_t fill_ = 0;
};

class LinkBench {
 public:
  LinkBench(commsched_context_t* context, const BenchCollOptions& options)
      : context_(context),
        options_(options),
        rank_(commsched_context_rank(context)) {}

  void Run() {
    std::vector<int32_t> hosts(
        static_cast<size_t>(commsched_context_world_size(context_)));
    int32_t num_hosts = 0;
    Check(
        commsched_context_hosts(context_, hosts.data(),
                                static_cast<int32_t>(hosts.size()), &num_hosts),
        "hosts");
    if (hosts.size() < 2) {
      throw std::runtime_error("--profile: a job of one rank has no links");
    }
    PrintHead(hosts.size(), num_hosts);
    const LinkPairs pairs = PairsOf(hosts, kMostPairs);
    commsched_link_profile_t profile = commsched_link_profile_init();
    TimeLevel(0, pairs.host, &profile.host);
    TimeLevel(1, pairs.network, &profile.network);
    if (rank_ != 0) return;
    const std::string note =
        "commsched bench coll --profile, backend " + options_.backend + ", " +
        std::to_string(hosts.size()) + " ranks on " +
        std::to_string(num_hosts) + " hosts; host: " + Origin(pairs.host) +
        "; network: " + Origin(pairs.network);
    Check(commsched_link_profile_write(&profile, note.c_str(),
                                       options_.profile.c_str()),
          options_.profile.c_str());
    PrintProfile(profile, pairs);
  }

 private:
  static std::string Origin(const std::vector<Pair>& pairs) {
    if (pairs.empty()) return "default, as no two ranks have such a link";
    return "measured between " + std::to_string(pairs.size()) +
           (pairs.size() == 1 ? " pair of ranks" : " pairs of ranks");
  }

  void TimeLevel(int level, const std::vector<Pair>& pairs,
                 commsched_link_level_t* out) {
    std::vector<LinkSample> samples;
    for (const Pair& pair : pairs) {
      for (uint64_t bytes : kLinkBytes) {
        const std::vector<LinkSample> rounds = TimePair(pair, bytes);
        PrintRow(level, pair, rounds);
        samples.insert(samples.end(), rounds.begin(), rounds.end());
      }
    }
    if (!pairs.empty()) *out = FitLevel(samples);
  }

  // Several rounds; the ranks outside of the pair wait for the end of each.
  std::vector<LinkSample> TimePair(const Pair& pair, uint64_t bytes) {
    const bool takes_part = rank_ == pair.first || rank_ == pair.second;
    Exchange exchange(bytes);
    const Session session = MakeSession(pair, takes_part, exchange);
    const int64_t steps = std::clamp<int64_t>(
        options_.iterations * int64_t{1 << 20} / static_cast<int64_t>(bytes), 2,
        int64_t{10} * options_.iterations);
    std::vector<LinkSample> rounds;
    for (int round = 0; round <= kRounds; ++round) {
      const bool warms_up = round == 0;
      Gather(context_, "ready", LinkSample{});  // A barrier.
      LinkSample mine;
      if (takes_part) {
        mine = TimeSteps(session.get(), exchange.fill(),
                         warms_up ? options_.warmup : steps);
      }
      const std::vector<LinkSample> all = Gather(context_, "figures", mine);
      if (warms_up) continue;
      const LinkSample& a = all[static_cast<size_t>(pair.first)];
      const LinkSample& b = all[static_cast<size_t>(pair.second)];
      rounds.push_back({.bytes = bytes,
                        .seconds = (a.seconds + b.seconds) / 2,
                        .cpu_seconds = (a.cpu_seconds + b.cpu_seconds) / 2});
    }
    return rounds;
  }

  static LinkSample TimeSteps(commsched_session_t* session,
                              commsched_op_id_t fill, int64_t steps) {
    const double cpu = CpuSeconds();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) RunStep(session, fill);
    const std::chrono::duration<double> wall =
        std::chrono::steady_clock::now() - begin;
    const auto count = static_cast<double>(std::max<int64_t>(1, steps));
    return {.bytes = 0,
            .seconds = wall.count() / count,
            .cpu_seconds = (CpuSeconds() - cpu) / count};
  }

  // The pair is one role, all others, who do nothing, are another.
  Session MakeSession(const Pair& pair, bool takes_part,
                      const Exchange& exchange) {
    const Graph idle = NewGraph();
    commsched_role_desc_t roles[] = {commsched_role_desc_init(),
                                     commsched_role_desc_init()};
    roles[0].graph = exchange.graph();
    roles[1].graph = idle.get();
    commsched_plan_t* made[2] = {};
    Check(commsched_plan_build_roles(roles, 2, nullptr, made), "plan");
    const Plan plans[] = {Plan(made[0]), Plan(made[1])};
    Group group;
    if (takes_part) {
      const int32_t ranks[] = {pair.first, pair.second};
      commsched_group_t* handle = nullptr;
      Check(commsched_group_create(context_, "pair", ranks, 2, &handle),
            "group");
      group.reset(handle);
    }
    commsched_group_t* const groups[] = {group.get()};
    commsched_session_desc_t desc = commsched_session_desc_init();
    desc.context = context_;
    desc.plan = plans[takes_part ? 0 : 1].get();
    if (takes_part) {
      desc.groups = groups;
      desc.num_groups = 1;
      desc.bindings = exchange.bindings();
      desc.num_bindings = 2;
    }
    desc.progress = options_.by_caller ? COMMSCHED_PROGRESS_CALLER
                                       : COMMSCHED_PROGRESS_THREAD;
    commsched_session_t* session = nullptr;
    Check(commsched_session_create(&desc, &session), "session");
    return Session(session);
  }

  // ---- On rank 0 ----

  void PrintHead(size_t num_ranks, int32_t num_hosts) const {
    if (rank_ != 0 || options_.json) return;
    std::printf(
        "# %zu ranks on %d hosts, backend %s: two ranks send each "
        "other a message, medians of %d rounds\n",
        num_ranks, num_hosts, options_.backend.c_str(), kRounds);
    std::printf("%-8s %6s %6s %12s %12s %10s %10s\n", "level", "rank", "rank",
                "size(B)", "time(us)", "GB/s", "cpu(us)");
  }

  void PrintRow(int level, const Pair& pair,
                const std::vector<LinkSample>& rounds) const {
    if (rank_ != 0) return;
    std::vector<double> seconds;
    std::vector<double> cpu;
    for (const LinkSample& round : rounds) {
      seconds.push_back(round.seconds);
      cpu.push_back(round.cpu_seconds);
    }
    const double time = MedianOf(seconds);
    const uint64_t bytes = rounds.front().bytes;
    std::printf(options_.json
                    ? "{\"level\":\"%s\",\"ranks\":[%d,%d],\"bytes\":%" PRIu64
                      ",\"time_us\":%.3f,\"gb_s\":%.4f,\"cpu_us\":%.3f}\n"
                    : "%-8s %6d %6d %12" PRIu64 " %12.1f %10.3f %10.1f\n",
                kLevels[level], pair.first, pair.second, bytes, time * 1e6,
                static_cast<double>(bytes) / time * 1e-9, MedianOf(cpu) * 1e6);
    std::fflush(stdout);
  }

  void PrintProfile(const commsched_link_profile_t& profile,
                    const LinkPairs& pairs) const {
    const commsched_link_level_t* const levels[] = {&profile.host,
                                                    &profile.network};
    const std::vector<Pair>* const timed[] = {&pairs.host, &pairs.network};
    for (int i = 0; i < 2; ++i) {
      const commsched_link_level_t& level = *levels[i];
      if (options_.json) {
        std::printf("{\"level\":\"%s\",\"measured\":%s,\"latency_ns\":%" PRId64
                    ",\"bytes_per_s\":%.6g,\"message_ns\":%" PRId64 "}\n",
                    kLevels[i], timed[i]->empty() ? "false" : "true",
                    level.latency_ns, level.bytes_per_s, level.message_ns);
      } else {
        std::printf(
            "# %s: latency %.1f us, %.3f GB/s, %.1f us of the "
            "processor per message: %s\n",
            kLevels[i], static_cast<double>(level.latency_ns) * 1e-3,
            level.bytes_per_s * 1e-9,
            static_cast<double>(level.message_ns) * 1e-3,
            Origin(*timed[i]).c_str());
      }
    }
    if (!options_.json) {
      std::printf("# written to %s\n", options_.profile.c_str());
    }
    std::fflush(stdout);
  }

  commsched_context_t* const context_;
  const BenchCollOptions& options_;
  const int32_t rank_;
};

}  // namespace

void BenchLinks(commsched_context_t* context, const BenchCollOptions& options) {
  LinkBench(context, options).Run();
}

}  // namespace commsched::cli
