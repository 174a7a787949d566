#include "driver.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace fake_gpu {
namespace {

// Of a query, which is often answered while nothing has moved.
constexpr uint32_t kMostPicks = 8;

}  // namespace

void Driver::Start(uint64_t seed) {
  const std::lock_guard<std::mutex> lock(mu_);
  random_.seed(static_cast<uint32_t>(seed ^ seed >> 32));
  ++run_;
  on_ = true;
}

void Driver::Stop() {
  const std::lock_guard<std::mutex> lock(mu_);
  for (const auto& queue : queues_) {
    if (queue->works.empty()) continue;
    std::fprintf(stderr, "fake_gpu_deterministic(): work is left\n");
    std::abort();
  }
  queues_.clear();
  on_ = false;
}

std::shared_ptr<Driver::Queue> Driver::MakeQueue() {
  auto queue = std::make_shared<Queue>();
  const std::lock_guard<std::mutex> lock(mu_);
  queues_.push_back(queue);
  return queue;
}

void Driver::Enqueue(Queue* queue, Work work) {
  const std::lock_guard<std::mutex> lock(mu_);
  queue->works.push_back(std::move(work));
  ++queue->num_enqueued;
  ++version_;
  changed_.notify_all();
}

void Driver::Wake() {
  const std::lock_guard<std::mutex> lock(mu_);
  ++version_;
  changed_.notify_all();
}

// Whether the work at the head has moved. Others may enqueue meanwhile.
bool Driver::TryHead(Queue* queue, std::unique_lock<std::mutex>* lock) {
  Work& work = queue->works.front();  // Stays there while others push behind.
  picks_ = true;
  lock->unlock();
  Progress progress = Progress::kDone;
  if (work.try_run != nullptr) {
    progress = work.try_run();
  } else {
    work.run();
  }
  lock->lock();
  picks_ = false;
  if (progress == Progress::kDone) {
    queue->works.pop_front();
    ++queue->num_run;
  }
  if (progress != Progress::kNone) ++version_;
  changed_.notify_all();
  return progress != Progress::kNone;
}

// Whether anything has moved.
bool Driver::Pick(std::unique_lock<std::mutex>* lock) {
  std::vector<std::shared_ptr<Queue>> heads;
  // Those of streams that have gone.
  std::erase_if(queues_, [](const std::shared_ptr<Queue>& queue) {
    return queue->works.empty() && queue.use_count() == 1;
  });
  for (const auto& queue : queues_) {
    if (!queue->works.empty()) heads.push_back(queue);
  }
  while (!heads.empty()) {
    const size_t at = random_() % heads.size();
    if (TryHead(heads[at].get(), lock)) return true;
    heads[at] = std::move(heads.back());
    heads.pop_back();
  }
  return false;
}

void Driver::RunUntil(const std::function<bool()>& done) {
  std::unique_lock<std::mutex> lock(mu_);
  while (!done()) {
    if (picks_) {
      changed_.wait(lock);
      continue;
    }
    const uint64_t seen = version_;
    if (Pick(&lock)) continue;
    changed_.wait(lock, [&] { return version_ != seen || done(); });
  }
}

void Driver::RunToEnd(Queue* queue) {
  uint64_t until = 0;
  {
    const std::lock_guard<std::mutex> lock(mu_);
    until = queue->num_enqueued;
  }
  RunUntil([=] { return queue->num_run >= until; });
}

bool Driver::IsIdle(Queue* queue) {
  const std::lock_guard<std::mutex> lock(mu_);
  return queue->works.empty();
}

void Driver::RunSome() {
  std::unique_lock<std::mutex> lock(mu_);
  const uint32_t drawn = static_cast<uint32_t>(random_() % (2 * kMostPicks));
  for (uint32_t i = kMostPicks; i < drawn; ++i) {
    if (picks_ || !Pick(&lock)) return;
  }
}

Driver& TheDriver() {
  static auto* const driver = new Driver;
  return *driver;
}

}  // namespace fake_gpu
