// commsched_world_join and the control server, across the C ABI.
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "commsched/control.h"
#include "commsched/gather.h"
#include "commsched/graph.h"
#include "commsched/link_profile.h"
#include "commsched/plan.h"
#include "commsched/world.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace commsched {
namespace {

using testing::HasSubstr;

commsched_join_desc_t Alone() {
  commsched_join_desc_t desc = commsched_join_desc_init();
  desc.rank = 0;
  desc.size = 1;
  desc.backend = "null";
  return desc;
}

void ExpectRefused(const commsched_join_desc_t& desc, commsched_status_t code,
                   const char* text) {
  commsched_world_t* world = nullptr;
  EXPECT_EQ(commsched_world_join(&desc, &world), code);
  EXPECT_THAT(std::string(commsched_last_error()), HasSubstr(text));
  EXPECT_EQ(world, nullptr);
}

TEST(JoinTest, AProcessAloneIsAWorldOfOne) {
  const commsched_join_desc_t desc = Alone();
  commsched_world_t* world = nullptr;
  ASSERT_EQ(commsched_world_join(&desc, &world), COMMSCHED_OK);
  EXPECT_EQ(commsched_world_rank(world), 0);
  EXPECT_EQ(commsched_world_size(world), 1);
  commsched_context_t* context = nullptr;
  ASSERT_EQ(commsched_context_create(world, 0, &context), COMMSCHED_OK);
  EXPECT_EQ(commsched_context_local_size(context), 1);
  EXPECT_STREQ(commsched_context_backend(context), "null");
  int32_t device = -1;
  EXPECT_EQ(commsched_context_device(context, &device), COMMSCHED_DEVICE_HOST);
  EXPECT_EQ(device, 0);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}

TEST(JoinTest, TheLinksAreThoseOfTheFile) {
  const std::string path = testing::TempDir() + "/join_links.json";
  commsched_link_profile_t given = commsched_link_profile_init();
  given.network.latency_ns = 77;
  ASSERT_EQ(commsched_link_profile_write(&given, "a note", path.c_str()),
            COMMSCHED_OK);
  commsched_join_desc_t desc = Alone();
  desc.link_profile = path.c_str();
  commsched_world_t* world = nullptr;
  ASSERT_EQ(commsched_world_join(&desc, &world), COMMSCHED_OK);
  commsched_context_t* context = nullptr;
  ASSERT_EQ(commsched_context_create(world, 0, &context), COMMSCHED_OK);
  commsched_link_profile_t links = commsched_link_profile_init();
  int32_t is_given = 0;
  EXPECT_EQ(commsched_context_link_profile(context, &links, &is_given),
            COMMSCHED_OK);
  EXPECT_EQ(links.network.latency_ns, 77);
  EXPECT_EQ(is_given, 1);
  int32_t host = -1;
  int32_t num_hosts = 0;
  EXPECT_EQ(commsched_context_hosts(context, &host, 1, &num_hosts),
            COMMSCHED_OK);
  EXPECT_EQ(host, 0);
  EXPECT_EQ(num_hosts, 1);
  EXPECT_EQ(commsched_context_hosts(context, &host, 2, &num_hosts),
            COMMSCHED_INVALID_ARGUMENT);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}

TEST(JoinTest, LinksThatCannotBeReadFailTheJoin) {
  commsched_join_desc_t desc = Alone();
  desc.link_profile = "/nowhere/links.json";
  ExpectRefused(desc, COMMSCHED_NOT_FOUND,
                "profile of links, desc.link_profile: /nowhere/links.json: ");
  const std::string path = testing::TempDir() + "/join_bad_links.json";
  std::ofstream(path) << R"({"format": "commsched-links/1", "rack": {}})";
  desc.link_profile = path.c_str();
  ExpectRefused(desc, COMMSCHED_INVALID_ARGUMENT, "rack");
}

TEST(JoinTest, ThreadsShareAHostAndHaveTheDefaults) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = 2;
  commsched_world_t* world = nullptr;
  ASSERT_EQ(commsched_world_create_inproc(&desc, &world), COMMSCHED_OK);
  commsched_context_t* context = nullptr;
  ASSERT_EQ(commsched_context_create(world, 1, &context), COMMSCHED_OK);
  commsched_link_profile_t links = commsched_link_profile_init();
  links.host.latency_ns = 0;
  int32_t given = 1;
  EXPECT_EQ(commsched_context_link_profile(context, &links, &given),
            COMMSCHED_OK);
  EXPECT_EQ(given, 0);
  EXPECT_EQ(links.host.latency_ns,
            commsched_link_profile_init().host.latency_ns);
  int32_t num_hosts = 0;
  EXPECT_EQ(commsched_context_hosts(context, nullptr, 0, &num_hosts),
            COMMSCHED_OK);
  EXPECT_EQ(num_hosts, 1);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}

// What ranks on hosts have of a link that they share: a collective of all takes
// as long as the host's link does for what crosses it once.
TEST(LinkCostsTest, RanksOfAHostShareItsLink) {
  commsched_link_profile_t links = commsched_link_profile_init();
  links.host = {1000, 8e9, 100};
  links.network = {20'000, 1e9, 300};
  commsched_cost_profile_t costs = commsched_cost_profile_init();
  costs.copy_bytes_per_s = 3;
  const auto set = [&](int32_t ranks, int32_t hosts) {
    return commsched_cost_profile_set_links(&links, ranks, hosts, &costs);
  };
  ASSERT_EQ(set(4, 1), COMMSCHED_OK);
  EXPECT_EQ(costs.link_bytes_per_s, 8e9);
  EXPECT_EQ(costs.link_latency_ns, 2000);
  EXPECT_EQ(costs.launch_ns, 400);  // Two rounds of two messages.
  EXPECT_EQ(costs.copy_bytes_per_s, 3);
  ASSERT_EQ(set(4, 4), COMMSCHED_OK);
  EXPECT_EQ(costs.link_bytes_per_s, 1e9);
  EXPECT_EQ(costs.link_latency_ns, 40'000);
  EXPECT_EQ(costs.launch_ns, 1200);
  ASSERT_EQ(set(8, 2), COMMSCHED_OK);
  // 7/8 of the bytes at this rate take as long as 1/2 of them at 1e9.
  EXPECT_DOUBLE_EQ(costs.link_bytes_per_s, 1.75e9);
  EXPECT_EQ(costs.link_latency_ns, 42'000);
  ASSERT_EQ(set(INT32_MAX, 2), COMMSCHED_OK);
  EXPECT_EQ(costs.launch_ns, 2 * 30 * 100 + 2 * 300);  // 2^30 on a host.
  EXPECT_EQ(set(2, 3), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_THAT(std::string(commsched_last_error()),
              HasSubstr("num_hosts is 3 for 2 ranks"));
  links.host.bytes_per_s = 0;
  EXPECT_EQ(set(2, 1), COMMSCHED_INVALID_ARGUMENT);
}

TEST(LinkProfileTest, IsReadAndWrittenAsText) {
  commsched_link_profile_t profile = commsched_link_profile_init();
  char* text = nullptr;
  ASSERT_EQ(commsched_link_profile_to_json(&profile, nullptr, &text),
            COMMSCHED_OK);
  profile.host.latency_ns = 0;
  EXPECT_EQ(commsched_link_profile_from_json(text, strlen(text), &profile),
            COMMSCHED_OK);
  EXPECT_EQ(profile.host.latency_ns,
            commsched_link_profile_init().host.latency_ns);
  commsched_string_free(text);
  EXPECT_EQ(commsched_link_profile_to_json(&profile, "\xff", &text),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(commsched_link_profile_from_json("[", 1, &profile),
            COMMSCHED_INVALID_ARGUMENT);
}

TEST(LinkProfileTest, IsReadAndWrittenAsAFile) {
  const std::string path = testing::TempDir() + "/profile.json";
  commsched_link_profile_t profile = commsched_link_profile_init();
  profile.host.message_ns = 7;
  ASSERT_EQ(commsched_link_profile_write(&profile, nullptr, path.c_str()),
            COMMSCHED_OK);
  profile.host.message_ns = 0;
  EXPECT_EQ(commsched_link_profile_read(path.c_str(), &profile), COMMSCHED_OK);
  EXPECT_EQ(profile.host.message_ns, 7);
  EXPECT_EQ(commsched_link_profile_read((path + ".none").c_str(), &profile),
            COMMSCHED_NOT_FOUND);
  EXPECT_EQ(
      commsched_link_profile_write(&profile, nullptr, "/nowhere/links.json"),
      COMMSCHED_UNAVAILABLE);
  EXPECT_THAT(std::string(commsched_last_error()),
              HasSubstr("cannot write profile of links '/nowhere/links.json'"));
}

TEST(JoinTest, ThreadsHaveNoRankOfTheirProcess) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = 2;
  commsched_world_t* world = nullptr;
  ASSERT_EQ(commsched_world_create_inproc(&desc, &world), COMMSCHED_OK);
  EXPECT_EQ(commsched_world_rank(world), -1);
  EXPECT_EQ(commsched_world_rank(nullptr), -1);
  EXPECT_EQ(commsched_context_local_size(nullptr), 0);
  EXPECT_EQ(commsched_context_backend(nullptr), nullptr);
  commsched_world_destroy(world);
}

TEST(JoinTest, FieldsThatMakeNoSenseAreNamed) {
  commsched_join_desc_t desc = Alone();
  desc.rank = 1;
  ExpectRefused(desc, COMMSCHED_INVALID_ARGUMENT,
                "desc.rank is 1, not in a world of 1 ranks");
  desc = Alone();
  desc.size = 2;
  ExpectRefused(desc, COMMSCHED_INVALID_ARGUMENT, "desc.control is NULL");
  desc.control = "nowhere";
  ExpectRefused(desc, COMMSCHED_INVALID_ARGUMENT,
                "desc.control is 'nowhere', not host:port");
  desc = Alone();
  desc.timeout_ns = -1;
  ExpectRefused(desc, COMMSCHED_INVALID_ARGUMENT, "desc.timeout_ns is -1");
  desc = Alone();
  desc.backend = "inproc";
  ExpectRefused(desc, COMMSCHED_FAILED_PRECONDITION, "threads of one process");
  desc = Alone();
  desc.abi_version = 0;
  ExpectRefused(desc, COMMSCHED_INVALID_ARGUMENT,
                "commsched_join_desc_t.abi_version is 0");
  desc = Alone();
  desc.abi_version = 99;
  ExpectRefused(desc, COMMSCHED_FAILED_PRECONDITION, "ABI 99");
}

// ---- Gathering ----

void Keep(void* user, int32_t rank, const void* data, uint64_t bytes) {
  auto* all = static_cast<std::vector<std::string>*>(user);
  EXPECT_EQ(static_cast<size_t>(rank), all->size());
  all->emplace_back(static_cast<const char*>(data), bytes);
}

class GatherTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  GatherTest() {
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = kRanks;
    EXPECT_EQ(commsched_world_create_inproc(&desc, &world_), COMMSCHED_OK);
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      EXPECT_EQ(commsched_context_create(world_, rank, &contexts_[rank]),
                COMMSCHED_OK);
    }
  }
  ~GatherTest() override {
    for (commsched_context_t* context : contexts_) {
      commsched_context_destroy(context);
    }
    commsched_world_destroy(world_);
  }

  commsched_world_t* world_ = nullptr;
  commsched_context_t* contexts_[kRanks] = {};
};

TEST_F(GatherTest, EveryRankSeesWhatAllShow) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([this, rank] {
      for (int round = 0; round < 20; ++round) {
        const std::string mine(static_cast<size_t>(rank + round), 'x');
        std::vector<std::string> all;
        commsched_gather_desc_t desc = commsched_gather_desc_init();
        desc.name = "figures";
        desc.data = mine.data();
        desc.bytes = mine.size();
        desc.take = &Keep;
        desc.user = &all;
        ASSERT_EQ(commsched_context_gather(contexts_[rank], &desc),
                  COMMSCHED_OK);
        ASSERT_EQ(all.size(), static_cast<size_t>(kRanks));
        for (int other = 0; other < kRanks; ++other) {
          EXPECT_EQ(all[static_cast<size_t>(other)].size(),
                    static_cast<size_t>(other + round));
        }
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(GatherTest, MistakesAreNamed) {
  std::vector<std::string> all;
  commsched_gather_desc_t good = commsched_gather_desc_init();
  good.name = "figures";
  good.take = &Keep;
  good.user = &all;
  const auto expect_refused = [&](const commsched_gather_desc_t& desc,
                                  commsched_status_t code, const char* text) {
    EXPECT_EQ(commsched_context_gather(contexts_[0], &desc), code);
    EXPECT_THAT(std::string(commsched_last_error()), HasSubstr(text));
  };
  commsched_gather_desc_t desc = good;
  desc.name = "";
  expect_refused(desc, COMMSCHED_INVALID_ARGUMENT, "desc.name is empty");
  desc = good;
  desc.take = nullptr;
  expect_refused(desc, COMMSCHED_INVALID_ARGUMENT, "desc.take");
  desc = good;
  desc.bytes = 1;
  expect_refused(desc, COMMSCHED_INVALID_ARGUMENT, "desc.data");
  desc = good;
  desc.timeout_ns = -1;
  expect_refused(desc, COMMSCHED_INVALID_ARGUMENT, "desc.timeout_ns is -1");
  desc = good;
  desc.data = &all;
  desc.bytes = uint64_t{COMMSCHED_MAX_GATHER_BYTES} + 1;
  expect_refused(desc, COMMSCHED_RESOURCE_EXHAUSTED, "'figures': 33554433");
  desc = good;
  desc.timeout_ns = 1;
  expect_refused(desc, COMMSCHED_DEADLINE_EXCEEDED, "missing of 3 ranks: 1, 2");
  EXPECT_TRUE(all.empty());
}

struct Seen {
  int32_t present = -1;
  int32_t joined = -1;
};

TEST(ControlTest, AProcessThatEndedBeforeItJoinedIsNamedToTheOthers) {
  commsched_control_desc_t desc = commsched_control_desc_init();
  desc.size = 2;
  commsched_control_server_t* server = nullptr;
  ASSERT_EQ(commsched_control_server_start(&desc, &server), COMMSCHED_OK);
  EXPECT_EQ(commsched_control_server_report_exit(server, 2, "it ended"),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(commsched_control_server_report_exit(server, 1, nullptr),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(commsched_control_server_report_exit(
                server, 1, "process 7 exited with code 3"),
            COMMSCHED_OK);
  commsched_join_desc_t join = Alone();
  const std::string control =
      "127.0.0.1:" + std::to_string(commsched_control_server_port(server));
  join.size = 2;
  join.control = control.c_str();
  commsched_world_t* world = nullptr;
  ASSERT_EQ(commsched_world_join(&join, &world), COMMSCHED_OK);
  commsched_context_t* context = nullptr;
  ASSERT_EQ(commsched_context_create(world, 0, &context), COMMSCHED_OK);
  std::vector<std::string> all;
  commsched_gather_desc_t gather = commsched_gather_desc_init();
  gather.name = "figures";
  gather.take = &Keep;
  gather.user = &all;
  EXPECT_EQ(commsched_context_gather(context, &gather), COMMSCHED_ABORTED);
  EXPECT_THAT(std::string(commsched_last_error()),
              HasSubstr("rank 1 is lost: process 7 exited with code 3 before "
                        "it joined"));
  commsched_context_destroy(context);
  commsched_world_destroy(world);
  commsched_control_server_destroy(server);
}

TEST(ControlTest, AServerIsFoundByItsPortAndToken) {
  char token[COMMSCHED_TOKEN_SIZE] = "";
  ASSERT_EQ(commsched_token_create(token), COMMSCHED_OK);
  EXPECT_EQ(std::string(token).size(), 64u);
  Seen seen;
  commsched_control_desc_t desc = commsched_control_desc_init();
  desc.size = 1;
  desc.token = token;
  desc.user = &seen;
  desc.on_departed = [](void* user, int32_t present, int32_t joined) {
    *static_cast<Seen*>(user) = {present, joined};
  };
  commsched_control_server_t* server = nullptr;
  ASSERT_EQ(commsched_control_server_start(&desc, &server), COMMSCHED_OK);
  commsched_join_desc_t join = Alone();
  const std::string control =
      "127.0.0.1:" + std::to_string(commsched_control_server_port(server));
  join.control = control.c_str();
  ExpectRefused(join, COMMSCHED_UNAUTHENTICATED, "the job token");
  join.token = token;
  commsched_world_t* world = nullptr;
  ASSERT_EQ(commsched_world_join(&join, &world), COMMSCHED_OK);
  commsched_world_destroy(world);
  commsched_control_server_destroy(server);  // Joins its thread.
  EXPECT_EQ(seen.present, 0);
  EXPECT_EQ(seen.joined, 1);
}

TEST(ControlTest, AServerThatCannotBeIsRefused) {
  commsched_control_server_t* server = nullptr;
  const auto expect_refused = [&](const commsched_control_desc_t& desc,
                                  const char* text) {
    EXPECT_EQ(commsched_control_server_start(&desc, &server),
              COMMSCHED_INVALID_ARGUMENT);
    EXPECT_THAT(std::string(commsched_last_error()), HasSubstr(text));
    EXPECT_EQ(server, nullptr);
  };
  commsched_control_desc_t desc = commsched_control_desc_init();
  expect_refused(desc, "size is 0");
  desc.size = 1;
  desc.port = 65536;
  expect_refused(desc, "desc.port is 65536");
  desc.port = 0;
  desc.silence_ns = 1;
  expect_refused(desc, "desc.silence_ns is 1");
  desc.silence_ns = 0;
  desc.address = "0.0.0.0";
  expect_refused(desc, "not loopback");
  EXPECT_EQ(commsched_control_server_start(nullptr, &server),
            COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(commsched_token_create(nullptr), COMMSCHED_INVALID_ARGUMENT);
  EXPECT_EQ(commsched_control_server_port(nullptr), 0u);
  EXPECT_EQ(commsched_control_server_report_exit(nullptr, 0, "it ended"),
            COMMSCHED_INVALID_ARGUMENT);
  commsched_control_server_destroy(nullptr);
}

}  // namespace
}  // namespace commsched
