// Collectives that this rank leaves out of a step.
#ifndef COMMSCHED_SRC_EXEC_DROPS_H_
#define COMMSCHED_SRC_EXEC_DROPS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/status/statusor.h"
#include "commsched/plugin.h"
#include "device/device.h"
#include "exec/program.h"

namespace commsched {

// One rank never changes what is launched. A collective that it leaves out of a
// step goes all the same: zeros in, from scratch memory, and its result is
// dropped into scratch memory. Of a launch with several members, those that
// were not left out travel as always.
//
// There is scratch memory for one launch, the largest: the issuer holds the
// next one with a drop back until it is done, or has its stream wait for that.
// That cannot deadlock, since an issued launch never needs a later one.
//
// Drop: the host, before it makes the launch due. All else: the issuing thread.
// The host may be kRunAhead - 1 steps ahead of the issuing thread.
class Drops {
 public:
  static constexpr uint64_t kRunAhead = 4;

  // `droppable`: collectives of the program's plan; `group_rank` by GroupId.
  // Program and device outlive the drops.
  static absl::StatusOr<std::unique_ptr<Drops>> Create(
      const Program* program, const std::vector<OpId>& droppable,
      const std::vector<int>& group_rank, Device* device);
  ~Drops();
  Drops(const Drops&) = delete;
  Drops& operator=(const Drops&) = delete;

  // Leaves collective `op` out of the step of `generation`.
  void Drop(OpId op, uint64_t generation);

  bool Any(uint32_t launch, uint64_t generation) const {
    if (ABSL_PREDICT_TRUE(!dropped_.In(generation))) return false;
    const uint32_t entry = entry_of_launch_[launch];
    return entry != Plan::kNone && entries_[entry]->dropped.In(generation);
  }
  bool busy() const { return current_ != nullptr; }

  // What to launch instead of the program's call, staging done; Any() is true
  // and busy() is not. End() follows once the launch is done. Of memory of a
  // device, both enqueue on `stream`, and the launch goes out on it in between;
  // null: it is memory of the host.
  const commsched_launch_t* Begin(uint32_t launch, uint64_t generation,
                                  Stream* stream = nullptr);
  void End();

  void* scratch() const { return scratch_; }
  uint64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  // The latest generations in which something was left out.
  struct Generations {
    std::atomic<uint64_t> latest[kRunAhead] = {};
    // Ordered by the launch's becoming due: released there, acquired where it
    // is issued.
    void Add(uint64_t generation) {
      latest[generation % kRunAhead].store(generation,
                                           std::memory_order_relaxed);
    }
    bool In(uint64_t generation) const {
      return latest[generation % kRunAhead].load(std::memory_order_relaxed) ==
             generation;
    }
  };
  struct Member {
    Generations dropped;
    OpId op;
    char* input = nullptr;
    char* output = nullptr;
    uint64_t input_bytes = 0;
    uint64_t output_bytes = 0;
    bool is_dropped = false;  // in the current launch
  };
  struct Entry {
    Generations dropped;  // of any member
    uint32_t launch = 0;
    bool has_result = true;  // whether this rank gets one
    std::vector<std::unique_ptr<Member>> members;
    uint64_t scratch_bytes = 0;
  };

  Drops(const Program* program, Device* device)
      : program_(*program), device_(device) {}

  std::unique_ptr<Member> MakeMember(OpId op,
                                     const std::vector<int>& group_rank) const;
  void Zero(void* to, uint64_t bytes);
  void Copy(void* to, const void* from, uint64_t bytes);
  void Stage(const RowCopy& step);
  void BeginMembers(const LaunchProgram& launch);
  void BeginMerged(const LaunchProgram& launch);
  void BeginPacked(const LaunchProgram& launch);

  const Program& program_;
  Device* const device_;
  Generations dropped_;  // of any launch: most steps look no further
  std::vector<uint32_t> entry_of_launch_;
  std::vector<std::unique_ptr<Entry>> entries_;  // atomics do not move
  void* scratch_ = nullptr;
  uint64_t scratch_bytes_ = 0;

  // The launch between Begin and End.
  Entry* current_ = nullptr;
  Stream* stream_ = nullptr;  // Begin()'s
  commsched_launch_t call_ = {};
  std::vector<commsched_member_t> members_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_DROPS_H_
