// Runs a random program of channels beside sessions, on ranks that are threads.
#ifndef COMMSCHED_TEST_CHANNEL_RANDOM_RUN_H_
#define COMMSCHED_TEST_CHANNEL_RANDOM_RUN_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "channel/channel.h"
#include "gtest/gtest.h"
#include "test/channel/channel_rig.h"
#include "test/channel/random_fault.h"
#include "test/channel/random_program.h"
#include "test/session/bucket_graph.h"
#include "test/support/await.h"
#include "test/support/session_rig.h"

namespace commsched::test {

// Where a program runs: a world, and the memory that launches take. On the
// host, unless it is derived from.
class ProgramPlace {
 public:
  virtual ~ProgramPlace() = default;
  virtual std::shared_ptr<World> WorldOf(int rank) = 0;
  // Of sessions.
  virtual PlanOptions Options() { return {}; }
  // Has the op's memory where `rank` launches it. It does not move any more.
  virtual void Place(int /*rank*/, RankOp* op) { Point(op); }
  // Likewise what is bound to a session, which lives as long as the place.
  virtual void Bind(int /*rank*/, SessionSpec* /*spec*/) {}
  // The host's way to bound memory, between Before() and After().
  virtual float* Look(void* bound) { return static_cast<float*>(bound); }
  // Of a launch that waits for its deadline. Communicators are made within it,
  // also on a busy machine.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  virtual int64_t DeadlineNs() const { return 4 * kSecondNs; }
#else
  virtual int64_t DeadlineNs() const { return kSecondNs / 2; }
#endif
};

class HostPlace : public ProgramPlace {
 public:
  HostPlace(const char* backend, int size) : rig_(backend, size) {}
  std::shared_ptr<World> WorldOf(int rank) override {
    return rig_.WorldOf(rank);
  }

 private:
  ChannelRig rig_;
};

// Every group has a channel with threads of its own on each of its ranks, and
// every world a session on each of its. All of them end as they should, but for
// the group that a fault is in: its channel fails on all members.
class RandomRun {
 public:
  static constexpr int64_t kLongNs = 60 * kSecondNs;

  RandomRun(ProgramPlace* where, uint64_t seed, RandomProgram program,
            std::optional<RandomFault> fault = std::nullopt)
      : seed_(seed),
        program_(std::move(program)),
        fault_(std::move(fault)),
        where_(where),
        open_(static_cast<size_t>(program_.size)) {
    for (const std::vector<int>& world : program_.worlds) {
      const auto size = static_cast<int>(world.size());
      made_.push_back(MakeBuckets(size, 2, 500));
      sessions_.push_back(std::make_unique<SessionRig>(
          Ranks(size), made_.back().graph, where_->Options()));
    }
  }

  // OK: all that had nothing to do with the fault has ended well.
  absl::Status Run() {
    return RunAllRanks(program_.size, [&](int rank) {
      const absl::Status status = RunRank(rank);
      // A rank that leaves early is another matter.
      Meet(&num_over_, program_.size);
      open_[static_cast<size_t>(rank)] = {};
      return status;
    });
  }

  // How the fault's channel failed, by rank of its group.
  const std::map<int, absl::Status>& failures() const { return failures_; }

 private:
  // What one rank does on one of its channels.
  struct Line {
    size_t group = 0;
    int rank = 0;  // of the group
    std::deque<RankOp> ops;
    std::unique_ptr<Channel> channel;  // Ends before its memory does.
    std::vector<uint64_t> requests;
    size_t fault_at = SIZE_MAX;  // of `ops`; in the fault's group only
  };
  // A rank in one of its worlds.
  struct Place {
    size_t world = 0;
    int rank = 0;
    std::shared_ptr<World> handle;
    std::unique_ptr<Session> session;
    std::vector<float*> gradients;  // the host's way to them
  };
  // Channels come before what they are of.
  struct Opened {
    std::vector<Place> places;
    std::vector<Line> lines;
  };

  static bool IsMessage(const RankOp& op) {
    return op.op.kind == COMMSCHED_SEND || op.op.kind == COMMSCHED_RECV;
  }

  static void Meet(std::atomic<int>* count, int size) {
    count->fetch_add(1);
    EXPECT_TRUE(Await([&] { return count->load() >= size; }));
  }

  absl::StatusOr<std::vector<Place>> EnterWorlds(int rank) {
    std::vector<Place> places;
    for (size_t w = 0; w < program_.worlds.size(); ++w) {
      const std::vector<int>& members = program_.worlds[w];
      Place place;
      place.world = w;
      place.rank = PlaceOf(rank, members);
      if (place.rank < 0) continue;
      place.handle = where_->WorldOf(rank);
      if (w != 0) {
        ASSIGN_OR_RETURN(
            place.handle,
            place.handle->Split(rank, members, absl::StrCat("w", w), kLongNs));
      }
      places.push_back(std::move(place));
    }
    for (Place& place : places) {
      SessionSpec spec = sessions_[place.world]->Spec(place.rank, place.handle);
      where_->Bind(rank, &spec);
      for (const auto& bound : spec.bindings) {
        place.gradients.push_back(where_->Look(bound.address));
      }
      ASSIGN_OR_RETURN(place.session, Session::Create(std::move(spec)));
    }
    return places;
  }

  absl::StatusOr<Line> OpenLine(int job_rank, const Place& place, size_t g) {
    const RandomGroup& group = program_.groups[g];
    const bool is_faulty = fault_.has_value() && fault_->group == g;
    Line line;
    line.group = g;
    line.rank = PlaceOf(place.rank, group.ranks);
    ChannelSpec spec;
    spec.world = place.handle;
    spec.world_rank = place.rank;
    spec.group = {absl::StrCat("axis", g), group.ranks, line.rank};
    spec.launch_timeout_ns = is_faulty && fault_->waits_for_deadline()
                                 ? where_->DeadlineNs()
                                 : kLongNs;
    ASSIGN_OR_RETURN(line.channel, Channel::Create(std::move(spec)));
    for (size_t i = 0; i < group.ops.size(); ++i) {
      if (is_faulty && i == fault_->at) line.fault_at = line.ops.size();
      RankOp made = RankOpOf(group.ops[i], line.rank, group.size());
      if (made.takes_part) line.ops.push_back(std::move(made));
    }
    if (is_faulty && line.rank == fault_->culprit) {
      Spoil(*fault_, group.size(), line.fault_at, &line.ops);
    }
    for (RankOp& op : line.ops) where_->Place(job_rank, &op);
    line.requests.resize(line.ops.size());
    return line;
  }

  absl::Status Open(int rank, Opened* opened) {
    ASSIGN_OR_RETURN(opened->places, EnterWorlds(rank));
    for (size_t g = 0; g < program_.groups.size(); ++g) {
      const RandomGroup& group = program_.groups[g];
      for (const Place& place : opened->places) {
        if (place.world != group.world ||
            PlaceOf(place.rank, group.ranks) < 0) {
          continue;
        }
        ASSIGN_OR_RETURN(Line line, OpenLine(rank, place, g));
        opened->lines.push_back(std::move(line));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status Submit(Line* line, size_t i) {
    ASSIGN_OR_RETURN(line->requests[i],
                     line->channel->Submit(line->ops[i].op, CallerStream()));
    return absl::OkStatus();
  }

  static absl::Status WaitFor(Line* line, size_t i) {
    RETURN_IF_ERROR(line->channel->Wait(line->requests[i], kNoDeadlineNs));
    RankOp& op = line->ops[i];
    if (op.fetch) op.fetch(&op.output);
    EXPECT_EQ(op.output, op.expected) << op.what << " of group " << line->group;
    return absl::OkStatus();
  }

  // Submits those of `which` in order, waiting for this or that in between.
  static absl::Status RunSome(Line* line, const std::vector<size_t>& which,
                              uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<size_t> open;
    for (size_t i : which) {
      RETURN_IF_ERROR(Submit(line, i));
      // Who waits for a message may wait for one that its peer submits later
      // than what it waits for itself.
      if (!IsMessage(line->ops[i]) && random() % 3 == 0) {
        RETURN_IF_ERROR(WaitFor(line, i));
      } else {
        open.push_back(i);
      }
    }
    std::shuffle(open.begin(), open.end(), random);
    for (size_t i : open) RETURN_IF_ERROR(WaitFor(line, i));
    return absl::OkStatus();
  }

  // On one thread, or on one for collectives and one for messages, which have
  // no order between them.
  static absl::Status RunLine(Line* line, size_t num_ops, uint64_t seed) {
    std::vector<size_t> collectives, messages;
    const bool on_two = seed % 2 == 0;
    for (size_t i = 0; i < num_ops; ++i) {
      const bool apart = on_two && IsMessage(line->ops[i]);
      (apart ? messages : collectives).push_back(i);
    }
    absl::Status of_messages;
    std::thread other;
    if (!messages.empty()) {
      other =
          std::thread([&] { of_messages = RunSome(line, messages, seed + 1); });
    }
    absl::Status status = RunSome(line, collectives, seed);
    if (other.joinable()) other.join();
    status.Update(of_messages);
    return status;
  }

  // What comes before the fault ends well. Then all submit the rest at once,
  // since who has not done so for long is late itself, and learn of the end.
  absl::Status RunFaultyLine(Line* line, uint64_t seed) {
    const absl::Status before = RunLine(line, line->fault_at, seed);
    Meet(&num_before_fault_, program_.groups[line->group].size());
    RETURN_IF_ERROR(before);
    if (fault_->ends_world) {
      EXPECT_TRUE(Await([&] { return num_ended_.load() == NumOthers(); }));
    }
    for (size_t i = line->fault_at; i < line->ops.size(); ++i) {
      if (!Submit(line, i).ok()) break;
    }
    for (size_t i = line->fault_at; i < line->ops.size(); ++i) {
      if (line->requests[i] == 0) break;
      line->channel->Wait(line->requests[i], kNoDeadlineNs).IgnoreError();
    }
    EXPECT_TRUE(Await([&] { return !line->channel->status().ok(); }));
    MutexLock lock(&mu_);
    failures_[line->rank] = line->channel->status();
    return absl::OkStatus();
  }

  // Threads that have nothing to do with the fault, of all ranks.
  int NumOthers() const {
    int num = 0;
    for (const std::vector<int>& world : program_.worlds) {
      num += static_cast<int>(world.size());
    }
    for (size_t g = 0; g < program_.groups.size(); ++g) {
      if (g != fault_->group) num += program_.groups[g].size();
    }
    return num;
  }

  // Rank r writes r + 1 into all gradients.
  absl::Status RunStepOf(const Place& place) {
    const BucketGraph& made = made_[place.world];
    Session& session = *place.session;
    RETURN_IF_ERROR(session.StepBegin());
    for (size_t i = 0; i < made.backward.size(); ++i) {
      RETURN_IF_ERROR(session.Before(made.backward[i], CallerStream()));
      place.gradients[i][0] = static_cast<float>(place.rank + 1);
      RETURN_IF_ERROR(session.After(made.backward[i], CallerStream()));
    }
    for (OpId op : made.use) RETURN_IF_ERROR(Call(session, op));
    return session.StepEnd();
  }

  absl::Status RunSession(const Place& place) {
    constexpr int kSteps = 3;
    const auto size = program_.worlds[place.world].size();
    for (int step = 0; step < kSteps; ++step) {
      RETURN_IF_ERROR(RunStepOf(place));
    }
    RETURN_IF_ERROR(place.session->Drain());
    for (const float* gradient : place.gradients) {
      EXPECT_EQ(gradient[0], static_cast<float>(size * (size + 1) / 2))
          << "of the session of world " << place.world;
    }
    return absl::OkStatus();
  }

  // A thread per channel and per session.
  absl::Status RunRank(int rank) {
    Opened& opened = open_[static_cast<size_t>(rank)];
    const absl::Status status = Open(rank, &opened);
    std::vector<absl::Status> statuses(opened.lines.size() +
                                       opened.places.size());
    std::vector<std::thread> threads;
    for (Line& line : opened.lines) {
      if (!status.ok()) break;
      const size_t i = threads.size();
      threads.emplace_back([&, i] {
        const uint64_t seed = seed_ + line.group + static_cast<uint64_t>(rank);
        if (line.fault_at != SIZE_MAX) {
          statuses[i] = RunFaultyLine(&line, seed);
          return;
        }
        statuses[i] = RunLine(&line, line.ops.size(), seed);
        ++num_ended_;
      });
    }
    for (const Place& place : opened.places) {
      if (!status.ok()) break;
      const size_t i = threads.size();
      threads.emplace_back([&, i] {
        statuses[i] = RunSession(place);
        ++num_ended_;
      });
    }
    for (std::thread& thread : threads) thread.join();
    absl::Status all = status;
    for (const absl::Status& each : statuses) all.Update(each);
    return all;
  }

  const uint64_t seed_;
  const RandomProgram program_;
  const std::optional<RandomFault> fault_;
  ProgramPlace* const where_;
  std::vector<BucketGraph> made_;                      // by world
  std::vector<std::unique_ptr<SessionRig>> sessions_;  // by world

  std::vector<Opened> open_;  // by rank
  std::atomic<int> num_before_fault_{0};
  std::atomic<int> num_ended_{0};  // Of NumOthers().
  std::atomic<int> num_over_{0};
  Mutex mu_;
  std::map<int, absl::Status> failures_;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_CHANNEL_RANDOM_RUN_H_
