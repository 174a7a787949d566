// A communicator of VirtualBackend.
#ifndef COMMSCHED_TEST_SUPPORT_VIRTUAL_COMM_H_
#define COMMSCHED_TEST_SUPPORT_VIRTUAL_COMM_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "commsched/plugin.h"
#include "test/support/virtual_backend.h"

namespace commsched::test {

// Sends travel in blocks of so many bytes.
inline constexpr uint64_t kPairBlockBytes = 64 * 1024;

inline uint64_t PairBytes(const commsched_launch_t& launch, uint64_t count) {
  return count * DTypeSize(static_cast<DType>(launch.dtype));
}

// One communicator. Everything in it is guarded by the backend's lock.
class VirtualComm {
 public:
  using Moving = VirtualBackend::Moving;

  struct Request {
    bool used = false;
    uint64_t number = 0;      // among all launches of the member
    uint64_t collective = 0;  // among its collectives
    bool is_collective = true;
    uint32_t num_moving = 0;  // transfers that are not complete
    int64_t started_ns = 0;
    commsched_launch_t launch{};
  };
  struct Waker {
    void (*wake)(void* user) = nullptr;
    void* user = nullptr;
  };
  // The handle of a member.
  struct Member {
    VirtualComm* comm = nullptr;
    int rank = 0;
    bool joined = false;
    bool left = false;
    uint32_t max_members = 0;
    Waker waker;
    std::vector<Request> requests;
    uint64_t num_posted = 0;
    uint64_t num_collectives = 0;
    uint64_t num_done = 0;
  };
  // A send or receive that has not met its other half.
  struct Waiting {
    int from, to;
    int poster;
    uint32_t request;
    commsched_launch_t launch;
    commsched_member_t member;
  };

  VirtualComm(VirtualBackend* backend, const commsched_comm_desc_t& desc)
      : backend_(backend),
        id_(desc.id),
        axis_(desc.axis),
        ranks_(desc.ranks, desc.ranks + desc.size),
        max_in_flight_(desc.max_in_flight),
        members_(ranks_.size()) {}

  absl::StatusOr<Member*> Join(const commsched_comm_desc_t& desc,
                               const Waker& waker);
  absl::Status Launch(Member* member, const commsched_launch_t* launch,
                      uint32_t request);
  absl::Status Poll(Member* member, uint32_t request,
                    commsched_launch_result_t* out_result);
  void Abort(absl::Status failure);
  void Leave(Member* member);
  uint32_t Missing(const Member& member, uint32_t request, int32_t* out_ranks,
                   uint32_t capacity) const;
  void TransferComplete(const Moving& moving);

  const absl::Status& failure() const { return failure_; }
  const std::string& id() const { return id_; }
  const std::string& axis() const { return axis_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int world_rank(int rank) const { return ranks_[rank]; }
  bool all_left() const { return num_left_ == size(); }
  VirtualBackend* backend() const { return backend_; }

 private:
  void Wake(int rank) {
    Member& member = members_[rank];
    if (member.joined && !member.left && member.waker.wake != nullptr) {
      member.waker.wake(member.waker.user);
    }
  }
  void WakeAll() {
    for (int rank = 0; rank < size(); ++rank) Wake(rank);
  }
  absl::Status Check(const Member& member, const commsched_launch_t* launch,
                     uint32_t request) const;
  absl::Status PostCollective(Member* member, uint32_t request);
  absl::Status PostPeers(Member* member, uint32_t request);
  absl::Status Meet(const Waiting& send, const Waiting& receive);
  absl::Status CheckAgreement(const Moving& moving) const;
  void MakeReady(Moving* moving);
  void AbortIfSomebodyLeft(const Member& member, const Request& request);
  template <typename Visit>
  void ForEachMissing(const Member& member, const Request& request,
                      Visit visit) const;

  VirtualBackend* const backend_;
  const std::string id_;
  const std::string axis_;
  const std::vector<int32_t> ranks_;
  const uint32_t max_in_flight_;
  std::vector<Member> members_;
  int num_left_ = 0;
  std::deque<Moving*> arriving_;  // collectives, oldest first
  uint64_t first_arriving_ = 0;   // its number
  std::deque<Waiting> waiting_;   // in order of posting
  absl::Status failure_;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_VIRTUAL_COMM_H_
