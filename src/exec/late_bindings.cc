#include "exec/late_bindings.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

// A count far beyond any memory, rather than one that wraps.
constexpr uint64_t kTooMany = std::numeric_limits<uint64_t>::max();

uint64_t SumOf(absl::Span<const uint64_t> counts, size_t begin, size_t end,
               size_t stride) {
  uint64_t sum = 0;
  for (size_t i = begin; i < end; i += stride) {
    if (counts[i] > kTooMany - sum) return kTooMany;
    sum += counts[i];
  }
  return sum;
}

// Elements of both sides of a collective with uneven parts.
struct Needs {
  uint64_t input = 0;
  uint64_t output = 0;
};

Needs NeedsOf(CollectiveKind kind, absl::Span<const uint64_t> counts, int size,
              int rank) {
  const size_t n = static_cast<size_t>(size);
  const size_t own = static_cast<size_t>(rank);
  if (kind == CollectiveKind::kAllToAll) {
    return {SumOf(counts, own * n, own * n + n, 1),
            SumOf(counts, own, n * n, n)};
  }
  const uint64_t all = SumOf(counts, 0, n, 1);
  if (kind == CollectiveKind::kReduceScatter) return {all, counts[own]};
  return {counts[own], all};
}

}  // namespace

LateBindings::LateBindings(Program* program)
    : program_(*program),
      memory_(*program->plan->graph, program->buffer_address),
      slots_(
          std::make_unique<Slot[]>(program->late_buffers.size() * kRunAhead)) {
  size_t num_counts = 0;
  for (const LateBuffer& buffer : program_.late_buffers) {
    num_counts += buffer.max_counts * kRunAhead;
  }
  counts_.resize(num_counts);
  uint64_t* at = counts_.data();
  for (uint32_t b = 0; b < program_.late_buffers.size(); ++b) {
    for (uint64_t g = 0; g < kRunAhead; ++g) {
      SlotOf(b, g).counts = at;
      at += program_.late_buffers[b].max_counts;
    }
  }
}

uint32_t LateBindings::IndexOf(Span32 own, BufferId buffer) const {
  for (uint32_t b = own.begin; b < own.begin + own.count; ++b) {
    if (program_.late_buffers[b].buffer == buffer) return b;
  }
  return Plan::kNone;
}

absl::Status LateBindings::Check(uint32_t node, uint64_t generation,
                                 absl::Span<const LateBinding> given) const {
  return CheckAll(BinderOf(node), generation, given);
}

absl::Status LateBindings::CheckSubmitted(
    OpId op, uint64_t generation, absl::Span<const LateBinding> given) const {
  return CheckAll(SubmitterOf(op), generation, given);
}

absl::Status LateBindings::CheckAll(const Binder& binder, uint64_t generation,
                                    absl::Span<const LateBinding> given) const {
  const Graph& graph = *program_.plan->graph;
  for (const LateBinding& binding : given) {
    RETURN_IF_ERROR(CheckBinding(binder, binding));
    RETURN_IF_ERROR(CheckMemory(binder, binding, given));
  }
  for (uint32_t i = 0; i < binder.own.count; ++i) {
    const uint32_t b = binder.own.begin + i;
    const BufferId buffer = program_.late_buffers[b].buffer;
    const auto times =
        std::count_if(given.begin(), given.end(),
                      [&](const LateBinding& g) { return g.buffer == buffer; });
    if (times != 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          binder.call(), ": op '", graph.op(binder.op).name, "' binds buffer '",
          graph.buffer(buffer).name, "' ", times,
          " times; it is late-bound and must be bound once"));
    }
    RETURN_IF_ERROR(CheckUses(b, generation, given));
  }
  return absl::OkStatus();
}

absl::Status LateBindings::CheckBinding(const Binder& binder,
                                        const LateBinding& given) const {
  const Graph& graph = *program_.plan->graph;
  const uint32_t index = IndexOf(binder.own, given.buffer);
  // Only what is refused gets a text: the others must not allocate (I6).
  const auto refuse = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(binder.call(), ": op '",
                                                   graph.op(binder.op).name,
                                                   "' binds buffer ", what...));
  };
  if (index == Plan::kNone) {
    return refuse(given.buffer.value(), ", which it does not ",
                  binder.submits ? "use" : "write", " late-bound");
  }
  const Buffer& buffer = graph.buffer(given.buffer);
  if (given.count > buffer.count) {
    return refuse("'", buffer.name, "' to ", given.count,
                  " elements; its most is ", buffer.count);
  }
  if (given.address == nullptr && given.count != 0) {
    return refuse("'", buffer.name, "' of ", given.count, " elements to NULL");
  }
  const uint64_t size = DTypeSize(buffer.dtype);
  if (reinterpret_cast<uintptr_t>(given.address) % size != 0) {
    return refuse("'", buffer.name, "' to an address that is not aligned to ",
                  size);
  }
  const uint32_t max_counts = program_.late_buffers[index].max_counts;
  if (given.counts.size() > max_counts) {
    return refuse("'", buffer.name, "' with ", given.counts.size(),
                  " counts; its collectives take ", max_counts);
  }
  return absl::OkStatus();
}

// Late-bound buffers of other ops may be where this one is: one's memory may be
// free again, which only the caller knows, before another's is asked for.
absl::Status LateBindings::CheckMemory(
    const Binder& binder, const LateBinding& binding,
    absl::Span<const LateBinding> given) const {
  const Graph& graph = *program_.plan->graph;
  const Buffer& buffer = graph.buffer(binding.buffer);
  const uint64_t bytes = binding.count * DTypeSize(buffer.dtype);
  if (bytes == 0) return absl::OkStatus();
  const auto refuse = [&](const Buffer& other, const void* address,
                          uint64_t other_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(binder.call(), ": late-bound buffer '", buffer.name,
                     "' overlaps buffer '", other.name, "' in memory: ",
                     SharedBytes(buffer.name, binding.address, bytes,
                                 other.name, address, other_bytes),
                     "; nothing would order accesses to the two"));
  };
  const BufferId met = memory_.Meets(binding.address, bytes);
  if (met.valid()) {
    const Buffer& other = graph.buffer(met);
    return refuse(other, program_.buffer_address[met.value()], other.bytes());
  }
  const uintptr_t begin = reinterpret_cast<uintptr_t>(binding.address);
  for (const LateBinding* before = given.data(); before != &binding; ++before) {
    const Buffer& other = graph.buffer(before->buffer);
    const uintptr_t at = reinterpret_cast<uintptr_t>(before->address);
    const uint64_t other_bytes = before->count * DTypeSize(other.dtype);
    if (before->buffer == binding.buffer) continue;  // refused as bound twice
    if (other_bytes == 0) continue;
    if (at < begin + bytes && begin < at + other_bytes) {
      return refuse(other, before->address, other_bytes);
    }
  }
  return absl::OkStatus();
}

absl::Status LateBindings::CheckUses(
    uint32_t index, uint64_t generation,
    absl::Span<const LateBinding> given) const {
  const Span32 uses = program_.late_buffers[index].uses;
  for (uint32_t i = 0; i < uses.count; ++i) {
    const LateMember& member =
        program_.late_members[program_.late_uses[uses.begin + i]];
    Parts parts;
    RETURN_IF_ERROR(Combine(
        member, FindSide(member.input, member.input_count, generation, given),
        FindSide(member.output, member.output_count, generation, given),
        &parts));
  }
  return absl::OkStatus();
}

// What was given now, or kept before.
LateBindings::Side LateBindings::FindSide(
    uint32_t index, uint64_t bound_count, uint64_t generation,
    absl::Span<const LateBinding> given) const {
  Side side;
  if (index == Plan::kNone) {
    side.known = true;
    side.count = bound_count;
    return side;
  }
  side.late = true;
  const BufferId buffer = program_.late_buffers[index].buffer;
  for (const LateBinding& binding : given) {
    if (binding.buffer != buffer) continue;
    side.known = true;
    side.address = binding.address;
    side.count = binding.count;
    side.counts = binding.counts;
    return side;
  }
  const Slot& slot = SlotOf(index, generation);
  if (slot.generation.load(std::memory_order_acquire) != generation) {
    return side;
  }
  side.known = true;
  side.address = slot.address;
  side.count = slot.count;
  side.counts = {slot.counts, slot.num_counts};
  return side;
}

absl::Status LateBindings::Refuse(const LateMember& member,
                                  absl::string_view why) const {
  const Op& op = program_.plan->graph->op(member.op);
  return absl::InvalidArgumentError(
      absl::StrCat("late binding: ", CollectiveKindName(op.collective.kind),
                   " '", op.name, "': ", why));
}

absl::Status LateBindings::Combine(const LateMember& member, const Side& input,
                                   const Side& output, Parts* parts) const {
  return member.num_counts == 0 ? CombineEven(member, input, output, parts)
                                : CombineUneven(member, input, output, parts);
}

// A late side says how large a part is; a bound one must be large enough.
absl::Status LateBindings::CombineEven(const LateMember& member,
                                       const Side& input, const Side& output,
                                       Parts* parts) const {
  const CollectiveKind kind =
      program_.plan->graph->op(member.op).collective.kind;
  const uint64_t n = static_cast<uint64_t>(member.group_size);
  const uint64_t input_parts = SplitsInput(kind) ? n : 1;
  const uint64_t output_parts = SplitsOutput(kind) ? n : 1;
  const bool has_input = HasInput(kind);
  const bool has_output = HasOutput(kind);
  const bool input_says = has_input && input.late && input.known;
  const bool output_says = has_output && output.late && output.known;
  if (!input_says && !output_says) return absl::OkStatus();
  if (input_says && input.count % input_parts != 0) {
    return Refuse(member, absl::StrCat("an input of ", input.count,
                                       " elements has no ", n, " equal parts"));
  }
  if (output_says && output.count % output_parts != 0) {
    return Refuse(member, absl::StrCat("an output of ", output.count,
                                       " elements has no ", n, " equal parts"));
  }
  parts->count =
      input_says ? input.count / input_parts : output.count / output_parts;
  const uint64_t needs_output = parts->count * output_parts;
  const uint64_t needs_input = parts->count * input_parts;
  const bool output_fits = !has_output || !output.known ||
                           (output.late ? output.count == needs_output
                                        : output.count >= needs_output);
  if (!output_fits) {
    return Refuse(member,
                  absl::StrCat("an input of ", input.count,
                               " elements needs an output of ", needs_output,
                               ", not of ", output.count));
  }
  if (has_input && input.known && !input.late && input.count < needs_input) {
    return Refuse(member, absl::StrCat("an output of ", output.count,
                                       " elements needs an input of ",
                                       needs_input, ", not of ", input.count));
  }
  return absl::OkStatus();
}

absl::Status LateBindings::CombineUneven(const LateMember& member,
                                         const Side& input, const Side& output,
                                         Parts* parts) const {
  const CollectiveSpec& spec = program_.plan->graph->op(member.op).collective;
  for (const Side* side : {&input, &output}) {
    if (side->counts.empty()) continue;
    if (side->counts.size() != member.num_counts) {
      return Refuse(member, absl::StrCat(side->counts.size(),
                                         " counts were given; it has ",
                                         member.num_counts));
    }
    if (!parts->counts.empty() && parts->counts != side->counts) {
      return Refuse(member,
                    "its input and its output were given different counts");
    }
    parts->counts = side->counts;
  }
  // The other side may still bring some.
  if (parts->counts.empty() && !(input.known && output.known)) {
    return absl::OkStatus();
  }
  if (parts->counts.empty()) parts->counts = spec.counts;
  const Needs needs =
      NeedsOf(spec.kind, parts->counts, member.group_size, member.group_rank);
  if (input.known && input.count < needs.input) {
    return Refuse(member,
                  absl::StrCat("its counts need an input of ", needs.input,
                               " elements, not of ", input.count));
  }
  if (output.known && output.count < needs.output) {
    return Refuse(member,
                  absl::StrCat("its counts need an output of ", needs.output,
                               " elements, not of ", output.count));
  }
  return absl::OkStatus();
}

// Each buffer has one writer.
void LateBindings::Store(uint64_t generation,
                         absl::Span<const LateBinding> given) {
  const auto all = static_cast<uint32_t>(program_.late_buffers.size());
  StoreAll({0, all}, generation, given);
}

void LateBindings::StoreSubmitted(OpId op, uint64_t generation,
                                  absl::Span<const LateBinding> given) {
  StoreAll(program_.late_of_op[op.value()], generation, given);
}

void LateBindings::StoreDropped(OpId op, uint64_t generation) {
  if (program_.late_of_op.empty()) return;
  const Span32 own = program_.late_of_op[op.value()];
  for (uint32_t b = own.begin; b < own.begin + own.count; ++b) {
    Slot& slot = SlotOf(b, generation);
    slot.address = nullptr;
    slot.count =
        program_.plan->graph->buffer(program_.late_buffers[b].buffer).count;
    slot.num_counts = 0;
    slot.generation.store(generation, std::memory_order_release);
  }
}

void LateBindings::StoreAll(Span32 own, uint64_t generation,
                            absl::Span<const LateBinding> given) {
  for (const LateBinding& binding : given) {
    Slot& slot = SlotOf(IndexOf(own, binding.buffer), generation);
    slot.address = binding.address;
    slot.count = binding.count;
    slot.num_counts = static_cast<uint32_t>(binding.counts.size());
    std::copy(binding.counts.begin(), binding.counts.end(), slot.counts);
    slot.generation.store(generation, std::memory_order_release);
  }
}

// Combines again: two threads may each have bound one side without seeing the
// other's.
absl::Status LateBindings::Apply(uint32_t index, uint64_t generation) {
  const Span32 late = program_.launches[index].late;
  for (uint32_t i = 0; i < late.count; ++i) {
    const LateMember& from = program_.late_members[late.begin + i];
    const Side input = FindSide(from.input, from.input_count, generation, {});
    const Side output =
        FindSide(from.output, from.output_count, generation, {});
    Parts parts;
    RETURN_IF_ERROR(Combine(from, input, output, &parts));
    commsched_member_t& to = program_.members[from.member];
    if (input.late) to.input = input.address;
    if (output.late) to.output = output.address;
    if (from.num_counts == 0) {
      to.count = parts.count;
      continue;
    }
    uint64_t* counts = program_.late_counts.data() + from.counts_at;
    std::copy(parts.counts.begin(), parts.counts.end(), counts);
    to.counts = counts;
  }
  return absl::OkStatus();
}

}  // namespace commsched
