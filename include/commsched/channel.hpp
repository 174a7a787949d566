/// Channels and completions in C++17: commsched/channel.h as
/// commsched/commsched.hpp does it.
///
///   namespace cs = commsched::api;
///   auto completions = cs::Completions::Create(1024);
///   cs::ChannelSpec spec;
///   spec.completions = &*completions;
///   auto channel = cs::Channel::Create(context, group, spec);
///   if (!channel.ok()) return Fail(channel.status());
///   auto request = channel->Submit(cs::AllReduceOf(data, count));
///   if (!request.ok()) return Fail(request.status());
///   cs::Status done = channel->Wait(*request);
#ifndef COMMSCHED_CHANNEL_HPP_
#define COMMSCHED_CHANNEL_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/channel.h"
#include "commsched/commsched.hpp"

namespace commsched {
namespace api {

/// Where one thread learns what many channels have finished.
class Completions : public internal::Handle<commsched_completions_t,
                                            commsched_completions_destroy> {
 public:
  Completions() = default;

  static Result<Completions> Create(uint64_t capacity) {
    commsched_completions_t* completions = nullptr;
    const auto code = commsched_completions_create(capacity, &completions);
    return internal::ResultOf(code, [&] { return Completions(completions); });
  }

  /// Fills `*out` from the front and returns how many it has filled: none if
  /// the time is over, or upon Wake(). Its size is the most.
  Result<uint64_t> Next(std::vector<commsched_completion_t>* out,
                        int64_t timeout_ns = INT64_MAX) {
    uint64_t count = 0;
    const auto code = commsched_completions_next(
        get(), out->data(), out->size(), timeout_ns, &count);
    return internal::ResultOf(code, [&] { return count; });
  }
  Status Wake() { return Status::Of(commsched_completions_wake(get())); }

 private:
  explicit Completions(commsched_completions_t* completions)
      : Handle(completions) {}
};

/// What a channel is made of: commsched_channel_desc_t. Pointers are read
/// during Create() only.
struct ChannelSpec {
  const Completions* completions = nullptr;
  uint64_t key = 0;
  uint32_t max_in_flight = 0;
  uint32_t max_transfers = 0;
  uint64_t max_bytes_in_flight = 0;
  int64_t launch_timeout_ns = 0;
  std::string flight_path;  ///< Of the flight record; empty: none.
  const Trace* trace = nullptr;
};

/// An all-reduce of `data` in place.
inline commsched_channel_op_t AllReduceOf(
    void* data, uint64_t count, commsched_dtype_t dtype = COMMSCHED_F32,
    commsched_reduce_op_t reduce_op = COMMSCHED_SUM) {
  commsched_channel_op_t op = commsched_channel_op_init();
  op.kind = COMMSCHED_ALL_REDUCE;
  op.dtype = dtype;
  op.reduce_op = reduce_op;
  op.input = data;
  op.output = data;
  op.count = count;
  return op;
}

inline commsched_channel_op_t SendOf(int32_t peer, const void* data,
                                     uint64_t count,
                                     commsched_dtype_t dtype = COMMSCHED_F32,
                                     uint64_t tag = 0) {
  commsched_channel_op_t op = commsched_channel_op_init();
  op.kind = COMMSCHED_SEND;
  op.dtype = dtype;
  op.peer = peer;
  op.tag = tag;
  op.input = data;
  op.count = count;
  return op;
}

inline commsched_channel_op_t RecvOf(int32_t peer, void* data, uint64_t count,
                                     commsched_dtype_t dtype = COMMSCHED_F32,
                                     uint64_t tag = 0) {
  commsched_channel_op_t op = commsched_channel_op_init();
  op.kind = COMMSCHED_RECV;
  op.dtype = dtype;
  op.peer = peer;
  op.tag = tag;
  op.output = data;
  op.count = count;
  return op;
}

/// Collectives, sends and receives without a graph, over one group.
class Channel
    : public internal::Handle<commsched_channel_t, commsched_channel_destroy> {
 public:
  Channel() = default;

  static Result<Channel> Create(const Context& context, const Group& group,
                                const ChannelSpec& spec = {}) {
    commsched_channel_desc_t desc = commsched_channel_desc_init();
    desc.completions =
        spec.completions == nullptr ? nullptr : spec.completions->get();
    desc.key = spec.key;
    desc.max_in_flight = spec.max_in_flight;
    desc.max_transfers = spec.max_transfers;
    desc.max_bytes_in_flight = spec.max_bytes_in_flight;
    desc.launch_timeout_ns = spec.launch_timeout_ns;
    desc.flight_path =
        spec.flight_path.empty() ? nullptr : spec.flight_path.c_str();
    desc.trace = spec.trace == nullptr ? nullptr : spec.trace->get();
    commsched_channel_t* channel = nullptr;
    const auto code =
        commsched_channel_create(context.get(), group.get(), &desc, &channel);
    return internal::ResultOf(code, [&] { return Channel(channel); });
  }

  Result<uint64_t> Submit(const commsched_channel_op_t& op,
                          commsched_stream_t stream = CallerStream()) {
    uint64_t request = 0;
    const auto code = commsched_channel_submit(get(), &op, stream, &request);
    return internal::ResultOf(code, [&] { return request; });
  }
  Result<uint64_t> SubmitBatch(const std::vector<commsched_channel_op_t>& ops,
                               commsched_stream_t stream = CallerStream()) {
    std::vector<const commsched_channel_op_t*> pointers;
    for (const commsched_channel_op_t& op : ops) pointers.push_back(&op);
    uint64_t request = 0;
    const auto code = commsched_channel_submit_batch(
        get(), internal::DataOf(pointers), static_cast<uint32_t>(ops.size()),
        stream, &request);
    return internal::ResultOf(code, [&] { return request; });
  }
  Result<bool> Test(uint64_t request) {
    uint32_t done = 0;
    const auto code = commsched_channel_test(get(), request, &done);
    return internal::ResultOf(code, [&] { return done != 0; });
  }
  Status Wait(uint64_t request, int64_t timeout_ns = INT64_MAX) {
    return Status::Of(commsched_channel_wait(get(), request, timeout_ns));
  }
  Status Before(uint64_t request, commsched_stream_t stream) {
    return Status::Of(commsched_channel_before(get(), request, stream));
  }
  void Abort(const char* reason) { commsched_channel_abort(get(), reason); }
  /// The first failure, or OK.
  Status status() const { return Status::Of(commsched_channel_status(get())); }

 private:
  explicit Channel(commsched_channel_t* channel) : Handle(channel) {}
};

}  // namespace api
}  // namespace commsched

#endif  // COMMSCHED_CHANNEL_HPP_
