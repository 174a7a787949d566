#include "operation.h"

#include <algorithm>
#include <cstring>

namespace commsched::ucx {
namespace {

// Up to here an all-reduce is one exchange of everything, and a broadcast comes
// from the root alone: latency counts.
constexpr uint64_t kSmallBytes = 16 << 10;
// Chunks that may be on their way at once: one that is reduced, others that
// come meanwhile.
constexpr uint64_t kRingChunks = 4;

// Where the elements of a part begin, and how many there are.
struct Range {
  uint64_t begin = 0;
  uint64_t count = 0;
};

// Part `part` of `parts` nearly equal ones.
Range EqualPart(uint64_t count, int parts, int part) {
  const auto n = static_cast<uint64_t>(parts);
  const auto p = static_cast<uint64_t>(part);
  const uint64_t each = count / n;
  const uint64_t more = count % n;
  return {p * each + std::min(p, more), each + (p < more ? 1 : 0)};
}

// Part `part` of a side whose parts are `member.count` elements, `stride` (0:
// none between them) apart, or as long as the entries first, first + step ...
// of `counts` say.
Range PartOf(const commsched_member_t& member, uint64_t stride, uint64_t first,
             uint64_t step, int part) {
  const auto p = static_cast<uint64_t>(part);
  if (member.counts == nullptr) {
    return {p * (stride != 0 ? stride : member.count), member.count};
  }
  Range range;
  for (uint64_t i = 0; i < p; ++i) {
    range.begin += member.counts[first + i * step];
  }
  range.count = member.counts[first + p * step];
  return range;
}

class Builder {
 public:
  Builder(const commsched_launch_t& launch, int rank, int size,
          uint64_t chunk_bytes, bool measures, Operation* operation)
      : launch_(launch),
        rank_(rank),
        size_(size),
        element_(ElementBytes(launch.dtype)),
        chunk_(std::max<uint64_t>(1, chunk_bytes / element_)),
        op_(*operation),
        measures_(measures) {}

  // The ring of inputs, and what has no place of its own.
  uint64_t ScratchBytes() const {
    uint64_t bytes = RingBytes();
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      if (ReducesToScratch(launch_.members[m])) {
        bytes += Reduced(launch_.members[m]) * element_;
      }
    }
    return bytes;
  }

  void Build() {
    if (launch_.kind == COMMSCHED_BARRIER) return Barrier();
    ring_bytes_ = RingBytes();
    kept_ = ring_bytes_;
    // Everything of the first phase comes before everything of the second, on
    // both sides of each pair.
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      First(launch_.members[m]);
    }
    phase_ = 1;
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      Second(launch_.members[m]);
    }
    op_.num_posted = static_cast<uint32_t>(op_.messages.size());
    auto late = op_.late.begin();
    for (uint32_t number = 0; number < op_.steps.size(); ++number) {
      Step* const step = &op_.steps[number];
      step->first_post = static_cast<uint32_t>(op_.messages.size());
      phase_ = 0;
      for (; late != op_.late.end() && late->after == number; ++late) {
        ReceiveInputs(late->step, late->to);
      }
      phase_ = 1;
      SendOn(*step);
      step->num_posts =
          static_cast<uint32_t>(op_.messages.size()) - step->first_post;
    }
  }

  // Of the members, each is one message.
  void BuildPeers() {
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      const commsched_member_t& member = launch_.members[m];
      if (member.direction == COMMSCHED_SEND) {
        Send(member.peer, member.input, member.count);
      } else {
        Receive(member.peer, member.output, member.count);
      }
    }
    op_.num_posted = static_cast<uint32_t>(op_.messages.size());
  }

 private:
  bool IsSmall(const commsched_member_t& member) const {
    return member.count * element_ <= kSmallBytes;
  }

  // Elements that this rank reduces of a member.
  uint64_t Reduced(const commsched_member_t& member) const {
    switch (launch_.kind) {
      case COMMSCHED_REDUCE_SCATTER:
        return PartOf(member, member.input_stride, 0, 1, rank_).count;
      case COMMSCHED_ALL_REDUCE:
        if (IsSmall(member)) return member.count;
        return EqualPart(member.count, size_, rank_).count;
      case COMMSCHED_REDUCE:
        if (IsSmall(member)) return rank_ == launch_.root ? member.count : 0;
        return EqualPart(member.count, size_, rank_).count;
      default:
        return 0;
    }
  }

  // What all ranks have of it is reduced to scratch, and sent to the root.
  bool ReducesToScratch(const commsched_member_t& member) const {
    return launch_.kind == COMMSCHED_REDUCE && !IsRoot() && !IsSmall(member);
  }

  // What comes from the other ranks for a chunk of `count` elements.
  uint64_t InputBytes(uint64_t count) const {
    return count * element_ * static_cast<uint64_t>(size_ - 1);
  }

  // Room for what comes for all chunks, or for some of the largest.
  uint64_t RingBytes() const {
    uint64_t all = 0;
    uint64_t largest = 0;
    for (uint32_t m = 0; m < launch_.num_members; ++m) {
      const uint64_t count = Reduced(launch_.members[m]);
      all += InputBytes(count);
      // Small all-reduces are one chunk.
      const uint64_t chunk =
          IsSmall(launch_.members[m]) ? count : std::min(count, chunk_);
      largest = std::max(largest, InputBytes(chunk));
    }
    return std::min(all, kRingChunks * largest);
  }

  // Where what comes for a chunk of step `step` goes, and, in `after`, the step
  // that has to be taken before, which frees it; kNoStep if it is free.
  char* TakeRoom(uint64_t bytes, uint32_t step, uint32_t* after) {
    if (ring_used_ + bytes > ring_bytes_) {
      ring_used_ = 0;
      has_wrapped_ = true;
    }
    const Operation::Room room = {ring_used_, ring_used_ + bytes, step};
    ring_used_ = room.end;
    // Steps are taken in order, and so is what they free.
    for (size_t i = oldest_; has_wrapped_ && i < op_.rooms.size(); ++i) {
      if (op_.rooms[i].begin >= room.end || room.begin >= op_.rooms[i].end)
        continue;
      last_freed_ = op_.rooms[i].step;
      oldest_ = i + 1;
    }
    op_.rooms.push_back(room);
    *after = last_freed_;
    return op_.scratch.address + room.begin;
  }

  char* At(const void* base, uint64_t element) const {
    // As a number: nothing is at `base` where a launch is only measured.
    return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(base) +
                                   element * element_);
  }

  void Add(bool is_receive, int peer, void* data, uint64_t count,
           uint32_t step) {
    Message message;
    message.phase = phase_;
    message.peer = peer;
    message.is_receive = is_receive;
    message.step = step;
    message.data = data;
    message.bytes = count * element_;
    op_.messages.push_back(message);
  }
  void Receive(int peer, void* data, uint64_t count,
               uint32_t step = Operation::kNoStep) {
    Add(true, peer, data, count, step);
    if (step != Operation::kNoStep) ++op_.steps[step].waiting;
    if (op_.heard[static_cast<size_t>(peer)]) {
      op_.heard[static_cast<size_t>(peer)] = false;
      ++op_.num_unheard;
    }
  }
  void Send(int peer, const void* data, uint64_t count,
            uint32_t step = Operation::kNoStep) {
    Add(false, peer, const_cast<void*>(data), count, step);
    if (step != Operation::kNoStep) ++op_.steps[step].waiting;
  }

  void CopyOwn(const void* from, void* to, uint64_t count) const {
    if (measures_ || from == to || count == 0) return;
    std::memmove(to, from, count * element_);
  }

  // Calls `each(begin, count)` for the chunks of a range: at least one, so that
  // nothing to move is still a message.
  template <typename Each>
  void ForChunks(Range range, Each each) const {
    for (uint64_t done = 0;;) {
      const uint64_t count = std::min(chunk_, range.count - done);
      each(range.begin + done, count);
      done += count;
      if (done == range.count) return;
    }
  }

  // ---- What is posted first ----

  void First(const commsched_member_t& member) {
    switch (launch_.kind) {
      case COMMSCHED_ALL_GATHER:
        return AllGather(member);
      case COMMSCHED_ALL_TO_ALL:
        return AllToAll(member);
      case COMMSCHED_REDUCE_SCATTER:
        return ReduceParts(
            member,
            [&](int part) {
              return PartOf(member, member.input_stride, 0, 1, part);
            },
            member.output, false);
      case COMMSCHED_ALL_REDUCE:
        if (IsSmall(member)) return ReduceAll(member);
        return ReduceEqualParts(member, member.output);
      case COMMSCHED_REDUCE:
        if (IsSmall(member)) return ReduceAtRoot(member);
        return ReduceEqualParts(member, ReducedAt(member));
      case COMMSCHED_BROADCAST:
        return Broadcast(member);
      default:
        return;
    }
  }

  // Nothing but that all have come.
  void Barrier() {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      Send(peer, nullptr, 0);
      Receive(peer, nullptr, 0);
    }
    op_.num_posted = static_cast<uint32_t>(op_.messages.size());
  }

  void AllGather(const commsched_member_t& member) {
    for (int distance = 0; distance < size_; ++distance) {
      const int peer = Behind(distance);
      const Range part = PartOf(member, member.output_stride, 0, 1, peer);
      char* const to = At(member.output, part.begin);
      if (peer == rank_) {
        CopyOwn(member.input, to, part.count);
        continue;
      }
      const uint64_t own =
          PartOf(member, member.output_stride, 0, 1, rank_).count;
      Send(peer, member.input, own);
      Receive(peer, to, part.count);
    }
  }

  void AllToAll(const commsched_member_t& member) {
    const auto n = static_cast<uint64_t>(size_);
    const auto me = static_cast<uint64_t>(rank_);
    for (int distance = 0; distance < size_; ++distance) {
      const int peer = Behind(distance);
      // Row r of the counts is what rank r sends, column r what it gets.
      const Range out = PartOf(member, member.input_stride, me * n, 1, peer);
      const Range in = PartOf(member, member.output_stride, me, n, peer);
      char* const from = At(member.input, out.begin);
      char* const to = At(member.output, in.begin);
      if (peer == rank_) {
        CopyOwn(from, to, in.count);
        continue;
      }
      Send(peer, from, out.count);
      Receive(peer, to, in.count);
    }
  }

  // Of what each rank has of it, this rank reduces its own part to `output`.
  template <typename PartAt>
  void ReduceParts(const commsched_member_t& member, PartAt part_at,
                   void* output, bool sends_on) {
    const Range own = part_at(rank_);
    ForChunks(own, [&](uint64_t begin, uint64_t count) {
      AddReduction(member.input, begin, count, At(output, begin - own.begin),
                   sends_on);
    });
    SendChunks(member, part_at);
  }

  // The first chunk of every part, then the second: every rank begins with the
  // one behind it, so that few send to the same one at a time.
  template <typename PartAt>
  void SendChunks(const commsched_member_t& member, PartAt part_at) {
    bool more = true;
    for (uint64_t done = 0; more; done += chunk_) {
      more = false;
      for (int distance = 1; distance < size_; ++distance) {
        const int peer = Behind(distance);
        const Range part = part_at(peer);
        // A part of nothing is a message, too.
        if (done != 0 && done >= part.count) continue;
        const uint64_t count = std::min(chunk_, part.count - done);
        Send(peer, At(member.input, part.begin + done), count);
        more |= done + count < part.count;
      }
    }
  }

  int Behind(int distance) const { return (rank_ + distance) % size_; }

  void ReduceEqualParts(const commsched_member_t& member, void* output) {
    const Range own = EqualPart(member.count, size_, rank_);
    const bool whole = launch_.kind == COMMSCHED_ALL_REDUCE || IsRoot();
    ReduceParts(
        member, [&](int part) { return EqualPart(member.count, size_, part); },
        At(output, whole ? own.begin : 0),
        launch_.kind == COMMSCHED_ALL_REDUCE || !IsRoot());
  }

  // The sum overwrites the input if the two are one, so what is sent of the
  // input goes first.
  void ReduceAll(const commsched_member_t& member) {
    const uint32_t step =
        AddReduction(member.input, 0, member.count, member.output, false);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) Send(peer, member.input, member.count, step);
    }
  }

  void ReduceAtRoot(const commsched_member_t& member) {
    if (!IsRoot()) return Send(launch_.root, member.input, member.count);
    AddReduction(member.input, 0, member.count, member.output, false);
  }

  void Broadcast(const commsched_member_t& member) {
    if (IsRoot()) {
      CopyOwn(member.input, member.output, member.count);
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        if (IsSmall(member)) {
          Send(peer, member.input, member.count);
          continue;
        }
        ForChunks(BroadcastPart(member, peer),
                  [&](uint64_t begin, uint64_t count) {
                    Send(peer, At(member.input, begin), count);
                  });
      }
      return;
    }
    if (IsSmall(member)) {
      return Receive(launch_.root, member.output, member.count);
    }
    ForChunks(
        BroadcastPart(member, rank_), [&](uint64_t begin, uint64_t count) {
          const uint32_t step = AddStep(At(member.output, begin), count, true);
          Receive(launch_.root, At(member.output, begin), count, step);
        });
  }

  // ---- What is received of what others send on ----

  void Second(const commsched_member_t& member) {
    if (IsSmall(member)) return;
    switch (launch_.kind) {
      case COMMSCHED_ALL_REDUCE:
        for (int peer = 0; peer < size_; ++peer) {
          if (peer != rank_) ReceiveEqualPart(member, peer);
        }
        return;
      case COMMSCHED_REDUCE:
        for (int peer = 0; peer < size_ && IsRoot(); ++peer) {
          if (peer != rank_) ReceiveEqualPart(member, peer);
        }
        return;
      case COMMSCHED_BROADCAST:
        for (int peer = 0; peer < size_ && !IsRoot(); ++peer) {
          if (peer == rank_ || peer == launch_.root) continue;
          ForChunks(BroadcastPart(member, peer),
                    [&](uint64_t begin, uint64_t count) {
                      Receive(peer, At(member.output, begin), count);
                    });
        }
        return;
      default:
        return;
    }
  }

  void ReceiveEqualPart(const commsched_member_t& member, int peer) {
    ForChunks(EqualPart(member.count, size_, peer),
              [&](uint64_t begin, uint64_t count) {
                Receive(peer, At(member.output, begin), count);
              });
  }

  void SendOn(const Step& step) {
    for (int distance = 1; step.sends_on && distance < size_; ++distance) {
      const int peer = Behind(distance);
      if (launch_.kind == COMMSCHED_REDUCE && peer != launch_.root) continue;
      if (launch_.kind == COMMSCHED_BROADCAST && peer == launch_.root) continue;
      Send(peer, step.sent, step.sent_count);
    }
  }

  // ---- Steps ----

  uint32_t AddStep(void* sent, uint64_t sent_count, bool sends_on) {
    Step step;
    step.sends_on = sends_on;
    step.sent = sent;
    step.sent_count = sent_count;
    op_.steps.push_back(step);
    return static_cast<uint32_t>(op_.steps.size() - 1);
  }

  // Of `count` elements of every rank's input; this rank's begin at `begin`.
  // What the others have is received when there is room for it.
  uint32_t AddReduction(const void* input, uint64_t begin, uint64_t count,
                        void* output, bool sends_on) {
    const uint32_t number = AddStep(output, count, sends_on);
    Step& step = op_.steps[number];
    step.count = count;
    step.output = output;
    step.first_input = static_cast<uint32_t>(op_.inputs.size());
    op_.inputs.resize(op_.inputs.size() + static_cast<size_t>(size_));
    op_.input_messages.resize(op_.inputs.size(), Operation::kNoMessage);
    op_.inputs[step.first_input + static_cast<size_t>(rank_)] =
        At(input, begin);
    uint32_t after = Operation::kNoStep;
    char* const to = TakeRoom(InputBytes(count), number, &after);
    if (after == Operation::kNoStep) {
      ReceiveInputs(number, to);
    } else {
      op_.late.push_back({after, number, to});
    }
    return number;
  }

  void ReceiveInputs(uint32_t number, char* to) {
    const Step step = op_.steps[number];
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const size_t input = step.first_input + static_cast<size_t>(peer);
      op_.inputs[input] = to;
      op_.input_messages[input] = static_cast<uint32_t>(op_.messages.size());
      Receive(peer, to, step.count, number);
      to += step.count * element_;
    }
  }

  bool IsRoot() const { return rank_ == launch_.root; }

  // Of a rank that is not the root.
  Range BroadcastPart(const commsched_member_t& member, int peer) const {
    return EqualPart(member.count, size_ - 1,
                     peer < launch_.root ? peer : peer - 1);
  }

  // Where a rank that is not the root reduces its part of a reduce: its output
  // is nobody's.
  void* ReducedAt(const commsched_member_t& member) {
    if (IsRoot()) return member.output;
    char* const to = op_.scratch.address + kept_;
    kept_ += Reduced(member) * element_;
    return to;
  }

  const commsched_launch_t& launch_;
  const int rank_;
  const int size_;
  const uint64_t element_;
  const uint64_t chunk_;  // Elements.
  Operation& op_;
  const bool measures_;
  uint32_t phase_ = 0;  // Of the messages that are added.

  // Scratch: a ring of rooms for what is to be reduced, in order; behind it,
  // from kept_ on, what stays.
  uint64_t ring_bytes_ = 0;
  uint64_t ring_used_ = 0;
  bool has_wrapped_ = false;
  size_t oldest_ = 0;  // Of the rooms: that no other one has taken.
  uint32_t last_freed_ = Operation::kNoStep;
  uint64_t kept_ = 0;
};

void BuildOrMeasure(const commsched_launch_t& launch, int rank, int size,
                    uint64_t chunk_bytes, bool measures, Operation* operation) {
  Operation& op = *operation;
  op.kind = launch.kind;
  op.dtype = launch.dtype;
  op.reduce_op = launch.reduce_op;
  op.messages.clear();
  op.steps.clear();
  op.inputs.clear();
  op.input_messages.clear();
  op.rooms.clear();
  op.late.clear();
  op.next_step = 0;
  op.outstanding = 0;
  op.heard.assign(static_cast<size_t>(size), true);
  op.num_unheard = 0;
  op.started_ns = 0;
  op.cpu_ns = 0;
  Builder builder(launch, rank, size, chunk_bytes, measures, operation);
  if (launch.kind == COMMSCHED_SEND) {
    builder.BuildPeers();
  } else {
    builder.Build();
  }
}

}  // namespace

uint64_t ElementBytes(commsched_dtype_t dtype) {
  switch (dtype) {
    case COMMSCHED_F32:
    case COMMSCHED_I32:
      return 4;
    case COMMSCHED_F64:
    case COMMSCHED_I64:
      return 8;
    case COMMSCHED_F16:
    case COMMSCHED_BF16:
      return 2;
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return 1;
    default:
      return 0;
  }
}

Outcome CheckKind(const commsched_launch_t& launch) {
  if (launch.kind <= COMMSCHED_SEND && ElementBytes(launch.dtype) != 0) {
    return {};
  }
  return {COMMSCHED_INVALID_ARGUMENT,
          "kind " + std::to_string(launch.kind) + " and dtype " +
              std::to_string(launch.dtype) + " make no launch"};
}

uint64_t ScratchBytes(const commsched_launch_t& launch, int rank, int size,
                      uint64_t chunk_bytes) {
  Operation none;
  return Builder(launch, rank, size, chunk_bytes, /*measures=*/true, &none)
      .ScratchBytes();
}

void Build(const commsched_launch_t& launch, int rank, int size,
           uint64_t chunk_bytes, Operation* operation) {
  BuildOrMeasure(launch, rank, size, chunk_bytes, /*measures=*/false,
                 operation);
}

void Measure(const commsched_launch_t& launch, int rank, int size,
             uint64_t chunk_bytes, Operation* largest) {
  Operation one;
  // Any address will do that can be counted on from.
  one.scratch.address = reinterpret_cast<char*>(uintptr_t{1} << 32);
  BuildOrMeasure(launch, rank, size, chunk_bytes, /*measures=*/true, &one);
  largest->Reserve(one);
}

void Operation::Reserve(const Operation& other) {
  messages.reserve(other.messages.capacity());
  steps.reserve(other.steps.capacity());
  inputs.reserve(other.inputs.capacity());
  input_messages.reserve(other.input_messages.capacity());
  rooms.reserve(other.rooms.capacity());
  late.reserve(other.late.capacity());
  heard.reserve(other.heard.capacity());
}

}  // namespace commsched::ucx
