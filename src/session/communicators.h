// The communicators of a session.
#ifndef COMMSCHED_SRC_SESSION_COMMUNICATORS_H_
#define COMMSCHED_SRC_SESSION_COMMUNICATORS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "comm/backend_rank.h"
#include "comm/comm_aborter.h"
#include "comm/comm_keeper.h"
#include "comm/device_lanes.h"
#include "graph/collective_shape.h"
#include "plan/plan.h"
#include "session/session_spec.h"

namespace commsched {

// One per group; and where launches are enqueued on streams, one per group and
// lane, since a device does all launches of a communicator in the order in
// which the host makes them, whatever their streams: sends and receives, which
// have a lane of their own, would come behind collectives that are not ready.
//
// On the host it owns them and destroys them with itself; then nothing may be
// in flight, unless they were aborted. When the world loses a rank that the
// session is of, or another rank's communicators of the same session fail, all
// are aborted.
//
// On streams they are the world's (comm/comm_keeper.h): those of a plan are
// lent by it, and given back for the session that asks for such ones next;
// others end with this. A failure is that of all communicators of the rank
// there.
//
// Thread-compatible, but for Abort().
class Communicators {
 public:
  explicit Communicators(std::shared_ptr<World> world);
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  // How long all of them may take to connect once all ranks have come.
  static constexpr int64_t kConnectNs = int64_t{60} * 1000 * 1000 * 1000;

  // What launches of the plan go out on, by its lanes; without a plan, by
  // number of the communicator, the last of them for all that are left. It
  // outlives this. Before Create().
  void LaunchOn(absl::Span<const std::shared_ptr<DeviceLane>> lanes) {
    lanes_ = lanes;
  }

  // All ranks of the world call Create() for a plan. Before that.
  void MeetAll() { meets_ = true; }
  // Instead of Create(), because of `why`, by a rank that the others may meet
  // there. Never blocks.
  static void Decline(const SessionSpec& spec, const absl::Status& why);

  // Creates those of `spec`, each for `requests` launches in flight, and blocks
  // until all can be used: kDeadlineExceeded, naming a group that cannot and
  // what it waits for, after kConnectNs, or spec.JoinTimeoutNs() if that is
  // less. If a rank fails here all others do at once, with what it has failed
  // with; what each of them has waited for itself it logs, as who waits for
  // half of that time does. `reads_starts`: comm_starts will be called, if
  // there is one.
  absl::Status Create(const SessionSpec& spec, uint32_t requests,
                      bool reads_starts);

  // Tells the backend of the launches to come, each of which gets its slot:
  // `launches[i]` goes to communicator `numbers[i]`. The communicators can be
  // used after AwaitConnected().
  absl::Status Expect(absl::Span<commsched_launch_t* const> launches,
                      absl::Span<const uint32_t> numbers);
  // Blocks until all can be used again, as Create() does.
  absl::Status AwaitConnected(const SessionSpec& spec);

  // How the backend would do `launch` on communicator `number`
  // (commsched_backend_t::comm_estimate). kUnimplemented: it does not tell. Any
  // thread, after Create().
  absl::StatusOr<commsched_launch_estimate_t> Estimate(
      const commsched_launch_t& launch, uint32_t number) const;

  // Makes memory known to the communicators, if the backend asks for that; adds
  // the number of registrations to `*counter`.
  absl::Status Register(void* address, uint64_t bytes, uint64_t* counter);

  // Fails all communicators here, and those of the session on all other ranks,
  // with `why`, which names this rank. Any thread.
  void Abort(const absl::Status& why);

  // What was captured into graphs, which may outlive the session: nobody gets
  // these any more.
  void KeepNoLonger() { is_captured_ = true; }

  // Destroys them, or gives them back. Not OK: some memory of launches may be
  // touched as long as the process lives. Blocks up to `timeout_ns`, then and
  // only then.
  absl::Status Close(int64_t timeout_ns);

  // Null until Create().
  BackendRank* rank() const { return rank_; }
  // By number: first one for each group, by GroupId, and then those for sends
  // and receives of groups that have collectives as well.
  const std::vector<void*>& comms() const { return comms_; }
  // The number of the one that `launch` goes to.
  uint32_t NumberOf(const Launch& launch) const {
    const uint32_t group = launch.group.value();
    return IsPointToPoint(launch.kind) ? number_of_transfers_[group] : group;
  }

 private:
  void NumberAll(const SessionSpec& spec);
  // By number: what each is called in this session, with the number.
  using Ids = std::vector<std::pair<std::string, size_t>>;
  Ids IdsOf(const SessionSpec& spec) const;
  CommWish WishOf(const SessionSpec& spec, size_t number) const;
  int LaneOf(const SessionSpec& spec, size_t number) const;
  absl::Status Borrow(const SessionSpec& spec, const Ids& ids);
  absl::StatusOr<bool> BorrowKept(const SessionSpec& spec, const Ids& ids);
  void BorrowOwn(const SessionSpec& spec, const Ids& ids);
  absl::Status CreateAll(const SessionSpec& spec, uint32_t requests);
  absl::Status CreateOne(const SessionSpec& spec, size_t number,
                         const std::string& id, uint32_t requests);
  uint32_t NumLanesOf(const SessionSpec& spec, size_t number) const;
  absl::Status AwaitReady(const SessionSpec& spec);
  // `status`, of which the other ranks are told if it is a failure of this one.
  absl::Status Told(const SessionSpec& spec, const absl::Status& status);
  struct Missing;
  absl::Status LookReady(const SessionSpec& spec, std::vector<bool>* is_ready,
                         Missing* missing);

  const std::shared_ptr<World> world_;
  const commsched_backend_t* const backend_;
  BackendRank* rank_ = nullptr;
  absl::Span<const std::shared_ptr<DeviceLane>> lanes_;
  uint64_t scope_ = 0;
  bool asks_starts_ = false;
  std::vector<size_t> group_of_;               // by number
  std::vector<uint32_t> number_of_transfers_;  // by GroupId
  std::vector<void*> comms_;                   // null: not created
  std::vector<size_t> in_order_;  // numbers, in one order on all ranks
  std::vector<void*> registered_;
  std::shared_ptr<CommAborter> aborter_;

  // On streams.
  bool meets_ = false;
  bool is_captured_ = false;
  CommKeeper* keeper_ = nullptr;
  std::shared_ptr<CommGeneration> generation_;  // null: not on streams
  std::vector<KeptComm*> borrowed_;             // by number
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_COMMUNICATORS_H_
