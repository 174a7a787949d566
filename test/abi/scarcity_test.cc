// Threads and descriptors that are not to be had: each call that needs one says
// so, leaves nothing behind, and succeeds when it is called again.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commsched/commsched.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

// How many threads may be started until one cannot; 0: no more of that.
std::atomic<int> threads_until_failure{0};
std::atomic<int> threads_refused{0};

}  // namespace

// That of the C library, but for the one thread. All that is linked to this
// program, or that it loads, calls this one. UCX ends the process where it has
// no thread, and is given its own.
extern "C" __attribute__((visibility("default"))) int pthread_create(
    pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
    void* argument) noexcept {
  Dl_info caller = {};
  dladdr(__builtin_return_address(0), &caller);
  const bool is_ucx = caller.dli_fname != nullptr &&
                      std::strstr(caller.dli_fname, "libucs") != nullptr;
  if (!is_ucx && threads_until_failure > 0 && --threads_until_failure == 0) {
    ++threads_refused;
    return EAGAIN;
  }
  static const auto next = reinterpret_cast<decltype(&pthread_create)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, start, argument);
}

namespace commsched {
namespace {

namespace cs = api;
using testing::Contains;
using testing::HasSubstr;

constexpr int kManyTries = 128;

size_t CountOf(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}
size_t NumThreads() { return CountOf("/proc/self/task"); }
size_t NumDescriptors() { return CountOf("/proc/self/fd"); }

// A thread that was joined may be there a moment longer.
void ExpectThreads(size_t expected) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (NumThreads() != expected && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  EXPECT_EQ(NumThreads(), expected);
}

// The second rank's thread, which is there before threads become scarce.
class OtherRank {
 public:
  OtherRank() : thread_([this] { Run(); }) {}
  ~OtherRank() {
    Begin(nullptr);
    thread_.join();
  }

  // Calls `body` with both ranks, and returns when both are done.
  void OnBoth(const std::function<void(int rank)>& body) {
    Begin([&] { body(1); });
    body(0);
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return !busy_; });
  }

 private:
  void Begin(std::function<void()> job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    job_ = std::move(job);
    busy_ = true;
    changed_.notify_all();
  }
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return busy_; });
      if (job_ == nullptr) return;
      lock.unlock();
      job_();
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool busy_ = false;
  std::thread thread_;
};

// What a rank has before its session.
struct Prepared {
  cs::Context context;
  cs::Group group;
  cs::HostStream stream;
};

cs::Status Prepare(const cs::World& world, int rank, Prepared* out) {
  cs::Result<cs::Context> context = cs::Context::Create(world, rank);
  if (!context.ok()) return context.status();
  out->context = *std::move(context);
  cs::Result<cs::Group> group = cs::Group::CreateWorld(out->context, "dp");
  if (!group.ok()) return group.status();
  out->group = *std::move(group);
  cs::Result<cs::HostStream> stream =
      cs::HostStream::Create(out->context, "spare", 8);
  if (!stream.ok()) return stream.status();
  out->stream = *std::move(stream);
  return {};
}

// A session with one all-reduce, and a step of it.
cs::Status RunSession(const Prepared& rank, int size) {
  cs::Graph graph;
  const cs::GroupId dp = *graph.AddGroup("dp", size);
  cs::Buffer buffer;
  buffer.name = "x";
  buffer.count = 1;
  buffer.ownership = COMMSCHED_BOUND;
  const cs::BufferId x = *graph.AddBuffer(buffer);
  cs::Compute fill;
  fill.name = "fill";
  fill.accesses = {cs::Writes(x)};
  const cs::OpId op = *graph.Add(fill);
  cs::Collective sum;
  sum.name = "sum";
  sum.kind = COMMSCHED_ALL_REDUCE;
  sum.group = dp;
  sum.input = cs::Reads(x);
  sum.output = cs::Writes(x);
  EXPECT_TRUE(graph.Add(sum).ok());
  const cs::Plan plan = *cs::Plan::Build(graph);
  float value = 0;
  cs::SessionSpec spec;
  spec.context = &rank.context;
  spec.plan = &plan;
  spec.groups = {&rank.group};
  spec.Bind(x, &value, sizeof(value));
  cs::Result<cs::Session> session = cs::Session::Create(spec);
  if (!session.ok()) return session.status();
  cs::Status status = session->StepBegin();
  if (status.ok()) status = session->Before(op);
  value = 1;
  if (status.ok()) status = session->After(op);
  if (status.ok()) status = session->StepEnd();
  if (status.ok()) status = session->Drain();
  EXPECT_TRUE(!status.ok() || value == static_cast<float>(size));
  return status;
}

// What two ranks that are threads do from the world to its end. The other rank
// of a session learns why there is none.
cs::Status LifeOfThreads(OtherRank& other) {
  cs::Result<cs::World> world = cs::World::CreateInproc(2);
  if (!world.ok()) return world.status();
  Prepared prepared[2];
  cs::Status statuses[2];
  other.OnBoth([&](int rank) {
    statuses[rank] = Prepare(*world, rank, &prepared[rank]);
  });
  if (statuses[0].ok() && statuses[1].ok()) {
    other.OnBoth(
        [&](int rank) { statuses[rank] = RunSession(prepared[rank], 2); });
    const int failed =
        statuses[0].code() == COMMSCHED_RESOURCE_EXHAUSTED ? 0 : 1;
    if (!statuses[failed].ok()) {
      EXPECT_EQ(statuses[1 - failed].code(), COMMSCHED_FAILED_PRECONDITION);
      EXPECT_THAT(statuses[1 - failed].message(),
                  HasSubstr(statuses[failed].message()));
      return statuses[failed];
    }
  }
  return statuses[0].ok() ? statuses[1] : statuses[0];
}

TEST(ScarcityTest, AThreadThatCannotBeStartedIsNamed) {
  OtherRank other;
  ASSERT_TRUE(LifeOfThreads(other).ok());
  const size_t threads = NumThreads();
  const size_t descriptors = NumDescriptors();
  std::vector<std::string> messages;
  for (int k = 1;; ++k) {
    ASSERT_LT(k, kManyTries);
    threads_refused = 0;
    threads_until_failure = k;
    const cs::Status status = LifeOfThreads(other);
    threads_until_failure = 0;
    if (threads_refused == 0) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      break;
    }
    EXPECT_EQ(status.code(), COMMSCHED_RESOURCE_EXHAUSTED)
        << k << ": " << status.ToString();
    messages.push_back(status.message());
    ExpectThreads(threads);
    EXPECT_EQ(NumDescriptors(), descriptors);
    const cs::Status again = LifeOfThreads(other);
    EXPECT_TRUE(again.ok()) << k << ": " << again.ToString();
  }
  for (const char* what :
       {"cannot start the thread of stream 'spare': Resource temporarily "
        "unavailable",
        "cannot start the progress thread of rank "}) {
    EXPECT_THAT(messages, Contains(HasSubstr(what)));
  }
}

#ifdef COMMSCHED_TEST_UCX
// What a process does that is a job of one, and runs its control server.
cs::Status LifeOfAProcess() {
  commsched_join_desc_t desc = commsched_join_desc_init();
  desc.rank = 0;
  desc.size = 1;
  desc.timeout_ns = int64_t{2} * 1000 * 1000 * 1000;
  cs::Result<cs::World> world = cs::World::Join(desc);
  if (!world.ok()) return world.status();
  Prepared prepared;
  const cs::Status status = Prepare(*world, 0, &prepared);
  return status.ok() ? RunSession(prepared, 1) : status;
}

TEST(ScarcityTest, SoIsOneOfAProcess) {
  ASSERT_TRUE(LifeOfAProcess().ok());
  const size_t threads = NumThreads();
  const size_t descriptors = NumDescriptors();
  std::vector<std::string> messages;
  // In its few meetings a rank does without the thread that makes progress
  // meanwhile.
  int num_spared = 0;
  for (int k = 1;; ++k) {
    ASSERT_LT(k, kManyTries);
    threads_refused = 0;
    threads_until_failure = k;
    const cs::Status status = LifeOfAProcess();
    threads_until_failure = 0;
    if (threads_refused == 0) {
      EXPECT_TRUE(status.ok()) << status.ToString();
      break;
    }
    if (status.ok()) {
      ++num_spared;
    } else {
      EXPECT_EQ(status.code(), COMMSCHED_RESOURCE_EXHAUSTED)
          << k << ": " << status.ToString();
      messages.push_back(status.message());
    }
    ExpectThreads(threads);
    EXPECT_EQ(NumDescriptors(), descriptors) << k;
    const cs::Status again = LifeOfAProcess();
    EXPECT_TRUE(again.ok()) << k << ": " << again.ToString();
  }
  EXPECT_LE(num_spared, 4);
  for (const char* what :
       {"cannot start the thread of the control server: Resource",
        "cannot start the control thread of rank 0: Resource",
        "cannot start the thread of UCX: Resource",
        "cannot start the progress thread of rank 0: Resource"}) {
    EXPECT_THAT(messages, Contains(HasSubstr(what)));
  }
}

// All descriptors but some are taken.
class FewDescriptors {
 public:
  explicit FewDescriptors(int num_free) {
    int fd = -1;
    while ((fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
      taken_.push_back(fd);
    }
    for (; num_free > 0 && !taken_.empty(); --num_free) {
      close(taken_.back());
      taken_.pop_back();
    }
  }
  ~FewDescriptors() {
    for (const int fd : taken_) close(fd);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  std::vector<int> taken_;
};

TEST(ScarcityTest, DescriptorsThatAreNotThereAreMissed) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer of undefined behaviour takes a descriptor to "
                  "look at an object's type, and ends the process without one";
#endif
  ASSERT_TRUE(LifeOfAProcess().ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 512;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const size_t threads = NumThreads();
  const size_t descriptors = NumDescriptors();
  for (int num_free = 0;; ++num_free) {
    ASSERT_LT(num_free, kManyTries);
    cs::Status status;
    {
      const FewDescriptors few(num_free);
      status = LifeOfAProcess();
    }
    if (status.ok()) break;
    EXPECT_EQ(status.code(), COMMSCHED_RESOURCE_EXHAUSTED)
        << num_free << ": " << status.ToString();
    ExpectThreads(threads);
    EXPECT_EQ(NumDescriptors(), descriptors) << num_free;
  }
  EXPECT_TRUE(LifeOfAProcess().ok());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}
#endif

}  // namespace
}  // namespace commsched
