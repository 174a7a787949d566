// Eager programs on worker streams, with early collectives: whatever is
// recorded and replayed, memory ends up as if each rank had run one call after
// the other.
#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/world.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "recording/recording.h"
#include "test/support/property.h"
#include "test/support/rank_group.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int kSteps = 12;

// One call of the program: an op on some buffers, once per step.
struct Call {
  bool collective = false;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  int root = 0;
  bool early = false;
  uint32_t lane = 0;
  std::vector<size_t> reads;  // of a collective: its input
  size_t writes = 0;          // by a compute op: read, too
};

// What all ranks run. Buffers below `num_whole` have `ranks` parts, the others
// are of one part.
struct Program {
  int ranks = 2;
  size_t part = 3;  // elements
  size_t num_whole = 2, num_parts = 1;
  std::vector<bool> worker_lanes;
  std::vector<Call> calls;
  // By step, rank, call: whether it is made.
  std::vector<std::vector<std::vector<bool>>> made;
  bool deviates = false;
  PlanOptions options;

  size_t num_buffers() const { return num_whole + num_parts; }
  size_t CountOf(size_t buffer) const {
    return buffer < num_whole ? part * static_cast<size_t>(ranks) : part;
  }
};

using Memory = std::vector<std::vector<int32_t>>;  // by buffer

Memory InitialMemory(const Program& program, int rank) {
  Memory memory;
  for (size_t b = 0; b < program.num_buffers(); ++b) {
    memory.emplace_back(program.CountOf(b));
    for (size_t i = 0; i < memory[b].size(); ++i) {
      memory[b][i] = static_cast<int32_t>(17 * b + 5 * i) + 3 * rank;
    }
  }
  return memory;
}

// What compute op `number` does.
void Compute(const Call& call, size_t number, int step, int rank,
             Memory* memory) {
  std::vector<int32_t>& out = (*memory)[call.writes];
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t sum = 3 * int64_t{out[i]} + static_cast<int64_t>(number) +
                  11 * step + 7 * rank;
    for (size_t read : call.reads) {
      const std::vector<int32_t>& in = (*memory)[read];
      sum = 5 * sum + in[i % in.size()];
    }
    out[i] = static_cast<int32_t>(sum % 1009);
  }
}

// What collective `call` does to the ranks that submit it; others send zeros
// and get nothing.
void RunCollective(const Program& program, const Call& call,
                   const std::vector<bool>& submits,
                   std::vector<Memory>* memory) {
  std::vector<std::vector<int32_t>> in;
  for (size_t r = 0; r < memory->size(); ++r) {
    in.push_back((*memory)[r][call.reads[0]]);
    if (!submits[r]) in.back().assign(in.back().size(), 0);
  }
  for (size_t r = 0; r < memory->size(); ++r) {
    if (!submits[r]) continue;
    std::vector<int32_t>& out = (*memory)[r][call.writes];
    for (size_t i = 0; i < out.size(); ++i) {
      if (call.kind == CollectiveKind::kAllGather) {
        out[i] = in[i / program.part][i % program.part];
        continue;
      }
      if (call.kind == CollectiveKind::kBroadcast) {
        out[i] = in[static_cast<size_t>(call.root)][i];
        continue;
      }
      const bool scatters = call.kind == CollectiveKind::kReduceScatter;
      uint32_t sum = 0;  // wraps, as theirs does
      for (const std::vector<int32_t>& each : in) {
        sum += static_cast<uint32_t>(each[scatters ? r * program.part + i : i]);
      }
      out[i] = static_cast<int32_t>(sum);
    }
  }
}

std::vector<Memory> RunSequentially(const Program& program) {
  std::vector<Memory> memory;
  for (int r = 0; r < program.ranks; ++r) {
    memory.push_back(InitialMemory(program, r));
  }
  for (int step = 0; step < kSteps; ++step) {
    const auto& made = program.made[static_cast<size_t>(step)];
    for (size_t c = 0; c < program.calls.size(); ++c) {
      const Call& call = program.calls[c];
      std::vector<bool> takes;
      for (size_t r = 0; r < memory.size(); ++r) takes.push_back(made[r][c]);
      if (call.collective) {
        RunCollective(program, call, takes, &memory);
        continue;
      }
      for (size_t r = 0; r < memory.size(); ++r) {
        if (!takes[r]) continue;
        Compute(call, c, step, static_cast<int>(r), &memory[r]);
      }
    }
  }
  return memory;
}

// Where a step deviates, an op may need a launch behind one that is yet to be
// submitted (docs/recording.md); it then goes as if it were not.
bool CameTooLate(const absl::Status& status) {
  return status.code() == absl::StatusCode::kFailedPrecondition &&
         absl::StrContains(status.message(), "comes too late");
}

// One rank of a program: its memory, its streams, its recording.
class Rank {
 public:
  Rank(const Program& program, int rank)
      : program_(program), rank_(rank), memory_(InitialMemory(program, rank)) {}

  absl::Status Run(const std::shared_ptr<World>& world) {
    RETURN_IF_ERROR(Create(world));
    for (int step = 0; step < kSteps; ++step) {
      RETURN_IF_ERROR(recording_->StepBegin());
      const auto& made =
          program_.made[static_cast<size_t>(step)][static_cast<size_t>(rank_)];
      for (size_t c = 0; c < program_.calls.size(); ++c) {
        if (made[c]) RETURN_IF_ERROR(Make(c, step));
      }
      RETURN_IF_ERROR(recording_->StepEnd());
    }
    return recording_->Drain();
  }

  const Memory& memory() const { return memory_; }
  // Steps and calls in which this rank went without its data.
  const std::vector<std::pair<size_t, size_t>>& too_late() const {
    return too_late_;
  }
  RecordingInfo info() const { return recording_->info(); }

 private:
  struct Work {
    Rank* rank;
    size_t call;
    int step;
  };

  absl::Status Create(const std::shared_ptr<World>& world) {
    RecordingSpec spec;
    spec.world = world;
    spec.world_rank = rank_;
    spec.take_instance = [this] { return next_instance_++; };
    GroupSpec group;
    group.axis = "dp";
    for (int r = 0; r < program_.ranks; ++r) group.ranks.push_back(r);
    group.rank = rank_;
    spec.groups.push_back(group);
    spec.options = program_.options;
    spec.launch_timeout_ns = int64_t{20} * 1000 * 1000 * 1000;
    for (bool worker : program_.worker_lanes) {
      if (worker) workers_.push_back(HostStream::Create("lane", 64).value());
      lanes_.push_back(worker ? workers_.back().get() : CallerStream());
    }
    spec.lanes = lanes_;
    ASSIGN_OR_RETURN(recording_, Recording::Create(std::move(spec)));
    for (size_t b = 0; b < program_.num_buffers(); ++b) {
      Buffer buffer;
      buffer.name = absl::StrCat("buffer.", b);
      buffer.dtype = DType::kI32;
      buffer.ownership = Ownership::kBound;
      buffer.count = program_.CountOf(b);
      RETURN_IF_ERROR(
          recording_->AddBuffer(buffer, memory_[b].data()).status());
    }
    for (size_t c = 0; c < program_.calls.size(); ++c) {
      RETURN_IF_ERROR(Declare(c));
    }
    return absl::OkStatus();
  }

  absl::Status Declare(size_t number) {
    const Call& call = program_.calls[number];
    const auto id = [](size_t buffer) {
      return BufferId(static_cast<uint32_t>(buffer));
    };
    Op op;
    op.name = absl::StrCat("call.", number);
    if (call.collective) {
      op.kind = OpKind::kCollective;
      op.collective.kind = call.kind;
      op.collective.group = GroupId(0);
      op.collective.root = call.root;
      op.collective.input = {id(call.reads[0]), AccessMode::kRead, {}};
      op.collective.output = {id(call.writes), AccessMode::kWrite, {}};
      return recording_
          ->AddCollective(
              op, 0, {.alternative = program_.deviates, .early = call.early})
          .status();
    }
    op.compute.lane = call.lane;
    for (size_t read : call.reads) {
      op.accesses.push_back({id(read), AccessMode::kRead, {}});
    }
    op.accesses.push_back({id(call.writes), AccessMode::kReadWrite, {}});
    return recording_->AddCompute(op, 0).status();
  }

  absl::Status Make(size_t number, int step) {
    const Call& call = program_.calls[number];
    const uint32_t op = static_cast<uint32_t>(number);
    if (call.collective) {
      absl::Status submitted = recording_->Submit(op);
      if (!program_.deviates || !CameTooLate(submitted)) return submitted;
      too_late_.push_back({static_cast<size_t>(step), number});
      return absl::OkStatus();
    }
    Stream* const stream = lanes_[call.lane];
    RETURN_IF_ERROR(recording_->Before(op, stream));
    work_.push_back({this, number, step});
    const auto run = [](void* user) {
      const Work& work = *static_cast<Work*>(user);
      Compute(work.rank->program_.calls[work.call], work.call, work.step,
              work.rank->rank_, &work.rank->memory_);
    };
    if (stream->is_caller()) {
      run(&work_.back());
    } else {
      static_cast<HostStream*>(stream)->Enqueue(run, &work_.back());
    }
    return recording_->After(op, stream);
  }

  const Program& program_;
  const int rank_;
  Memory memory_;
  uint64_t next_instance_ = 0;
  std::deque<Work> work_;
  std::vector<std::pair<size_t, size_t>> too_late_;
  std::vector<std::unique_ptr<HostStream>> workers_;
  std::vector<Stream*> lanes_;
  std::unique_ptr<Recording> recording_;  // goes before all that it uses
};

class Drawing {
 public:
  explicit Drawing(uint64_t seed) : random_(seed) {}
  int operator()(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }
  size_t Below(size_t end) {
    return static_cast<size_t>((*this)(0, static_cast<int>(end) - 1));
  }

 private:
  std::mt19937_64 random_;
};

Call DrawCollective(Drawing& draw, const Program& program) {
  Call call;
  call.collective = true;
  call.early = !program.deviates && draw(0, 1) == 1;
  const size_t whole = draw.Below(program.num_whole);
  const size_t part = program.num_whole + draw.Below(program.num_parts);
  switch (draw(0, 3)) {
    case 0:
      call.kind = CollectiveKind::kAllGather;
      call.reads = {part};
      call.writes = whole;
      break;
    case 1:
      call.kind = CollectiveKind::kReduceScatter;
      call.reads = {whole};
      call.writes = part;
      break;
    case 2:
      call.kind = CollectiveKind::kBroadcast;
      call.root = draw(0, program.ranks - 1);
      call.reads = {whole};
      call.writes = whole;
      break;
    default:
      call.reads = {whole};
      call.writes = whole;
      break;
  }
  return call;
}

Call DrawCompute(Drawing& draw, const Program& program) {
  Call call;
  call.lane = static_cast<uint32_t>(draw.Below(program.worker_lanes.size()));
  call.writes = draw.Below(program.num_buffers());
  for (int reads = draw(0, 2); reads > 0; --reads) {
    const size_t read = draw.Below(program.num_buffers());
    if (read != call.writes) call.reads.push_back(read);
  }
  if (call.reads.size() == 2 && call.reads[0] == call.reads[1]) {
    call.reads.pop_back();
  }
  return call;
}

// Steps deviate once they are frozen, if at all.
void DrawMade(Drawing& draw, Program* program) {
  const int rarely = draw(2, 8);
  program->made.resize(kSteps);
  for (size_t step = 0; step < program->made.size(); ++step) {
    for (int r = 0; r < program->ranks; ++r) {
      std::vector<bool> made(program->calls.size(), true);
      if (program->deviates && step >= 2 && draw(0, rarely) == 0) {
        for (size_t c = 0; c < made.size(); ++c) made[c] = draw(0, 3) != 0;
      }
      program->made[step].push_back(std::move(made));
    }
  }
}

Program DrawProgram(uint64_t seed) {
  Drawing draw(seed);
  Program program;
  program.ranks = draw(2, 4);
  program.part = static_cast<size_t>(draw(1, 5));
  program.num_whole = static_cast<size_t>(draw(1, 5));
  program.num_parts = static_cast<size_t>(draw(1, 3));
  program.deviates = draw(0, 1) == 1;
  for (int lanes = draw(1, 3); lanes > 0; --lanes) {
    program.worker_lanes.push_back(draw(0, 3) != 0);
  }
  for (int calls = draw(2, 14); calls > 0; --calls) {
    program.calls.push_back(draw(0, 2) == 0 ? DrawCollective(draw, program)
                                            : DrawCompute(draw, program));
  }
  DrawMade(draw, &program);
  program.options.coalesce_bytes =
      static_cast<uint64_t>(draw(0, 1) * draw(8, 400));
  program.options.partition_bytes =
      static_cast<uint64_t>(draw(0, 1) * draw(8, 40));
  program.options.max_launches_in_flight = static_cast<uint32_t>(draw(0, 3));
  program.options.num_comm_lanes = static_cast<uint32_t>(draw(1, 2));
  return program;
}

TEST(RecordingWorkersTest, StreamsAndEarlyCollectivesGiveWhatOneByOneGives) {
  const int cases = test::PropertyCases(200);
  uint64_t early = 0, deviating = 0, replayed = 0, too_late = 0;
  for (int k = 0; k < cases; ++k) {
    const uint64_t seed = test::PropertySeed() + static_cast<uint64_t>(k);
    SCOPED_TRACE(test::DescribeSeed(seed));
    Program program = DrawProgram(seed);
    for (const Call& call : program.calls) early += call.early;
    WorldSpec spec;
    spec.size = program.ranks;
    const std::shared_ptr<World> world = World::Create(spec).value();
    std::vector<std::unique_ptr<Rank>> ranks;
    for (int r = 0; r < program.ranks; ++r) {
      ranks.push_back(std::make_unique<Rank>(program, r));
    }
    ASSERT_OK(RunAllRanks(program.ranks, [&](int rank) {
      return ranks[static_cast<size_t>(rank)]->Run(world);
    }));
    for (size_t r = 0; r < ranks.size(); ++r) {
      for (const auto& [step, call] : ranks[r]->too_late()) {
        program.made[step][r][call] = false;
        ++too_late;
      }
    }
    const std::vector<Memory> expected = RunSequentially(program);
    for (size_t r = 0; r < ranks.size(); ++r) {
      ASSERT_EQ(ranks[r]->memory(), expected[r]) << "rank " << r;
      deviating += ranks[r]->info().steps_deviating;
      replayed += ranks[r]->info().steps - ranks[r]->info().steps_recorded;
    }
  }
  if (cases < 100) return;
  EXPECT_GT(early, 50u);
  EXPECT_GT(deviating, 50u);
  EXPECT_GT(replayed, 500u);
  EXPECT_LT(too_late, deviating);
}

}  // namespace
}  // namespace commsched
