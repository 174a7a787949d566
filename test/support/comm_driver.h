// One rank's use of a backend table, as a host would.
#ifndef COMMSCHED_TEST_SUPPORT_COMM_DRIVER_H_
#define COMMSCHED_TEST_SUPPORT_COMM_DRIVER_H_

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "comm/backend_rank.h"
#include "comm/comm_aborter.h"
#include "comm/plugin/table_support.h"
#include "comm/world.h"
#include "commsched/plugin.h"

namespace commsched {

struct CommSpec {
  std::string id = "comm";
  std::string axis = "dp";
  std::vector<int32_t> ranks = {};  // Empty: the whole world.
  uint32_t max_in_flight = 4;
  uint32_t max_members = 16;
  bool asks_starts = false;
  // Members that fail fail those of the same scope.
  uint64_t scope = 0;
};

// Owned by one thread, except Abort(). The world must outlive it. Tells the
// other members of a failure, and learns of theirs, as sessions do.
class CommDriver {
 public:
  CommDriver() = default;
  ~CommDriver() { Destroy(); }
  CommDriver(const CommDriver&) = delete;
  CommDriver& operator=(const CommDriver&) = delete;

  absl::Status Create(World* world, CommSpec spec, int world_rank) {
    if (spec.ranks.empty()) {
      spec.ranks.resize(world->spec().size);
      std::iota(spec.ranks.begin(), spec.ranks.end(), 0);
    }
    world_ = world;
    table_ = world->backend();
    absl::StatusOr<BackendRank*> rank = world->Rank(world_rank);
    if (!rank.ok()) return rank.status();
    rank_ = *rank;
    scope_ = spec.scope;
    commsched_comm_desc_t desc{};
    desc.struct_size = sizeof(desc);
    desc.id = spec.id.c_str();
    desc.axis = spec.axis.c_str();
    desc.ranks = spec.ranks.data();
    desc.size = static_cast<int32_t>(spec.ranks.size());
    desc.rank = 0;
    while (desc.rank < desc.size && spec.ranks[desc.rank] != world_rank) {
      ++desc.rank;
    }
    desc.max_in_flight = spec.max_in_flight;
    desc.max_members = spec.max_members;
    desc.asks_starts = spec.asks_starts ? 1 : 0;
    const BackendRank::Turn turn(rank_);
    const commsched_status_t code = table_->comm_create(
        rank_->handle(), &desc, &comm_, message_, sizeof(message_));
    if (code != COMMSCHED_OK) {
      comm_ = nullptr;
      const absl::Status failed = Status(code);
      world_->Tell(world_rank, scope_, failed);  // Others wait for this rank.
      return failed;
    }
    if (is_stream_ordered()) {
      absl::StatusOr<std::unique_ptr<Stream>> stream =
          world->device(world_rank)->CreateSideStream();
      if (!stream.ok()) return stream.status();
      stream_ = *std::move(stream);
      for (uint32_t i = 0; i < spec.max_in_flight; ++i) {
        absl::StatusOr<std::unique_ptr<Event>> event =
            world->device(world_rank)->CreateEvent(1);
        if (!event.ok()) return event.status();
        launched_.push_back({*std::move(event), 0});
      }
    }
    aborter_ = std::make_shared<CommAborter>(rank_);
    aborter_->Add(comm_);
    world_->Watch(aborter_, world_rank, scope_);
    return absl::OkStatus();
  }

  // Waits until the communicator can be used, which Launch() does otherwise.
  absl::Status AwaitReady() {
    BackendRank::Turn turn(rank_);
    return AwaitReady(&turn);
  }

  // One look at that.
  absl::StatusOr<bool> LookReady() {
    const BackendRank::Turn turn(rank_);
    uint32_t ready = 1;
    if (!ready_ && table_->comm_ready != nullptr) {
      const absl::Status status = Checked(
          table_->comm_ready(comm_, &ready, message_, sizeof(message_)));
      if (!status.ok()) return status;
    }
    ready_ = ready == 1;
    return ready_;
  }

  // Of a backend that wants to be told.
  absl::Status Expect(const std::vector<commsched_launch_t>& launches) {
    BackendRank::Turn turn(rank_);
    if (absl::Status ready = AwaitReady(&turn); !ready.ok()) return ready;
    return Checked(
        ExpectLaunches(*table_, comm_, launches, message_, sizeof(message_)));
  }

  // `launch` and its members must stay until Wait() has returned.
  absl::Status Launch(const commsched_launch_t& launch, uint32_t request = 0) {
    BackendRank::Turn turn(rank_);
    if (absl::Status ready = AwaitReady(&turn); !ready.ok()) return ready;
    const absl::Status status = Checked(table_->launch(
        comm_, &launch, request,
        stream_ == nullptr ? commsched_stream_caller() : stream_->handle(),
        message_, sizeof(message_)));
    if (status.ok() && stream_ != nullptr) {
      Launched& launched = launched_[request];
      stream_->Record(launched.event.get(), ++launched.generation);
    } else if (stream_ != nullptr) {
      // A part of the launch may have been enqueued, and uses its memory until
      // the abort has ended it.
      stream_->Synchronize();
    }
    return status;
  }

  // One poll.
  absl::StatusOr<commsched_launch_result_t> Poll(uint32_t request = 0) {
    const BackendRank::Turn turn(rank_);
    return PollWithTurn(request);
  }

  // Polls until done, sleeping in between.
  absl::StatusOr<commsched_launch_result_t> Wait(uint32_t request = 0) {
    commsched_launch_result_t result{};
    if (is_inline()) {
      result.done = 1;
      return result;
    }
    BackendRank::Turn turn(rank_);
    while (true) {
      absl::StatusOr<commsched_launch_result_t> polled = PollWithTurn(request);
      if (!polled.ok() && stream_ != nullptr) {
        // What follows a launch that was aborted still runs.
        stream_->Synchronize();
      }
      if (!polled.ok() || polled->done != 0) return polled;
      turn.Sleep(stream_ != nullptr ? SystemClock::Get().NowNs() + kLookNs
                 : polled->wake_at_ns == 0 ? kNoDeadlineNs
                                           : polled->wake_at_ns);
    }
  }

  absl::Status LaunchAndWait(const commsched_launch_t& launch) {
    const absl::Status launched = Launch(launch);
    return launched.ok() ? Wait().status() : launched;
  }

  // As comm_status says.
  absl::Status status() {
    const BackendRank::Turn turn(rank_);
    return Checked(table_->comm_status(comm_, message_, sizeof(message_)));
  }

  // Group ranks that launch `request` waits for, as comm_missing says. Has them
  // asked anew once all have answered.
  std::vector<int32_t> Missing(uint32_t request = 0) {
    std::vector<int32_t> missing = Ranks(table_->comm_missing, request);
    if (Silent(request).empty()) Ask(request);
    return missing;
  }
  void Ask(uint32_t request = 0) {
    if (table_->comm_silent == nullptr) return;
    const BackendRank::Turn turn(rank_);
    table_->comm_missing(comm_, request, nullptr, 0);
  }
  // Those of them that have been asked and do not answer.
  std::vector<int32_t> Silent(uint32_t request = 0) {
    return Ranks(table_->comm_silent, request);
  }

  // What comm_starts says next.
  std::vector<commsched_launch_start_t> Starts() {
    const BackendRank::Turn turn(rank_);
    std::vector<commsched_launch_start_t> starts(64);
    starts.resize(
        table_->comm_starts == nullptr
            ? 0
            : table_->comm_starts(comm_, starts.data(),
                                  static_cast<uint32_t>(starts.size())));
    return starts;
  }

  void Abort(commsched_status_t code, const char* message) {
    Fail(absl::Status(static_cast<absl::StatusCode>(code), message));
  }

  void Destroy() {
    if (comm_ == nullptr) return;
    aborter_->Close();
    const BackendRank::Turn turn(rank_);
    char message[1024] = {};
    table_->comm_destroy(comm_, kNoDeadlineNs, message, sizeof(message));
    comm_ = nullptr;
    if (stream_ != nullptr) stream_->Synchronize();
  }

  bool is_stream_ordered() const {
    return (table_->capabilities & COMMSCHED_BACKEND_STREAM_ORDERED) != 0;
  }
  bool is_inline() const {
    return (table_->capabilities & COMMSCHED_BACKEND_INLINE) != 0;
  }

 private:
  absl::Status AwaitReady(BackendRank::Turn* turn) {
    while (!ready_ && table_->comm_ready != nullptr) {
      uint32_t ready = 0;
      absl::Status status = Checked(
          table_->comm_ready(comm_, &ready, message_, sizeof(message_)));
      if (!status.ok()) return status;
      ready_ = ready == 1;
      if (!ready_) turn->Sleep(SystemClock::Get().NowNs() + 1'000'000);
    }
    return absl::OkStatus();
  }

  std::vector<int32_t> Ranks(uint32_t (*list)(void*, uint32_t, int32_t*,
                                              uint32_t),
                             uint32_t request) {
    if (list == nullptr) return {};
    const BackendRank::Turn turn(rank_);
    std::vector<int32_t> ranks(16);
    const uint32_t count =
        list(comm_, request, ranks.data(), static_cast<uint32_t>(ranks.size()));
    ranks.resize(count);
    return ranks;
  }

  absl::StatusOr<commsched_launch_result_t> PollWithTurn(uint32_t request) {
    commsched_launch_result_t result{};
    if (stream_ != nullptr) {
      const Launched& launched = launched_[request];
      result.done = launched.event->IsComplete(launched.generation) ? 1 : 0;
      // Also if done: an abort ends launches, and says so before.
      const absl::Status failed =
          Checked(table_->comm_status(comm_, message_, sizeof(message_)));
      if (!failed.ok()) return failed;
      return result;
    }
    const absl::Status status = Checked(
        table_->poll(comm_, request, &result, message_, sizeof(message_)));
    if (!status.ok()) return status;
    return result;
  }

  absl::Status Status(commsched_status_t code) const {
    if (code == COMMSCHED_OK) return absl::OkStatus();
    return absl::Status(static_cast<absl::StatusCode>(code), message_);
  }
  absl::Status Checked(commsched_status_t code) {
    absl::Status status = Status(code);
    if (!status.ok()) Fail(status);
    return status;
  }
  void Fail(const absl::Status& why) {
    // As sessions do: who fails because of the abort has been told why.
    world_->Tell(rank_->world_rank(), scope_, why);
    aborter_->OnFailure(why);
  }

  // On a stream: what says that the launch of a request is done.
  struct Launched {
    std::unique_ptr<Event> event;
    uint64_t generation = 0;
  };
  static constexpr int64_t kLookNs = int64_t{100} * 1000;

  World* world_ = nullptr;
  const commsched_backend_t* table_ = nullptr;
  BackendRank* rank_ = nullptr;
  uint64_t scope_ = 0;
  void* comm_ = nullptr;
  bool ready_ = false;
  std::unique_ptr<Stream> stream_;  // of backends that are STREAM_ORDERED
  std::vector<Launched> launched_;  // by request
  std::shared_ptr<CommAborter> aborter_;
  char message_[1024] = {};
};

}  // namespace commsched

#endif  // COMMSCHED_TEST_SUPPORT_COMM_DRIVER_H_
