// When the members of a communicator issued its launches, compared.
#ifndef COMMSCHED_PLUGINS_UCX_TIMES_ISSUE_TIMES_H_
#define COMMSCHED_PLUGINS_UCX_TIMES_ISSUE_TIMES_H_

#include <array>
#include <cstdint>
#include <vector>

#include "commsched/plugin.h"
#include "ucx/algorithms/layout.h"
#include "ucx/times/clock_offset.h"

namespace commsched::ucx {

// What two members next to each other in the tree tell each other.
struct TimesMessage {
  static constexpr uint32_t kMostLaunches = 32;

  // A ping is answered by a pong at once, that of kDown by the next kUp.
  enum Kind : uint32_t { kPing, kPong, kUp, kDown };
  uint32_t kind = kPing;
  int32_t rank = 0;  // Of the group; who says it.
  // kPing, kDown: when it was sent. kPong, kUp: which one is answered, if not
  // 0; when it had come, and when this was sent.
  int64_t ping_ns = 0;
  int64_t heard_ns = 0;
  int64_t sent_ns = 0;
  // kUp, kDown: of the launches of a batch, who was the last of those that are
  // meant, and when, by the clock of the child.
  uint64_t batch = 0;
  int64_t error_ns = 0;
  uint32_t count = 0;
  uint32_t reserved = 0;
  std::array<int64_t, kMostLaunches> issued_ns = {};
  std::array<int32_t, kMostLaunches> last_rank = {};
};

// Launches of a step, or kMostLaunches of them if there are more, are a batch,
// of which members tell each other when its successor begins. Times go up a
// tree, where the last of each launch is kept, and from its root down again: of
// each host one rank is a node of a tree of hosts, and those of a host are one
// below it. So a batch costs a member at most four messages down and one up,
// whatever its launches. Clocks are compared by these messages, too: who is
// nearer to the root turns times into its own and back.
//
// There is room for some batches. Where one is not complete when its room is
// needed, as when members run far apart, or clocks are not known yet, nobody
// learns of it.
//
// Thread-compatible. Allocates nothing once it is made.
class IssueTimes {
 public:
  // `layout` outlives it.
  IssueTimes(const Layout& layout, int rank);

  // This rank issues its next launch. All members have the same of them.
  void Issued(uint64_t step, uint64_t key, int64_t now_ns);
  void Hear(const TimesMessage& message, int64_t now_ns);
  // What is to be sent next, and to whom; -1: nothing. `now_ns`: when it is.
  int Next(int64_t now_ns, TimesMessage* out_message);

  // Whom Next() names.
  std::vector<int> Neighbors() const;
  // Whether there is something to be taken.
  bool HasStarts() const { return num_known_ != 0; }
  // Up to `capacity` launches that it has become known of, by the clock of this
  // rank, each once.
  uint32_t Take(commsched_launch_start_t* out_starts, uint32_t capacity);

 private:
  static constexpr uint32_t kMost = TimesMessage::kMostLaunches;
  static constexpr uint64_t kNumBatches = 16;
  // When a communicator is new.
  static constexpr int kNumPings = 8;

  struct Launch {
    uint64_t step = 0;
    uint64_t key = 0;
    int64_t issued_ns = 0;  // By whom it was last, of those who have told.
    int32_t last_rank = -1;
  };
  struct Batch {
    enum State : uint32_t { kFree, kGathers, kUpDue, kIsUp, kKnown };
    State state = kFree;
    uint64_t number = 0;
    bool is_closed = false;  // This rank has issued all of it.
    uint32_t children = 0;   // Bit i: children_[i] has told,
    uint32_t downs_due = 0;  // or is to be told.
    uint32_t count = 0;      // Launches of this rank.
    uint32_t num_taken = 0;
    int64_t error_ns = 0;
    std::array<Launch, kMost> launches;
  };
  struct Child {
    int rank = 0;
    ClockOffset clock;  // The child's.
    int num_pings_left = 0;
    bool is_ping_due = false;
  };

  void AddChild(const Layout& layout, int rank);
  // That of this number; null if its room is taken by a later one.
  Batch* Open(uint64_t number);
  static void Keep(Batch* batch, size_t index, int64_t issued_ns, int32_t rank);
  void Close();
  void GoOnWith(Batch* batch);
  void Finish(Batch* batch);
  void HearUp(size_t child, const TimesMessage& message);
  void HearDown(const TimesMessage& message);
  void WriteTimes(const Batch& batch, TimesMessage* out) const;
  bool NextUp(TimesMessage* out);
  bool NextDown(size_t child, int64_t now_ns, TimesMessage* out);

  const int rank_;
  int parent_ = -1;
  std::vector<Child> children_;

  std::vector<Batch> batches_;  // By number modulo kNumBatches.
  // The batch that this rank's launches go to, and what it has of them.
  uint64_t filling_ = 0;
  uint64_t filled_step_ = 0;
  uint32_t num_filled_ = 0;
  uint64_t num_known_ = 0;  // Launches that can be taken.
  // The parent's ping that is to be answered; 0: none.
  int64_t ping_ns_ = 0;
  int64_t ping_heard_ns_ = 0;
  bool pong_due_ = false;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_TIMES_ISSUE_TIMES_H_
