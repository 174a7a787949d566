#include "stream.h"

#include <atomic>
#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "calls.h"
#include "capture.h"
#include "fake_gpu.h"
#include "memory.h"

namespace fake_gpu {
namespace {

std::atomic<uint64_t> delay_seed{0};
std::atomic<uint32_t> delay_us{0};
std::atomic<uint64_t> num_streams{0};

// Streams that are in order with the default one of their device.
std::atomic<int> num_blocking{0};

struct Streams {
  std::mutex mu;
  std::condition_variable left;  // Nobody synchronizes some stream any more.
  std::set<CUstream_st*> all;
  CUstream_st* defaults[kNumDevices] = {};
};

Streams& AllStreams() {
  static auto* const streams = new Streams;
  return *streams;
}

}  // namespace

void SynchronizeDevice(int device) {
  std::vector<CUstream_st*> waiting;
  {
    const std::lock_guard<std::mutex> lock(AllStreams().mu);
    for (CUstream_st* each : AllStreams().all) {
      if (each->stream.device() == device) waiting.push_back(each);
    }
  }
  // One at a time, as others may destroy streams meanwhile.
  for (CUstream_st* each : waiting) {
    std::unique_lock<std::mutex> lock(AllStreams().mu);
    if (AllStreams().all.count(each) == 0) continue;
    ++each->num_synchronizing;
    lock.unlock();
    each->stream.Synchronize();
    lock.lock();
    --each->num_synchronizing;
    AllStreams().left.notify_all();
  }
}

bool IsKnown(cudaStream_t stream) {
  if (IsLegacy(stream)) return true;
  const std::lock_guard<std::mutex> lock(AllStreams().mu);
  return AllStreams().all.count(stream) != 0;
}

Stream::Stream(int device, StreamKind kind, int priority)
    : device_(device),
      kind_(kind),
      priority_(priority),
      random_(static_cast<uint32_t>(delay_seed.load() + num_streams++)) {
  if (kind == StreamKind::kBlocking) ++num_blocking;
}

Stream::~Stream() {
  {
    const std::lock_guard<std::mutex> lock(mu_);
    stop_ = true;
    changed_.notify_all();
  }
  if (worker_.joinable()) worker_.join();
  if (kind_ == StreamKind::kBlocking) --num_blocking;
  --num_streams;
}

void Stream::Enqueue(const char* name, std::initializer_list<Range> ranges,
                     Work work) {
  if (IsCapturing(this)) {
    CaptureWork(this, name, ranges, [work] { return work; });
    return;
  }
  OrderWithDefault();
  AllClocks().Access(&clock_, name, ranges);
  Put(std::move(work));
}

void Stream::Enqueue(const char* name, const std::vector<Range>& ranges,
                     Work work) {
  if (IsCapturing(this)) {
    CaptureWork(this, name, ranges, [work] { return work; });
    return;
  }
  OrderWithDefault();
  AllClocks().Access(&clock_, name, ranges.data(), ranges.size());
  Put(std::move(work));
}

void Stream::Enqueue(std::function<void()> run) {
  Enqueue("", {}, Work{std::move(run), nullptr});
}

void Stream::EnqueueBound(const char* name, const std::vector<Range>& ranges,
                          const std::function<Work()>& bind) {
  if (IsCapturing(this)) {
    CaptureWork(this, name, ranges, bind);
  } else {
    Enqueue(name, ranges, bind());
  }
}

std::shared_ptr<Marker> Stream::Record() {
  OrderWithDefault();
  return PutRecord();
}

void Stream::WaitFor(std::shared_ptr<Marker> marker) {
  OrderWithDefault();
  PutWait(std::move(marker));
}

// "The legacy default stream is an implicit stream which synchronizes with all
// other streams in the same CUcontext except for non-blocking streams" (Runtime
// API, Stream synchronization behavior).
void Stream::OrderWithDefault() {
  if (num_blocking.load() == 0 || kind_ == StreamKind::kNonBlocking) return;
  std::vector<std::shared_ptr<Marker>> before;
  {
    const std::lock_guard<std::mutex> lock(AllStreams().mu);
    for (CUstream_st* each : AllStreams().all) {
      Stream& other = each->stream;
      if (other.device_ != device_ || other.kind_ == kind_) continue;
      if (other.kind_ == StreamKind::kNonBlocking) continue;
      before.push_back(other.PutRecord());
    }
  }
  for (std::shared_ptr<Marker>& each : before) PutWait(std::move(each));
}

std::shared_ptr<Marker> Stream::PutRecord() {
  Clock clock;
  AllClocks().Record(&clock_, &clock);
  auto marker = std::make_shared<Marker>(std::move(clock));
  Put({[marker] { marker->Finish(); }, nullptr});
  return marker;
}

void Stream::PutWait(std::shared_ptr<Marker> marker) {
  AllClocks().Wait(&clock_, marker->clock());
  Put({[marker] { marker->Wait(); },
       [marker] {
         return marker->done() ? Progress::kDone : Progress::kNone;
       }});
}

void Stream::Put(Work work) {
  if (TheDriver().on()) {
    TheDriver().Enqueue(DrivenQueue().get(), std::move(work));
    return;
  }
  const std::lock_guard<std::mutex> lock(mu_);
  if (!worker_.joinable()) worker_ = std::thread([this] { Run(); });
  queue_.push_back(std::move(work.run));
  ++num_enqueued_;
  changed_.notify_all();
}

std::shared_ptr<Driver::Queue> Stream::DrivenQueue() {
  const std::lock_guard<std::mutex> lock(mu_);
  if (driven_ == nullptr || driven_run_ != TheDriver().run()) {
    driven_ = TheDriver().MakeQueue();
    driven_run_ = TheDriver().run();
  }
  return driven_;
}

void Stream::Synchronize() {
  Clock clock;
  AllClocks().Record(&clock_, &clock);
  if (TheDriver().on()) {
    TheDriver().RunToEnd(DrivenQueue().get());
  } else {
    std::unique_lock<std::mutex> lock(mu_);
    const uint64_t until = num_enqueued_;
    changed_.wait(lock, [&] { return num_run_ >= until; });
  }
  AllClocks().Learn(clock);
}

bool Stream::IsIdle() {
  Clock clock;
  AllClocks().Record(&clock_, &clock);
  if (TheDriver().on()) {
    if (!TheDriver().IsIdle(DrivenQueue().get())) return false;
  } else {
    const std::lock_guard<std::mutex> lock(mu_);
    if (num_run_ != num_enqueued_) return false;
  }
  AllClocks().Learn(clock);
  return true;
}

// As long as the latency that is asked for.
void Stream::Hold() {
  const uint32_t most_us = delay_us.load();
  if (most_us == 0) return;
  const std::chrono::microseconds us(random_() % (most_us + 1));
  std::unique_lock<std::mutex> lock(mu_);
  held_.wait_for(lock, us, [] { return false; });
}

void Stream::Run() {
  std::unique_lock<std::mutex> lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    Hold();
    work();
    lock.lock();
    ++num_run_;
    changed_.notify_all();
  }
}

CUstream_st* MakeStream(StreamKind kind, int priority) {
  auto* const made = new CUstream_st(CurrentDevice(), kind, priority);
  const std::lock_guard<std::mutex> lock(AllStreams().mu);
  AllStreams().all.insert(made);
  return made;
}

bool DestroyStream(CUstream_st* stream) {
  {
    std::unique_lock<std::mutex> lock(AllStreams().mu);
    if (AllStreams().all.erase(stream) == 0) return false;
    AllStreams().left.wait(lock,
                           [&] { return stream->num_synchronizing == 0; });
  }
  delete stream;
  return true;
}

Stream* StreamOf(cudaStream_t stream) {
  if (!IsLegacy(stream)) return &stream->stream;
  const std::lock_guard<std::mutex> lock(AllStreams().mu);
  CUstream_st*& made = AllStreams().defaults[CurrentDevice()];
  if (made == nullptr) {
    made = new CUstream_st(CurrentDevice(), StreamKind::kLegacy, 0);
    AllStreams().all.insert(made);
  }
  return &made->stream;
}

}  // namespace fake_gpu

using fake_gpu::AllStreams;
using fake_gpu::StreamOf;

void fake_gpu_delay(uint64_t seed, uint32_t most_us) {
  fake_gpu::delay_seed = seed;
  fake_gpu::delay_us = most_us;
}

void fake_gpu_deterministic(uint64_t seed) {
  if (fake_gpu::TheDriver().on()) fake_gpu::TheDriver().Stop();
  fake_gpu::AllClocks().Stop();
  if (seed == 0) return;
  fake_gpu::TheDriver().Start(seed);
  fake_gpu::AllClocks().Start();
}

int fake_gpu_launch(void* stream, void (*fn)(void* user), void* user) {
  return fake_gpu_launch_ranges(stream, "", nullptr, 0, fn, user);
}

int fake_gpu_launch_ranges(void* stream, const char* name,
                           const fake_gpu_range_t* ranges, size_t num_ranges,
                           void (*fn)(void* user), void* user) {
  std::vector<fake_gpu::Range> all;
  for (size_t i = 0; i < num_ranges; ++i) {
    all.push_back({ranges[i].address, ranges[i].bytes, ranges[i].writes != 0});
  }
  StreamOf(static_cast<cudaStream_t>(stream))
      ->Enqueue(name, all, {[=] { fn(user); }, nullptr});
  return cudaSuccess;
}

uint64_t fake_gpu_num_streams(void) {
  const std::lock_guard<std::mutex> lock(AllStreams().mu);
  uint64_t defaults = 0;
  for (const CUstream_st* each : AllStreams().defaults) {
    defaults += each != nullptr ? 1 : 0;
  }
  return AllStreams().all.size() - defaults;
}
