// How backend "ucx" reads memory of other processes.
#include "plugins/ucx/host/peer_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

namespace commsched::ucx {
namespace {

std::atomic<uint64_t> own_value{42};

uint64_t AddressOf(const void* memory) {
  return reinterpret_cast<uint64_t>(memory);
}

// A child that lives until it is told to end, by the end of this object.
class Child {
 public:
  Child() {
    EXPECT_EQ(pipe(pipe_), 0);
    pid_ = fork();
    if (pid_ != 0) {
      close(pipe_[0]);
      return;
    }
    close(pipe_[1]);
    char byte = 0;
    while (read(pipe_[0], &byte, 1) > 0) {
    }
    _exit(0);
  }
  ~Child() { End(); }

  void End() {
    if (pid_ == 0) return;
    close(pipe_[1]);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }

 private:
  int pipe_[2] = {};
  pid_t pid_ = 0;
};

TEST(PeerMemoryTest, AProcessMayReadItself) {
  EXPECT_TRUE(CanRead(OwnMemoryCard(own_value)));
  const std::string from(100'000, 'x');
  std::string to(from.size(), '\0');
  EXPECT_TRUE(
      ReadMemory(getpid(), AddressOf(from.data()), to.data(), to.size()).ok());
  EXPECT_EQ(from, to);
}

TEST(PeerMemoryTest, AProcessReadsItsChild) {
  static uint64_t value = 42;  // The child's copy keeps this.
  Child child;
  value = 43;
  uint64_t read = 0;
  EXPECT_TRUE(
      ReadMemory(child.pid(), AddressOf(&value), &read, sizeof(read)).ok());
  EXPECT_EQ(read, 42u);
}

TEST(PeerMemoryTest, OneThatIsGoneIsAnErrorThatNamesIt) {
  static const uint64_t value = 42;
  Child child;
  const pid_t pid = child.pid();
  child.End();
  uint64_t read = 0;
  const Outcome outcome =
      ReadMemory(pid, AddressOf(&value), &read, sizeof(read));
  EXPECT_EQ(outcome.code, COMMSCHED_UNAVAILABLE);
  EXPECT_NE(outcome.reason.find("process " + std::to_string(pid)),
            std::string::npos)
      << outcome.reason;
}

TEST(PeerMemoryTest, MemoryThatIsGoneIsAnErrorNotACrash) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  void* const memory = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  munmap(static_cast<char*>(memory) + page, page);
  std::string to(2 * page, '\0');
  EXPECT_EQ(ReadMemory(getpid(), AddressOf(memory), to.data(), to.size()).code,
            COMMSCHED_UNAVAILABLE);
  munmap(memory, page);
}

TEST(PeerMemoryTest, ACardOfAnotherMachineOrProcessIsNotReadable) {
  MemoryCard other = OwnMemoryCard(own_value);
  std::strcpy(other.machine, "another one");
  EXPECT_FALSE(CanRead(other));
  other = OwnMemoryCard(own_value);
  ++other.value;  // Another process with that id.
  EXPECT_FALSE(CanRead(other));
  EXPECT_FALSE(CanRead(MemoryCard()));
}

TEST(PeerMemoryTest, WhatAProcessHasTakenBackIsNotReadAsWhatItOffered) {
  std::atomic<uint64_t> value{43};
  const MemoryCard card = OwnMemoryCard(value);
  const std::string from(100'000, 'x');
  std::string to(from.size(), '\0');
  EXPECT_TRUE(
      ReadMemory(card, AddressOf(from.data()), to.data(), to.size()).ok());
  EXPECT_EQ(from, to);
  value = 0;
  const Outcome outcome =
      ReadMemory(card, AddressOf(from.data()), to.data(), to.size());
  EXPECT_EQ(outcome.code, COMMSCHED_UNAVAILABLE);
  EXPECT_NE(outcome.reason.find("it has taken them back"), std::string::npos)
      << outcome.reason;
}

}  // namespace
}  // namespace commsched::ucx
