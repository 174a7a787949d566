// Addresses and counts that change from step to step.
#ifndef COMMSCHED_SRC_EXEC_LATE_BINDINGS_H_
#define COMMSCHED_SRC_EXEC_LATE_BINDINGS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "exec/bound_ranges.h"
#include "exec/program.h"

namespace commsched {

// What a late-bound buffer is in one step.
struct LateBinding {
  BufferId buffer;
  void* address = nullptr;
  uint64_t count = 0;  // elements
  // Of collectives with uneven parts: this step's, for all members; empty: as
  // declared.
  absl::Span<const uint64_t> counts;
};

// What the `after` of each writer, or each submission, brought, of the last
// kRunAhead steps, until the issuer has taken it. A launch has it copied into
// its members when it is issued; that is safe since a launch of the step before
// is complete by then: the writer, which this launch waits for, waited for it.
//
// Check and Store: the host, one thread per node, one for all that is
// submitted. Apply: the issuer, once the launch is due.
class LateBindings {
 public:
  static constexpr uint64_t kRunAhead = 8;

  explicit LateBindings(Program* program);  // outlives the bindings
  LateBindings(const LateBindings&) = delete;
  LateBindings& operator=(const LateBindings&) = delete;

  // Whether `given` binds each buffer that `node` writes late, once and
  // nothing else, to what every collective on it can use; as far as the other
  // side of each is known; in memory that overlaps no other buffer of the plan
  // and of `given`. kInvalidArgument, naming op, buffer, value and limit.
  absl::Status Check(uint32_t node, uint64_t generation,
                     absl::Span<const LateBinding> given) const;

  // Keeps what Check() has accepted. Step generation - kRunAhead is over.
  void Store(uint64_t generation, absl::Span<const LateBinding> given);

  // Both for collective `op`, which is submitted: where late-bound buffers are
  // bound at submit.
  absl::Status CheckSubmitted(OpId op, uint64_t generation,
                              absl::Span<const LateBinding> given) const;
  void StoreSubmitted(OpId op, uint64_t generation,
                      absl::Span<const LateBinding> given);
  // In place of both: `op` is left out of the step. It has the counts that were
  // declared, and no memory of the caller's.
  void StoreDropped(OpId op, uint64_t generation);

  // Fills in the late members of `launch` for the step of `generation`.
  absl::Status Apply(uint32_t launch, uint64_t generation);

 private:
  struct Slot {
    // Whose values these are. Released in Store(), acquired in Find().
    std::atomic<uint64_t> generation{0};
    void* address = nullptr;
    uint64_t count = 0;
    uint32_t num_counts = 0;
    uint64_t* counts = nullptr;  // room for LateBuffer::max_counts
  };
  // One side of a member in one step, as far as it is known.
  struct Side {
    bool late = false;
    bool known = false;
    void* address = nullptr;
    uint64_t count = 0;
    absl::Span<const uint64_t> counts;
  };
  // What both sides together make of a member.
  struct Parts {
    uint64_t count = 0;
    absl::Span<const uint64_t> counts;
  };

  Slot& SlotOf(uint32_t buffer, uint64_t generation) const {
    return slots_[buffer * kRunAhead + generation % kRunAhead];
  }
  // Who binds some late-bound buffers.
  struct Binder {
    OpId op;
    Span32 own;  // in Program::late_buffers
    bool submits = false;
    const char* call() const { return submits ? "submit" : "after"; }
  };
  Binder BinderOf(uint32_t node) const {
    return {.op = program_.nodes[node].op,
            .own = program_.nodes[node].late_writes};
  }
  Binder SubmitterOf(OpId op) const {
    return {.op = op, .own = program_.late_of_op[op.value()], .submits = true};
  }
  absl::Status CheckAll(const Binder& binder, uint64_t generation,
                        absl::Span<const LateBinding> given) const;
  void StoreAll(Span32 own, uint64_t generation,
                absl::Span<const LateBinding> given);
  absl::Status CheckBinding(const Binder& binder,
                            const LateBinding& given) const;
  // That it overlaps no buffer of the plan and none of `given` before it.
  absl::Status CheckMemory(const Binder& binder, const LateBinding& binding,
                           absl::Span<const LateBinding> given) const;
  absl::Status CheckUses(uint32_t buffer, uint64_t generation,
                         absl::Span<const LateBinding> given) const;
  uint32_t IndexOf(Span32 own, BufferId buffer) const;
  Side FindSide(uint32_t buffer, uint64_t bound_count, uint64_t generation,
                absl::Span<const LateBinding> given) const;
  absl::Status Combine(const LateMember& member, const Side& input,
                       const Side& output, Parts* parts) const;
  absl::Status CombineEven(const LateMember& member, const Side& input,
                           const Side& output, Parts* parts) const;
  absl::Status CombineUneven(const LateMember& member, const Side& input,
                             const Side& output, Parts* parts) const;
  absl::Status Refuse(const LateMember& member, absl::string_view why) const;

  Program& program_;
  const BoundRanges memory_;             // of all other buffers
  const std::unique_ptr<Slot[]> slots_;  // by buffer and generation
  std::vector<uint64_t> counts_;         // what Slot::counts point into
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_LATE_BINDINGS_H_
