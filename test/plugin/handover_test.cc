// How ranks of a host get each other's memory with backend "ucx".
#include "plugins/ucx/host/handover.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::ucx {
namespace {

// Sockets of which recvmsg() has told an end where a message was: it tells of
// that when it is asked again. Null: it tells what is so.
std::set<int>* told_of_an_end = nullptr;
int num_ends_told = 0;

class EndsComeFirst {
 public:
  EndsComeFirst() {
    num_ends_told = 0;
    told_of_an_end = &told_;
  }
  ~EndsComeFirst() { told_of_an_end = nullptr; }

  int count() const { return num_ends_told; }

 private:
  std::set<int> told_;
};

bool HasMessage(int fd) {
  pollfd one = {fd, POLLIN, 0};
  char byte = 0;
  return poll(&one, 1, 0) == 1 && recv(fd, &byte, 1, MSG_PEEK) == 1;
}

}  // namespace
}  // namespace commsched::ucx

// In place of the C library's, for this program.
extern "C" ssize_t recvmsg(int fd, msghdr* message, int flags) {
  namespace ucx = commsched::ucx;
  if (ucx::told_of_an_end != nullptr && ucx::HasMessage(fd) &&
      ucx::told_of_an_end->insert(fd).second) {
    ++ucx::num_ends_told;
    return 0;
  }
  if (ucx::told_of_an_end != nullptr) ucx::told_of_an_end->erase(fd);
  static const auto next =
      reinterpret_cast<decltype(&recvmsg)>(dlsym(RTLD_NEXT, "recvmsg"));
  return next(fd, message, flags);
}

namespace commsched::ucx {
namespace {

using State = Handover::State;

constexpr uint64_t kSharedBytes = 16 << 10;

// A rank, as far as it is to be handed over.
struct HandedRank {
  HandedRank(int rank, int world_size, uint64_t bytes = kSharedBytes) {
    EXPECT_TRUE(Segment::Create(bytes, &segment).ok());
    const uint64_t nonce = 1000 + static_cast<uint64_t>(rank);
    std::memcpy(segment.data(), &nonce, sizeof(nonce));
    EXPECT_TRUE(
        Handover::Open(rank, world_size, segment, event_fd.get(), &handover)
            .ok());
  }
  State StateOf(int peer) const { return handover->StateOf(peer); }

  Segment segment;
  Descriptor event_fd{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::unique_ptr<Handover> handover;
};

void StepBoth(HandedRank* one, HandedRank* other) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(one->handover->Step(0).ok());
    ASSERT_TRUE(other->handover->Step(0).ok());
  }
}

std::string NameOf(const SegmentCard& card) {
  char name[64];
  snprintf(name, sizeof(name), "commsched-ucx-%016llx",
           static_cast<unsigned long long>(card.name));
  return name;
}

bool IsListed(const SegmentCard& card) {
  std::ifstream file("/proc/net/unix");
  const std::string all((std::istreambuf_iterator<char>(file)),
                        std::istreambuf_iterator<char>());
  EXPECT_NE(all, "");
  return all.find("@" + NameOf(card)) != std::string::npos;
}

std::set<std::string> NamesIn(const char* folder) {
  std::set<std::string> names;
  DIR* const entries = opendir(folder);
  if (entries == nullptr) return names;
  while (const dirent* entry = readdir(entries)) names.insert(entry->d_name);
  closedir(entries);
  return names;
}

Descriptor Call(const SegmentCard& card) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string name = NameOf(card);
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  Descriptor fd(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                           name.size())),
            0);
  return fd;
}

// So many descriptors can be opened, and no more, until it is gone.
class FewDescriptors {
 public:
  explicit FewDescriptors(size_t count) {
    getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few = {256, before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    while (true) {
      Descriptor one(open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one.is_open()) break;
      taken_.push_back(std::move(one));
    }
    EXPECT_GE(taken_.size(), count);
    while (count-- > 0 && !taken_.empty()) taken_.pop_back();
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
  std::vector<Descriptor> taken_;
};

// What a rank says, with a secret that is none, and three descriptors.
void SayTooMuch(int to) {
  uint64_t hello[3] = {};
  const int fds[3] = {to, to, to};
  alignas(cmsghdr) char buffer[CMSG_SPACE(sizeof(fds))] = {};
  iovec part = {hello, sizeof(hello)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = buffer;
  message.msg_controllen = sizeof(buffer);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(header), fds, sizeof(fds));
  EXPECT_EQ(sendmsg(to, &message, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof(hello)));
}

bool IsHungUpOn(const Descriptor& caller) {
  char byte = 0;
  return recv(caller.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

TEST(HandoverTest, RanksOfAHostGetEachOthersSegments) {
  HandedRank zero(0, 2), one(1, 2);
  EXPECT_EQ(zero.StateOf(1), State::kUnknown);
  zero.handover->Begin(1, one.handover->card());
  EXPECT_EQ(zero.StateOf(1), State::kBegun);
  one.handover->Begin(0, zero.handover->card());
  StepBoth(&zero, &one);
  ASSERT_EQ(zero.StateOf(1), State::kShared);
  ASSERT_EQ(one.StateOf(0), State::kShared);
  const SharedParts parts = zero.handover->TakeParts(1);
  parts.segment.data()[100] = 'x';
  EXPECT_EQ(one.segment.data()[100], 'x');
  eventfd_write(parts.event_fd.get(), 5);
  eventfd_t value = 0;
  EXPECT_EQ(eventfd_read(one.event_fd.get(), &value), 0);
  EXPECT_EQ(value, 5u);
}

TEST(HandoverTest, WhoIsEarlyWaitsForTheOther) {
  HandedRank zero(0, 2), one(1, 2);
  zero.handover->Begin(1, one.handover->card());
  StepBoth(&zero, &one);  // Heard, but rank 1 does not know the card yet.
  EXPECT_EQ(zero.StateOf(1), State::kBegun);
  EXPECT_EQ(one.StateOf(0), State::kUnknown);
  EXPECT_TRUE(one.handover->HasCalled(0));
  EXPECT_FALSE(one.handover->IsWaiting());  // Its own word is not due.
  one.handover->Begin(0, zero.handover->card());
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kShared);
  EXPECT_EQ(one.StateOf(0), State::kShared);
}

TEST(HandoverTest, WhoIsCalledCanSleepUntilThen) {
  HandedRank zero(0, 2), one(1, 2);
  pollfd listens = {one.handover->listener_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&listens, 1, 0), 0);
  zero.handover->Begin(1, one.handover->card());
  EXPECT_TRUE(zero.handover->IsWaiting());
  ASSERT_TRUE(zero.handover->Step(0).ok());
  EXPECT_EQ(poll(&listens, 1, 0), 1);
  EXPECT_FALSE(one.handover->HasCalled(0));
  ASSERT_TRUE(one.handover->Step(0).ok());
  EXPECT_EQ(poll(&listens, 1, 0), 0);
  EXPECT_TRUE(one.handover->HasCalled(0));
}

TEST(HandoverTest, ANameThatIsNotHereIsOfAnotherHost) {
  HandedRank zero(0, 3);
  SegmentCard card = zero.handover->card();
  ++card.name;
  zero.handover->Begin(1, card);
  zero.handover->Begin(2, SegmentCard());  // It shares nothing.
  EXPECT_EQ(zero.StateOf(2), State::kApart);
  ASSERT_TRUE(zero.handover->Step(0).ok());
  EXPECT_EQ(zero.StateOf(1), State::kApart);
}

// Linux tells of the end of a connection before the message that was sent ahead
// of it, if both come while it looks (handover.cc).
TEST(HandoverTest, AMessageIsHeardThoughTheEndIsToldOfFirst) {
  HandedRank zero(0, 2), one(1, 2);
  zero.handover->Begin(1, one.handover->card());
  one.handover->Begin(0, zero.handover->card());
  const EndsComeFirst ends_come_first;
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kShared) << zero.handover->WhyApart(1);
  EXPECT_EQ(one.StateOf(0), State::kShared) << one.handover->WhyApart(0);
  EXPECT_GE(ends_come_first.count(), 4);  // Two hellos, two confirmations.
}

// Such as one of a machine that is a copy of this one.
TEST(HandoverTest, OneOfWhomTheOtherHasNothingIsApartForBoth) {
  HandedRank zero(0, 2), one(1, 2);
  SegmentCard wrong = one.handover->card();
  wrong.nonce = 7;
  zero.handover->Begin(1, wrong);
  one.handover->Begin(0, zero.handover->card());
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kApart);
  EXPECT_EQ(one.StateOf(0), State::kApart);
  EXPECT_EQ(zero.handover->WhyApart(1), "its memory is another one");
  EXPECT_EQ(one.handover->WhyApart(0),
            "no confirmation, confirmed here: it has hung up");
  EXPECT_EQ(one.handover->TakeParts(0).segment.data(), nullptr);
}

TEST(HandoverTest, OneThatCannotBeReachedIsApartForBoth) {
  HandedRank zero(0, 2), one(1, 2);
  SegmentCard wrong = one.handover->card();
  ++wrong.name;
  one.handover->Begin(0, zero.handover->card());
  ASSERT_TRUE(one.handover->Step(0).ok());  // It is first.
  zero.handover->Begin(1, wrong);
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kApart);
  EXPECT_EQ(one.StateOf(0), State::kApart);
}

TEST(HandoverTest, ASegmentOfAnotherSizeIsNotTaken) {
  HandedRank zero(0, 2), one(1, 2, 2 * kSharedBytes);
  zero.handover->Begin(1, one.handover->card());
  one.handover->Begin(0, zero.handover->card());
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kApart);
  EXPECT_EQ(one.StateOf(0), State::kApart);
}

TEST(HandoverTest, WhoDoesNotKnowTheSecretIsHungUpOn) {
  HandedRank zero(0, 2), one(1, 2);
  SegmentCard guessed = zero.handover->card();
  ++guessed.secret[1];
  one.handover->Begin(0, guessed);
  zero.handover->Begin(1, one.handover->card());
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kApart);
  EXPECT_EQ(one.StateOf(0), State::kApart);
}

TEST(HandoverTest, StrangersDoNotHinderOthers) {
  HandedRank zero(0, 2), one(1, 2);
  const Descriptor silent = Call(zero.handover->card());
  const Descriptor loud = Call(zero.handover->card());
  ASSERT_EQ(send(loud.get(), "let me in", 9, MSG_NOSIGNAL), 9);
  const Descriptor generous = Call(zero.handover->card());
  SayTooMuch(generous.get());
  const Descriptor gone = [&] { return Call(zero.handover->card()); }();
  zero.handover->Begin(1, one.handover->card());
  one.handover->Begin(0, zero.handover->card());
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kShared);
  EXPECT_EQ(one.StateOf(0), State::kShared);
  for (const Descriptor* stranger : {&silent, &loud, &generous}) {
    EXPECT_TRUE(IsHungUpOn(*stranger));
  }
}

TEST(HandoverTest, OfStrangersWhoSayNothingAFewAreKept) {
  constexpr size_t kStrangers = 100;
  HandedRank zero(0, 2), one(1, 2);
  std::vector<Descriptor> strangers;
  for (size_t i = 0; i < kStrangers; ++i) {
    strangers.push_back(Call(zero.handover->card()));
  }
  zero.handover->Begin(1, one.handover->card());
  const size_t before = NamesIn("/proc/self/fd").size();
  ASSERT_TRUE(zero.handover->Step(0).ok());
  EXPECT_LT(NamesIn("/proc/self/fd").size(), before + 30);
  one.handover->Begin(0, zero.handover->card());
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kShared);
  EXPECT_EQ(one.StateOf(0), State::kShared);
  for (const Descriptor& stranger : strangers) {
    ASSERT_TRUE(IsHungUpOn(stranger));
  }
}

TEST(HandoverTest, WhoseDescriptorsFindNoRoomIsApartForBoth) {
  HandedRank zero(0, 2), one(1, 2);
  one.handover->Begin(0, zero.handover->card());
  ASSERT_TRUE(one.handover->Step(0).ok());
  zero.handover->Begin(1, one.handover->card());
  {
    const FewDescriptors few(2);  // The connection, and one of two.
    EXPECT_EQ(zero.handover->Step(0).code, COMMSCHED_RESOURCE_EXHAUSTED);
  }
  StepBoth(&zero, &one);
  EXPECT_EQ(zero.StateOf(1), State::kApart);
  EXPECT_EQ(one.StateOf(0), State::kApart);
}

TEST(HandoverTest, ThreeDescriptorsAPeerAreEnough) {
  constexpr int kPeers = 8;
  HandedRank zero(0, kPeers + 1);
  std::vector<std::unique_ptr<HandedRank>> peers;
  for (int i = 1; i <= kPeers; ++i) {
    peers.push_back(std::make_unique<HandedRank>(i, kPeers + 1));
    zero.handover->Begin(i, peers.back()->handover->card());
  }
  ASSERT_TRUE(zero.handover->Step(0).ok());  // Has called all.
  for (const auto& peer : peers) {
    peer->handover->Begin(0, zero.handover->card());
    ASSERT_TRUE(peer->handover->Step(0).ok());
  }
  {
    const FewDescriptors few(2 * kPeers + 1);
    EXPECT_TRUE(zero.handover->Step(0).ok());
  }
  for (int i = 1; i <= kPeers; ++i) {
    EXPECT_EQ(zero.StateOf(i), State::kShared) << i;
  }
}

// Sanitizers need memory by themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(HandoverTest, WhatCannotBeMappedNowIsMappedLater) {
  const pid_t child = fork();
  if (child == 0) {
    HandedRank zero(0, 2), one(1, 2);
    one.handover->Begin(0, zero.handover->card());
    bool is_right = one.handover->Step(0).ok();
    zero.handover->Begin(1, one.handover->card());
    rlimit before;
    getrlimit(RLIMIT_AS, &before);
    const rlimit none = {1 << 20, before.rlim_max};
    setrlimit(RLIMIT_AS, &none);
    is_right &= zero.handover->Step(0).code == COMMSCHED_RESOURCE_EXHAUSTED;
    setrlimit(RLIMIT_AS, &before);
    StepBoth(&zero, &one);
    is_right &= zero.StateOf(1) == State::kShared &&
                one.StateOf(0) == State::kShared &&
                zero.handover->TakeParts(1).segment.data() != nullptr;
    _exit(is_right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

TEST(HandoverTest, ProgramsThatAreStartedInheritNothing) {
  const std::set<std::string> before = NamesIn("/proc/self/fd");
  HandedRank zero(0, 2), one(1, 2);
  zero.handover->Begin(1, one.handover->card());
  one.handover->Begin(0, zero.handover->card());
  StepBoth(&zero, &one);
  const SharedParts parts = zero.handover->TakeParts(1);
  int num_new = 0;
  for (const std::string& name : NamesIn("/proc/self/fd")) {
    const int flags = fcntl(atoi(name.c_str()), F_GETFD);
    if (before.contains(name) || flags < 0) continue;
    ++num_new;
    EXPECT_NE(flags & FD_CLOEXEC, 0) << name;
  }
  EXPECT_GE(num_new, 7);
}

// A process of its own, and rank 1; its card comes by a pipe.
TEST(HandoverTest, NothingIsLeftOfAProcessThatIsKilled) {
  const std::set<std::string> before = NamesIn("/dev/shm");
  HandedRank zero(0, 2);
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    HandedRank one(1, 2);
    one.segment.data()[100] = 'y';
    one.handover->Begin(0, zero.handover->card());
    const SegmentCard card = one.handover->card();
    if (write(pipe_fds[1], &card, sizeof(card)) != sizeof(card)) _exit(1);
    while (one.handover->Step(1000).ok()) {
    }
    _exit(1);
  }
  SegmentCard card;
  ASSERT_EQ(read(pipe_fds[0], &card, sizeof(card)),
            static_cast<ssize_t>(sizeof(card)));
  zero.handover->Begin(1, card);
  while (zero.StateOf(1) == State::kBegun) {
    ASSERT_TRUE(zero.handover->Step(1000).ok());
  }
  EXPECT_EQ(zero.StateOf(1), State::kShared);
  EXPECT_TRUE(IsListed(card));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(IsListed(card));
  for (const std::string& name : NamesIn("/dev/shm")) {
    if (before.contains(name)) continue;  // Others may leave what they like.
    EXPECT_EQ(name.find("commsched"), std::string::npos) << name;
  }
  const SharedParts parts = zero.handover->TakeParts(1);
  EXPECT_EQ(parts.segment.data()[100], 'y');  // It stays as long as this does.
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

}  // namespace
}  // namespace commsched::ucx
