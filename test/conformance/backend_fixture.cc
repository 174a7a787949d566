#include "test/conformance/backend_fixture.h"

#include <cstdlib>
#include <iostream>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "comm/inproc/emulated_link.h"
#include "comm/plugin/registry.h"
#include "control/launch_environment.h"
#include "device/cuda_device.h"
#include "test/support/property.h"

namespace commsched {

namespace {

LaunchEnvironment Environment() {
  return ReadLaunchEnvironment([](const char* name) { return getenv(name); })
      .value();
}

std::string TextOf(const char* variable) {
  const char* const text = getenv(variable);
  return text == nullptr ? "" : text;
}

// The backend that the environment asks for, on `size` ranks. It has to do what
// its own table says that it can.
BackendCase NamedBackend(int size) {
  BackendCase one;
  one.size = size;
  one.backend = TextOf("COMMSCHED_TEST_BACKEND");
  one.config = TextOf("COMMSCHED_TEST_CONFIG");
  one.checks_launches = !TextOf("COMMSCHED_TEST_CHECKS_LAUNCHES").empty();
  // Its file need not be called like it. What cannot be loaded is reported if
  // it is the one that is missing.
  PluginRegistry::Process().LoadAll().IgnoreError();
  const commsched_backend_t* const table =
      PluginRegistry::Process().Backend(one.backend).value();
  one.name = absl::StrCat(one.backend, "_n", size);
  one.capabilities = table->capabilities &
                     (BackendCase{}.capabilities | BackendCase::kForChannels);
  one.deterministic = one.capabilities & COMMSCHED_BACKEND_TREE_SUMS;
  one.processes = table->capabilities & COMMSCHED_BACKEND_PROCESSES;
  one.on_cuda = table->capabilities & COMMSCHED_BACKEND_STREAM_ORDERED;
  one.keeps_nan = !one.on_cuda;
  if (table->reductions != 0) one.reductions = table->reductions;
  return one;
}

constexpr uint32_t kAllReductions = COMMSCHED_BACKEND_BASIC_REDUCTIONS |
                                    COMMSCHED_BACKEND_BITWISE_REDUCTIONS |
                                    COMMSCHED_BACKEND_SCALED_REDUCTIONS;

// Of those that this repository has.
uint32_t ReductionsOf(const BackendCase& one) {
  if (one.wrap == BackendCase::Wrap::kVirtual) {
    return COMMSCHED_BACKEND_BASIC_REDUCTIONS;
  }
  if (one.backend == "inproc" || one.backend == "ucx") return kAllReductions;
  if (one.backend == "nccl") {
    return COMMSCHED_BACKEND_BASIC_REDUCTIONS |
           COMMSCHED_BACKEND_SCALED_REDUCTIONS;
  }
  return COMMSCHED_BACKEND_BASIC_REDUCTIONS;
}

std::vector<BackendCase> NamedBackends() {
  const std::string ranks = TextOf("COMMSCHED_TEST_RANKS");
  std::vector<BackendCase> cases;
  for (const absl::string_view text :
       absl::StrSplit(ranks.empty() ? "1,2,3,4" : ranks, ',')) {
    int size = 0;
    if (!absl::SimpleAtoi(text, &size) || size < 1) {
      std::cerr << "COMMSCHED_TEST_RANKS is '" << ranks
                << "', not numbers of ranks such as '1,2,4'\n";
      std::exit(2);
    }
    cases.push_back(NamedBackend(size));
  }
  return cases;
}

// Of a job of processes.
BackendCase OwnProcess() {
  BackendCase one;
  if (!TextOf("COMMSCHED_TEST_BACKEND").empty()) {
    one = NamedBackend(Environment().size);
  } else {
    one.size = Environment().size;
    one.backend = "ucx";
    one.config = TextOf("COMMSCHED_TEST_CONFIG");
    one.plugin = COMMSCHED_TEST_PLUGINS "/commsched_ucx.so";
    one.checks_launches = false;
    one.reductions = kAllReductions;
    one.capabilities |= BackendCase::kForChannels;
  }
  one.name = absl::StrCat("process_n", one.size);
  one.processes = true;
  one.own_process = true;
  return one;
}

}  // namespace

std::vector<BackendCase> AllBackends() {
  if (getenv("COMMSCHED_RANK") != nullptr) return {OwnProcess()};
  if (!TextOf("COMMSCHED_TEST_BACKEND").empty()) return NamedBackends();
  using Wrap = BackendCase::Wrap;
  std::vector<BackendCase> cases;
  for (const int size : {1, 2, 3, 4, 8}) {
    cases.push_back({absl::StrCat("inproc_n", size), "inproc", size, true, "",
                     Wrap::kNone});
    cases.back().capabilities |= BackendCase::kForChannels;
  }
  cases.push_back({"inproc_n4_fast", "inproc", 4, false, "", Wrap::kNone});
  cases.push_back({"inproc_n4_link", "inproc", 4, true,
                   LinkConfig({.bytes_per_s = 2e9, .latency_ns = 20'000}),
                   Wrap::kNone});
  cases.back().capabilities |= BackendCase::kForChannels;
  for (const int size : {1, 2, 4}) {
    cases.push_back({absl::StrCat("virtual_n", size), "virtual", size, true, "",
                     Wrap::kVirtual});
  }
  // Without faults the wrapper must be a backend like any other.
  cases.push_back({"faultless_n3", "inproc", 3, true, "", Wrap::kFaultless});
  for (const int size : {1, 2, 3, 4}) {
    cases.push_back({absl::StrCat("skeleton_n", size), "skeleton", size, true,
                     "", Wrap::kNone,
                     COMMSCHED_TEST_PLUGINS
                     "/skeletons/commsched_skeleton_backend.so",
                     COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_TREE_SUMS |
                         COMMSCHED_BACKEND_STRIDED,
                     false});
  }
  // As the plugin that injects faults, where it only delays some launches.
  BackendCase delayed;
  delayed.name = "fault_n3";
  delayed.backend = "fault";
  delayed.size = 3;
  delayed.config =
      "fault=delay,us=50,per_million=100000;fault=late,us=50,per_million=50000";
  delayed.plugin = COMMSCHED_TEST_PLUGINS "/commsched_fault.so";
  delayed.capabilities |= BackendCase::kForChannels;
  cases.push_back(delayed);
#ifdef COMMSCHED_TEST_NCCL
  // On stand-ins of CUDA and NCCL, which take memory of the host as it is. What
  // differs between ranks hangs there, as in life.
  for (const int size : {1, 2, 3, 4}) {
    BackendCase one;
    one.name = absl::StrCat("nccl_n", size);
    one.backend = "nccl";
    one.size = size;
    one.plugin = COMMSCHED_TEST_PLUGINS "/commsched_nccl.so";
    one.capabilities = COMMSCHED_BACKEND_VECTORED |
                       COMMSCHED_BACKEND_TREE_SUMS | COMMSCHED_BACKEND_P2P;
    one.checks_launches = false;
    one.on_cuda = true;
    one.keeps_nan = false;
    cases.push_back(one);
  }
#endif
#ifdef COMMSCHED_TEST_UCX
  // By shared memory, with messages read from the peer's memory as on several
  // hosts, and without; as if half of the ranks were on another host, or each
  // on one of its own, where sends take turns; by one algorithm wherever it
  // fits; and over TCP.
  struct Way {
    const char* name;
    const char* config;
    std::vector<int> sizes;
  };
  for (const auto& [name, config, sizes] :
       {Way{"ucx", "read_bytes=32768", {1, 2, 3, 4}},
        Way{"ucx_shm", "local=shm;chunk_bytes=40000;window_bytes=1", {3}},
        Way{"ucx_hosts",
            "ranks_per_host=2;chunk_bytes=8192;algorithm=levels,auto",
            {4}},
        Way{"ucx_apart", "ranks_per_host=1;chunk_bytes=4096", {3}},
        Way{"ucx_tree", "ranks_per_host=2;algorithm=tree,auto", {3, 4}},
        Way{"ucx_exchange", "algorithm=exchange,auto;read_bytes=1024", {3}},
        Way{"ucx_net", "local=net", {1, 2, 3, 4}}}) {
    for (const int size : sizes) {
      BackendCase one;
      one.name = absl::StrCat(name, "_n", size);
      one.backend = "ucx";
      one.size = size;
      one.config = config;
      one.plugin = COMMSCHED_TEST_PLUGINS "/commsched_ucx.so";
      one.checks_launches = false;
      one.processes = true;
      one.capabilities |= BackendCase::kForChannels;
      cases.push_back(one);
    }
  }
#endif
  for (BackendCase& one : cases) one.reductions = ReductionsOf(one);
  return cases;
}

bool IsPolled(const BackendCase& one) { return !one.on_cuda; }

bool IsOneProcess(const BackendCase& one) { return !one.own_process; }

std::vector<BackendCase> BackendsWith(
    uint32_t capabilities, int size,
    const std::function<bool(const BackendCase&)>& also) {
  std::vector<BackendCase> cases;
  for (const BackendCase& one : AllBackends()) {
    if ((one.capabilities & capabilities) != capabilities) continue;
    if (one.size < size || (also != nullptr && !also(one))) continue;
    cases.push_back(one);
  }
  return cases;
}

BackendTest::BackendTest() {
  if (!GetParam().plugin.empty()) {
    EXPECT_OK(PluginRegistry::Process().Load(GetParam().plugin));
  }
  if (GetParam().own_process) {
    JoinOwn();
  } else if (GetParam().processes) {
    JoinAll();
  } else {
    worlds_.push_back(Make());
  }
}

// Worlds of processes end together.
BackendTest::~BackendTest() {
  std::vector<std::thread> ends;
  for (auto& world : worlds_) {
    ends.emplace_back([&world] { world.reset(); });
  }
  for (std::thread& end : ends) end.join();
}

std::shared_ptr<World> BackendTest::Make() {
  WorldSpec spec;
  spec.size = GetParam().size;
  spec.backend = GetParam().backend;
  spec.backend_config = GetParam().config;
  for (int rank = 0; GetParam().on_cuda && rank < size(); ++rank) {
    spec.devices.push_back(OpenCudaDevice(rank).value());
  }
  if (GetParam().wrap == BackendCase::Wrap::kFaultless) {
    fault_backend_ =
        std::make_unique<test::FaultBackend>(std::vector<test::Fault>{});
    spec = fault_backend_->Spec(spec);
  }
  if (GetParam().wrap == BackendCase::Wrap::kVirtual) {
    virtual_backend_ =
        std::make_unique<test::VirtualBackend>(&SystemClock::Get());
    virtual_backend_->StepWhenPolled(test::PropertySeed());
    spec = virtual_backend_->Spec(GetParam().size);
  }
  return *World::Create(spec);
}

void BackendTest::JoinAll() {
  ControlServerSpec server;
  server.size = size();
  server_ = *ControlServer::Start(server);
  WorldSpec spec;
  spec.backend = GetParam().backend;
  spec.backend_config = GetParam().config;
  for (int rank = 0; rank < size(); ++rank) {
    JobSpec job;
    job.environment.rank = rank;
    job.environment.size = size();
    job.environment.local_size = size();
    job.environment.server_host = "127.0.0.1";
    job.environment.server_port = server_->port();
    job.environment.rank_0_serves = false;
    auto world = World::Join(spec, job);
    EXPECT_OK(world);
    worlds_.push_back(*std::move(world));
  }
}

void BackendTest::JoinOwn() {
  WorldSpec spec;
  spec.backend = GetParam().backend;
  spec.backend_config = GetParam().config;
  JobSpec job;
  job.environment = Environment();
  auto world = World::Join(spec, job);
  EXPECT_OK(world);
  worlds_.push_back(*std::move(world));
}

std::vector<absl::Status> BackendTest::OnRanks(
    const std::function<absl::Status(int rank)>& body) {
  if (!GetParam().own_process) return RunRanks(size(), body);
  const absl::Status own = body(OwnRank());
  const auto shown = WorldOf(0)->meeting()->AllGather(
      absl::StrCat("statuses ", num_meetings_++), OwnRank(),
      absl::StrCat(static_cast<int>(own.code()), " ", own.message()),
      int64_t{60} * 1000 * 1000 * 1000);
  EXPECT_OK(shown);
  std::vector<absl::Status> statuses(static_cast<size_t>(size()), own);
  for (size_t rank = 0; shown.ok() && rank < statuses.size(); ++rank) {
    const std::pair<std::string, std::string> words =
        absl::StrSplit((*shown)[rank], absl::MaxSplits(' ', 1));
    int code = 0;
    EXPECT_TRUE(absl::SimpleAtoi(words.first, &code));
    statuses[rank] =
        absl::Status(static_cast<absl::StatusCode>(code), words.second);
  }
  return statuses;
}

absl::Status BackendTest::OnRanksAll(
    const std::function<absl::Status(int rank)>& body) {
  for (const absl::Status& status : OnRanks(body)) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

std::vector<absl::Status> BackendTest::OnComm(const Body& body, CommSpec spec) {
  spec.scope = ++num_scopes_;
  return OnRanks([&](int rank) -> absl::Status {
    CommDriver comm;
    absl::Status created = comm.Create(WorldOf(rank), spec, rank);
    if (created.ok()) created = comm.AwaitReady();
    return created.ok() ? body(rank, comm) : created;
  });
}

absl::Status BackendTest::OnCommAll(const Body& body, CommSpec spec) {
  const std::vector<absl::Status> statuses = OnComm(body, std::move(spec));
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool BackendTest::AnyWorldHasEnded(const std::vector<absl::Status>& statuses) {
  return std::any_of(
      statuses.begin(), statuses.end(), [](const absl::Status& status) {
        return absl::StrContains(status.message(), "join the world again");
      });
}

void YieldSometimes(uint64_t seed) {
  std::mt19937_64 random(seed);
  const uint64_t times = random() % 20;
  for (uint64_t i = 0; i < times; ++i) std::this_thread::yield();
}

}  // namespace commsched
