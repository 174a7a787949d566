// Random programs of channels over several groups and threads, beside a
// session: whatever the order of waits, all of them end, and with what they
// should.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "channel/channel.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/channel/random_program.h"
#include "test/session/bucket_graph.h"
#include "test/support/property.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using test::ChannelRig;
using test::DescribeSeed;
using test::RandomGroup;
using test::RandomProgram;
using test::RankOp;

constexpr int kSessionSteps = 3;

// What one rank does on one of its channels.
struct Line {
  uint64_t group = 0;
  std::unique_ptr<Channel> channel;
  std::deque<RankOp> ops;
  std::vector<uint64_t> requests;
};

absl::Status WaitFor(Line* line, size_t i) {
  RETURN_IF_ERROR(line->channel->Wait(line->requests[i], kNoDeadlineNs));
  const RankOp& op = line->ops[i];
  EXPECT_EQ(op.output, op.expected) << op.what << " of group " << line->group;
  return absl::OkStatus();
}

// Submits all of it, waiting for this or that in between.
absl::Status RunLine(Line* line, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<size_t> open;
  const auto is_collective = [&](size_t i) {
    const commsched_collective_t kind = line->ops[i].op.kind;
    return kind != COMMSCHED_SEND && kind != COMMSCHED_RECV;
  };
  for (size_t i = 0; i < line->ops.size(); ++i) {
    ASSIGN_OR_RETURN(const uint64_t request,
                     line->channel->Submit(line->ops[i].op, CallerStream()));
    line->requests.push_back(request);
    // Who waits for a message may wait for one that its peer submits later than
    // what it waits for itself.
    if (is_collective(i) && random() % 3 == 0) {
      RETURN_IF_ERROR(WaitFor(line, i));
    } else {
      open.push_back(i);
    }
  }
  std::shuffle(open.begin(), open.end(), random);
  for (size_t i : open) RETURN_IF_ERROR(WaitFor(line, i));
  return absl::OkStatus();
}

class RandomChannels {
 public:
  RandomChannels(const char* backend, uint64_t seed)
      : seed_(seed),
        program_(test::ProgramOf(seed)),
        rig_(backend, program_.size),
        made_(test::MakeBuckets(program_.size, 2, 500)),
        sessions_(WorldsOf(&rig_), made_.graph, {}) {}

  absl::Status Run() {
    return RunAllRanks(program_.size, [&](int rank) { return RunRank(rank); });
  }

 private:
  static std::vector<std::shared_ptr<World>> WorldsOf(ChannelRig* rig) {
    std::vector<std::shared_ptr<World>> worlds;
    for (int rank = 0; rank < rig->size(); ++rank) {
      if (rank == 0 || rig->WorldOf(rank) != worlds[0]) {
        worlds.push_back(rig->WorldOf(rank));
      }
    }
    return worlds;
  }

  absl::StatusOr<std::vector<Line>> Open(int rank) {
    std::vector<Line> lines;
    for (uint64_t g = 0; g < program_.groups.size(); ++g) {
      const RandomGroup& group = program_.groups[g];
      const auto found =
          std::find(group.ranks.begin(), group.ranks.end(), rank);
      if (found == group.ranks.end()) continue;
      const auto own = static_cast<int>(found - group.ranks.begin());
      Line line;
      line.group = g;
      ASSIGN_OR_RETURN(line.channel,
                       Channel::Create(rig_.SpecOf(rank, group.ranks,
                                                   absl::StrCat("axis", g))));
      for (const test::RandomOp& op : group.ops) {
        RankOp made =
            test::RankOpOf(op, own, static_cast<int>(group.ranks.size()));
        if (!made.takes_part) continue;
        line.ops.push_back(std::move(made));
        test::Point(&line.ops.back());
      }
      lines.push_back(std::move(line));
    }
    return lines;
  }

  // A thread per channel, and the caller's for the session.
  absl::Status RunRank(int rank) {
    ASSIGN_OR_RETURN(std::unique_ptr<Session> session,
                     Session::Create(sessions_.Spec(rank)));
    ASSIGN_OR_RETURN(std::vector<Line> lines, Open(rank));
    std::vector<absl::Status> statuses(lines.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < lines.size(); ++i) {
      threads.emplace_back([&, i] {
        statuses[i] = RunLine(
            &lines[i], seed_ + lines[i].group + static_cast<uint64_t>(rank));
      });
    }
    absl::Status status;
    for (int step = 0; step < kSessionSteps && status.ok(); ++step) {
      status = test::RunStep(*session, sessions_, made_, rank);
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& each : statuses) status.Update(each);
    RETURN_IF_ERROR(status);
    return session->Drain();
  }

  const uint64_t seed_;
  const RandomProgram program_;
  ChannelRig rig_;
  const test::BucketGraph made_;
  test::SessionRig sessions_;
};

class ChannelPropertyTest : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Backends, ChannelPropertyTest,
                         testing::ValuesIn(test::Backends()),
                         [](const auto& info) { return info.param; });

TEST_P(ChannelPropertyTest, RandomProgramsEndWithWhatTheyShould) {
  if (!ChannelRig(GetParam(), 1).Has(COMMSCHED_BACKEND_TAGS)) {
    GTEST_SKIP() << "no tags";
  }
  const bool is_inproc = std::string(GetParam()) == "inproc";
  const int cases = test::PropertyCases(is_inproc ? 100 : 20);
  for (int i = 0; i < cases; ++i) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(DescribeSeed(seed));
    ASSERT_OK(RandomChannels(GetParam(), seed).Run());
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace commsched
