// What the control server does with what ranks say.
#ifndef COMMSCHED_SRC_CONTROL_HUB_H_
#define COMMSCHED_SRC_CONTROL_HUB_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "base/mutex.h"
#include "control/frame.h"
#include "control/meeting_table.h"
#include "control/messages.h"
#include "control/order_table.h"
#include "control/roster.h"

namespace commsched {

// A frame that may go to many.
using SharedFrame = std::shared_ptr<const std::string>;

template <typename Message>
SharedFrame FrameOf(const Message& message) {
  return std::make_shared<const std::string>(Encode(message));
}

// The ranks of a job, their meetings, and what they put for each other. Has no
// sockets and no clock: it is told what was received and what time it is, and
// says what to send. Thread-compatible.
class Hub {
 public:
  using Send = std::function<void(int rank, SharedFrame frame)>;

  // What a key may have, and how many bytes all values together.
  static constexpr size_t kMaxKeyBytes = 4096;
  static constexpr size_t kMaxStoreBytes = size_t{256} << 20;
  // Failures of which the ranks can be told.
  static constexpr size_t kMaxFailures = 4096;

  // `send` is called for ranks that have joined and are not lost, from the
  // calls below.
  Hub(int size, Send send);

  // Where Get() finds the roster (control/roster.h), once all have joined.
  static constexpr char kRosterKey[] = "roster";

  // `rank`, which is at `place`, joins. It waits for `join_timeout_ns` for
  // ranks that have not joined. kInvalidArgument for a rank outside of the
  // world or more than kMaxLinksBytes of links, kAlreadyExists for one that has
  // joined before, also if it left or was lost since: a job's ranks join once;
  // kAborted for one that is lost without having joined.
  absl::Status Join(int rank, RankPlace place = {}, int64_t now_ns = 0,
                    int64_t join_timeout_ns = kNoDeadlineNs);
  // Once it can be sent to: tells it who was lost, and what failed, before.
  void Greet(int rank);

  // A frame from a rank that has joined, and is not lost. Not OK: `rank` broke
  // the rules of the protocol, and the caller ends its connection and calls
  // Lose.
  absl::Status Handle(int rank, FrameKind kind, absl::string_view payload,
                      int64_t now_ns);

  // A rank is gone, or will not join; `why` says what happened to it. The
  // others are told, and meetings with it fail. Nothing if it is gone already.
  void Lose(int rank, absl::string_view why);

  // Those that have not joined, though a rank has waited as long as it wanted
  // to: the first of them, and a sentence about all. None: nobody is late.
  absl::optional<LostMessage> Late(int64_t now_ns) const;
  // All that have not joined are lost, as Late() says.
  void GiveUpLate(const LostMessage& late);

  // Fails what has waited too long.
  void Tick(int64_t now_ns);

  bool IsPresent(int rank) const {
    return ranks_[static_cast<size_t>(rank)] == State::kPresent;
  }
  // It has not joined, and may still.
  bool IsAwaited(int rank) const {
    return ranks_[static_cast<size_t>(rank)] == State::kAbsent;
  }
  // Ranks that have joined and are not gone.
  int num_present() const { return num_present_; }
  // Ranks that have ever joined, or are lost without.
  int num_joined() const { return num_joined_; }

 private:
  enum class State { kAbsent, kPresent, kLeft, kLost };
  enum class Wait { kMeeting, kGet };

  // Who waits for `key` until `deadline_ns`.
  struct Waiter {
    int64_t deadline_ns = 0;
    int rank = 0;
    Wait wait = Wait::kMeeting;
    std::string key;
    auto operator<=>(const Waiter&) const = default;
  };
  struct Asked {
    uint64_t number = 0;  // Of the request.
    int64_t since_ns = 0;
    int64_t deadline_ns = 0;
    std::vector<int32_t> members = {};  // GetMessage::members
  };
  using Place = std::pair<int, std::string>;  // Rank and key.

  absl::Status Meet(int rank, MeetMessage message, int64_t now_ns);
  absl::Status Decline(int rank, const DeclineMessage& message);
  absl::Status Put(int rank, PutMessage message);
  absl::Status Get(int rank, GetMessage message, int64_t now_ns);
  absl::Status Leave(int rank);
  absl::Status Fail(int rank, FailedMessage message);
  absl::Status CompareOrder(int rank, const OrderMessage& message);
  void PutRoster();
  void AnswerGetters(const std::string& key, const std::string& value);
  // To all others, now and later.
  void Announce(int rank, SharedFrame frame);
  void Depart(int rank, State state, const absl::Status& why);
  // Answers all who wait for a meeting that is decided.
  void Settle(const std::string& key);
  void Answer(int rank, uint64_t number, const absl::Status& status,
              std::vector<std::string> values);
  void FailGetters(int rank, State state, const absl::Status& why);
  std::vector<int> MembersOf(const std::vector<int32_t>& members) const;

  const Send send_;
  std::vector<State> ranks_;
  // By rank: why it is lost, if it has never joined.
  absl::flat_hash_map<int, std::string> given_up_;
  // Of who waits the shortest.
  int64_t join_deadline_ns_ = kNoDeadlineNs;
  int64_t join_timeout_ns_ = kNoDeadlineNs;
  Roster roster_;
  int num_joined_ = 0;
  int num_present_ = 0;
  std::vector<SharedFrame> news_;  // As they were told.
  absl::flat_hash_set<uint64_t> failed_scopes_;
  MeetingTable meetings_;
  OrderTable orders_;
  absl::flat_hash_map<std::string, std::string> store_;
  size_t store_bytes_ = 0;
  absl::flat_hash_map<Place, Asked> in_meeting_;
  absl::flat_hash_map<std::string, std::vector<std::pair<int, Asked>>> getters_;
  absl::btree_set<Waiter> waiters_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CONTROL_HUB_H_
