/// Worlds, contexts, streams, groups and meshes in C++17:
/// commsched/commsched.hpp.
#ifndef COMMSCHED_WORLD_HPP_
#define COMMSCHED_WORLD_HPP_

#include <cstdint>
#include <utility>
#include <vector>

#include "commsched/commsched.h"
#include "commsched/result.hpp"

namespace commsched {
namespace api {

/// The ranks of one job.
class World
    : public internal::Handle<commsched_world_t, commsched_world_destroy> {
 public:
  World() = default;

  static Result<World> CreateInproc(const commsched_world_desc_t& desc) {
    commsched_world_t* world = nullptr;
    const auto code = commsched_world_create_inproc(&desc, &world);
    return internal::ResultOf(code, [&] { return World(world); });
  }
  static Result<World> CreateInproc(int32_t size) {
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = size;
    return CreateInproc(desc);
  }

  /// This process as one rank of a job of processes.
  static Result<World> Join(const commsched_join_desc_t& desc) {
    commsched_world_t* world = nullptr;
    const auto code = commsched_world_join(&desc, &world);
    return internal::ResultOf(code, [&] { return World(world); });
  }

  int32_t size() const { return commsched_world_size(get()); }
  /// The rank that this process is; -1: all ranks are threads of it.
  int32_t rank() const { return commsched_world_rank(get()); }

 private:
  explicit World(commsched_world_t* world) : Handle(world) {}
};

/// One rank.
class Context
    : public internal::Handle<commsched_context_t, commsched_context_destroy> {
 public:
  Context() = default;

  static Result<Context> Create(const World& world, int32_t rank) {
    commsched_context_t* context = nullptr;
    const auto code = commsched_context_create(world.get(), rank, &context);
    return internal::ResultOf(code, [&] { return Context(context); });
  }

  /// This rank in a world of `members`, which all call this:
  /// commsched_context_split().
  Result<Context> Split(const std::vector<int32_t>& members,
                        const char* name) const {
    commsched_context_t* context = nullptr;
    const auto code = commsched_context_split(
        get(), internal::DataOf(members), static_cast<uint32_t>(members.size()),
        name, &context);
    return internal::ResultOf(code, [&] { return Context(context); });
  }

  int32_t rank() const { return commsched_context_rank(get()); }
  int32_t world_size() const { return commsched_context_world_size(get()); }
  int32_t local_size() const { return commsched_context_local_size(get()); }
  const char* backend() const { return commsched_context_backend(get()); }
  commsched_device_kind_t device(int32_t* out_device = nullptr) const {
    return commsched_context_device(get(), out_device);
  }
  /// On which host each rank of the world is: what plans take as
  /// `host_of_rank`. Blocks until all ranks of the job have joined.
  Result<std::vector<int32_t>> Hosts() const {
    std::vector<int32_t> hosts(static_cast<size_t>(world_size()));
    int32_t num_hosts = 0;
    const auto code = commsched_context_hosts(
        get(), hosts.data(), static_cast<int32_t>(hosts.size()), &num_hosts);
    return internal::ResultOf(code, [&] { return hosts; });
  }

 private:
  explicit Context(commsched_context_t* context) : Handle(context) {}
};

/// The calling thread as a stream.
inline commsched_stream_t CallerStream() { return commsched_stream_caller(); }

inline Status Synchronize(commsched_stream_t stream) {
  return Status::Of(commsched_stream_synchronize(stream));
}

/// A worker thread that runs what is enqueued, in order. Destroying it first
/// runs what is enqueued.
class HostStream {
 public:
  HostStream() = default;
  HostStream(HostStream&& other) noexcept
      : stream_(std::exchange(other.stream_, commsched_stream_caller())) {}
  HostStream& operator=(HostStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~HostStream() { commsched_host_stream_destroy(stream_); }

  static Result<HostStream> Create(const Context& context, const char* name,
                                   uint32_t capacity) {
    commsched_stream_t stream = commsched_stream_caller();
    const auto code =
        commsched_host_stream_create(context.get(), name, capacity, &stream);
    return internal::ResultOf(code, [&] { return HostStream(stream); });
  }

  Status Enqueue(commsched_host_fn fn, void* user) {
    return Status::Of(commsched_host_stream_enqueue(stream_, fn, user));
  }
  commsched_stream_t get() const { return stream_; }

 private:
  explicit HostStream(commsched_stream_t stream) : stream_(stream) {}

  commsched_stream_t stream_ = commsched_stream_caller();
};

/// The ranks of one communicator.
class Group
    : public internal::Handle<commsched_group_t, commsched_group_destroy> {
 public:
  Group() = default;

  static Result<Group> Create(const Context& context, const char* axis,
                              const std::vector<int32_t>& ranks) {
    commsched_group_t* group = nullptr;
    const auto code =
        commsched_group_create(context.get(), axis, internal::DataOf(ranks),
                               static_cast<uint32_t>(ranks.size()), &group);
    return internal::ResultOf(code, [&] { return Group(group); });
  }
  /// All ranks of the world, in order.
  static Result<Group> CreateWorld(const Context& context, const char* axis) {
    std::vector<int32_t> ranks;
    for (int32_t i = 0; i < context.world_size(); ++i) ranks.push_back(i);
    return Create(context, axis, ranks);
  }

  int32_t size() const { return commsched_group_size(get()); }
  int32_t rank() const { return commsched_group_rank(get()); }

 private:
  friend class Mesh;
  explicit Group(commsched_group_t* group) : Handle(group) {}
};

/// The world as an array with named axes; the last axis varies fastest.
class Mesh : public internal::Handle<commsched_mesh_t, commsched_mesh_destroy> {
 public:
  Mesh() = default;

  static Result<Mesh> Create(const Context& context,
                             const std::vector<commsched_axis_t>& axes) {
    commsched_mesh_t* mesh = nullptr;
    const auto code =
        commsched_mesh_create(context.get(), internal::DataOf(axes),
                              static_cast<uint32_t>(axes.size()), &mesh);
    return internal::ResultOf(code, [&] { return Mesh(mesh); });
  }

  /// The ranks that differ from this one along `axis` only.
  Result<Group> GroupOf(const char* axis) const {
    commsched_group_t* group = nullptr;
    const auto code = commsched_mesh_group(get(), axis, &group);
    return internal::ResultOf(code, [&] { return Group(group); });
  }

 private:
  explicit Mesh(commsched_mesh_t* mesh) : Handle(mesh) {}
};

}  // namespace api
}  // namespace commsched

#endif  // COMMSCHED_WORLD_HPP_
