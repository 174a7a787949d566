#include "rank.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <system_error>
#include <utility>

#include "comm.h"

namespace commsched::nccl {
namespace {

constexpr uint64_t kMessageBytes = 512;

std::vector<std::string> HostsOf(const commsched_backend_rank_desc_t& desc) {
  const bool says =
      desc.struct_size >=
          offsetof(commsched_backend_rank_desc_t, hosts) + sizeof(desc.hosts) &&
      desc.hosts != nullptr;
  if (!says) return {};
  return {desc.hosts, desc.hosts + desc.world_size};
}

}  // namespace

Rank::Rank(const commsched_host_t* host, const Library* library,
           const Config& config, const commsched_backend_rank_desc_t& desc)
    : host_(*host),
      library_(*library),
      config_(config),
      oob_(desc.oob),
      wake_(desc.wake),
      wake_user_(desc.wake_user),
      id_prefix_("nccl epoch " + std::to_string(desc.epoch) + " "),
      world_rank_(desc.world_rank),
      world_size_(desc.world_size),
      hosts_(HostsOf(desc)),
      device_(desc.device) {}

Outcome Rank::Start(int world_rank) {
  Outcome found = library_.CheckCuda(
      "cuDeviceGetAttribute",
      library_.cuda.driver.NumMultiprocessors(device_, &multiprocessors_));
  if (!found.ok()) return found;
  try {
    thread_ = std::thread([this] { Run(); });
    return {};
  } catch (const std::system_error& e) {
    return {COMMSCHED_RESOURCE_EXHAUSTED,
            "cannot start the thread for NCCL of rank " +
                std::to_string(world_rank) + ": " + e.code().message()};
  }
}

Rank::~Rank() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
    changed_.notify_all();
  }
  // The rank's thread frees the scratch memory when it ends, so the threads of
  // aborts, whose communicators use that memory, are joined before it.
  for (std::thread& each : aside_) each.join();
  if (thread_.joinable()) thread_.join();
}

void Rank::Close(Rank* rank) {
  {
    std::unique_lock<std::mutex> lock(rank->mu_);
    rank->closed_ = true;
    rank->changed_.notify_all();
    rank->changed_.wait(lock, [rank] { return rank->num_asking_ == 0; });
    if (rank->given_up_ && (rank->busy_ || rank->num_aside_ != 0)) {
      for (std::thread& each : rank->aside_) each.detach();
      rank->thread_.detach();
      return;
    }
  }
  delete rank;
}

void Rank::Wake() {
  const std::lock_guard<std::mutex> lock(mu_);
  if (!closed_) wake_(wake_user_);
}

void Rank::Log(const std::string& message) const {
  host_.log(host_.user, /*warning*/ 2, message.c_str());
}

template <typename Call>
commsched_status_t Rank::Ask(const Call& call) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (closed_) return COMMSCHED_CANCELLED;
    ++num_asking_;
  }
  const commsched_status_t code = call();
  const std::lock_guard<std::mutex> lock(mu_);
  --num_asking_;
  changed_.notify_all();
  return code;
}

Outcome Rank::Put(const std::string& key, const void* value, uint64_t bytes) {
  char message[kMessageBytes] = "";
  const commsched_status_t code = Ask([&] {
    return oob_->put(oob_->user, key.c_str(), value, bytes, message,
                     sizeof(message));
  });
  return {code, message};
}

Outcome Rank::Get(const std::string& key, void* value, uint64_t bytes,
                  int64_t deadline_ns) {
  char message[kMessageBytes] = "";
  uint64_t size = bytes;
  const commsched_status_t code = Ask([&] {
    return oob_->get(oob_->user, key.c_str(), value, &size, deadline_ns,
                     message, sizeof(message));
  });
  if (code == COMMSCHED_OK && size != bytes) {
    return {COMMSCHED_INTERNAL, "'" + key + "' has " + std::to_string(size) +
                                    " bytes, not " + std::to_string(bytes)};
  }
  return {code, message};
}

bool Rank::IsOnHost(int other) const {
  if (hosts_.empty()) return true;
  const std::string& host = hosts_[static_cast<size_t>(other)];
  return !host.empty() && host == hosts_[static_cast<size_t>(world_rank_)];
}

std::string Rank::KeyOf(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mu_);
  const uint64_t number = num_made_[id]++;
  return id_prefix_ + id + " #" + std::to_string(number);
}

Outcome Rank::EnterDevice(int* out_before) const {
  const Outcome outcome =
      library_.CheckCuda("cudaGetDevice", library_.cuda.GetDevice(out_before));
  if (!outcome.ok() || *out_before == device_) return outcome;
  return library_.CheckCuda("cudaSetDevice", library_.cuda.SetDevice(device_));
}

void Rank::LeaveDevice(int before) const {
  if (before == device_) return;
  const Outcome outcome =
      library_.CheckCuda("cudaSetDevice", library_.cuda.SetDevice(before));
  if (!outcome.ok()) {
    Log("device " + std::to_string(before) +
        " is not the thread's current one again: " + outcome.reason);
  }
}

// The smallest that is large enough.
bool Rank::FindScratch(uint64_t bytes, Scratch* out_scratch) {
  const std::lock_guard<std::mutex> lock(mu_);
  auto best = free_scratch_.end();
  for (auto it = free_scratch_.begin(); it != free_scratch_.end(); ++it) {
    if (it->bytes < bytes) continue;
    if (best == free_scratch_.end() || it->bytes < best->bytes) best = it;
  }
  if (best == free_scratch_.end()) return false;
  *out_scratch = *best;
  free_scratch_.erase(best);
  return true;
}

Outcome Rank::TakeScratch(uint64_t bytes, Scratch* out_scratch) {
  if (FindScratch(bytes, out_scratch)) return {};
  const OutsideOfCaptures outside(library_);
  void* address = nullptr;
  Outcome outcome = OnDevice([&] {
    return library_.CheckCuda("cuMemAlloc",
                              library_.cuda.driver.Allocate(bytes, &address));
  });
  if (!outcome.ok()) return outcome;
  *out_scratch = {address, bytes};
  const std::lock_guard<std::mutex> lock(mu_);
  scratch_bytes_ += bytes;
  return outcome;
}

void Rank::CountLaunchAllocation(const std::string& name, uint64_t bytes) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    if (++launch_allocations_ != 1) return;
  }
  Log(name + ": a launch allocates " + std::to_string(bytes) +
      " bytes for the inputs of its sums, since it was not expected; it may "
      "wait for the device");
}

void Rank::FillStats(commsched_backend_memory_t* out_memory) {
  const std::lock_guard<std::mutex> lock(mu_);
  const commsched_backend_memory_t memory = {
      .struct_size = out_memory->struct_size,
      .bytes = scratch_bytes_,
      .peak_bytes = scratch_bytes_,
      .launch_allocations = launch_allocations_};
  std::memcpy(out_memory, &memory,
              std::min<uint64_t>(memory.struct_size, sizeof(memory)));
}

Outcome Rank::AllocateArena(uint64_t bytes, void** out_address) {
  const OutsideOfCaptures outside(library_);
  return OnDevice([&]() -> Outcome {
    Outcome by_nccl = {COMMSCHED_UNIMPLEMENTED, "NCCL has no ncclMemAlloc"};
    if (library_.MemAlloc != nullptr && library_.MemFree != nullptr) {
      by_nccl =
          library_.Check("ncclMemAlloc", library_.MemAlloc(out_address, bytes));
    }
    bool is_first = false;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      if (by_nccl.ok()) {
        nccl_arenas_.insert(*out_address);
        return {};
      }
      is_first = !std::exchange(told_of_cuda_arenas_, true);
    }
    if (is_first) Log("arenas are of cuMemAlloc: " + by_nccl.reason);
    return library_.CheckCuda(
        "cuMemAlloc", library_.cuda.driver.Allocate(bytes, out_address));
  });
}

void Rank::FreeArena(void* address) {
  const OutsideOfCaptures outside(library_);
  const Outcome freed = OnDevice([&]() -> Outcome {
    bool of_nccl = false;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      of_nccl = nccl_arenas_.erase(address) != 0;
    }
    // Both wait for the device.
    if (of_nccl)
      return library_.Check("ncclMemFree", library_.MemFree(address));
    return library_.CheckCuda("cuMemFree", library_.cuda.driver.Free(address));
  });
  if (!freed.ok()) Log("an arena: " + freed.reason);
}

void Rank::ReturnScratch(const Scratch& scratch) {
  const std::lock_guard<std::mutex> lock(mu_);
  free_scratch_.push_back(scratch);
}

Outcome Rank::Kernels(const kernels::CudaKernels** out_kernels) {
  const std::lock_guard<std::mutex> lock(kernels_mu_);
  if (kernels_ == nullptr) {
    const OutsideOfCaptures outside(library_);
    auto loaded = std::make_unique<kernels::CudaKernels>();
    Outcome outcome = OnDevice([&]() -> Outcome {
      const std::string why = loaded->Load(&library_.cuda);
      if (why.empty()) return {};
      return {COMMSCHED_UNAVAILABLE, why};
    });
    if (!outcome.ok()) return outcome;
    kernels_ = std::move(loaded);
  }
  *out_kernels = kernels_.get();
  return {};
}

void Rank::WillJoin(const std::shared_ptr<Comm>& comm) {
  to_join_.push_back(comm);
}

Outcome Rank::JoinInOrder() {
  while (!to_join_.empty()) {
    if (const std::shared_ptr<Comm> next = to_join_.front().lock()) {
      bool joins = false;
      Outcome outcome = next->TryJoin(&joins);
      if (!outcome.ok() || !joins) return outcome;
    }
    to_join_.pop_front();
  }
  return {};
}

void Rank::Post(std::function<void()> job) {
  const std::lock_guard<std::mutex> lock(mu_);
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void Rank::RunAside(const std::function<void()>& job) {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    const auto run = [this, job] {
      const OutsideOfCaptures outside(library_);
      (void)library_.cuda.SetDevice(device_);
      job();
      const std::lock_guard<std::mutex> lock(mu_);
      --num_aside_;
    };
    try {
      aside_.emplace_back(run);
      ++num_aside_;
      return;
    } catch (const std::system_error&) {
      // No more threads: the job waits for what the rank's is at.
    }
  }
  Post(job);
}

void Rank::AwaitClose(int64_t deadline_ns) {
  std::unique_lock<std::mutex> lock(mu_);
  changed_.wait_for(lock, std::chrono::nanoseconds(deadline_ns - NowNs()),
                    [this] { return closed_; });
}

void Rank::GiveUp() {
  const std::lock_guard<std::mutex> lock(mu_);
  given_up_ = true;
}

void Rank::Run() {
  const OutsideOfCaptures outside(library_);
  // Jobs that need the device set it again by OnDevice(), and fail by it.
  (void)library_.cuda.SetDevice(device_);
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) break;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    job();
    lock.lock();
    busy_ = false;
  }
  for (const Scratch& each : free_scratch_) {
    (void)library_.cuda.driver.Free(each.address);
  }
}

}  // namespace commsched::nccl
