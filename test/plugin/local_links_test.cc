// Messages between ranks of a host with backend "ucx".
#include "plugins/ucx/host/local_links.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "plugins/ucx/tags.h"
#include "test/support/alloc_counter.h"

namespace commsched::ucx {
namespace {

constexpr uint64_t kComm = 5;

uint64_t DataTagOf(uint64_t type, uint64_t comm = kComm) {
  return comm << (kRankBits + kTypeBits) | type;
}
uint64_t NoticeTagOf(uint64_t source, uint64_t comm = kComm) {
  return DataTagOf(kNoticeType, comm) | source << kTypeBits;
}

std::string TextOf(uint64_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(bytes, '\0');
  for (uint64_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(text.data() + at, &word,
                std::min<uint64_t>(sizeof(word), bytes - at));
  }
  return text;
}

// A message and what has become of it.
struct TestMessage final : Receiver {
  explicit TestMessage(std::string given) : text(std::move(given)) {
    message.receiver = this;
    message.data = text.data();
    message.bytes = text.size();
  }
  void OnDone(Message* /*message*/, ucs_status_t with, uint64_t got) override {
    is_done = true;
    status = with;
    bytes = got;
  }
  void OnHeard(Message* /*message*/, const void* data, uint64_t size) override {
    heard.emplace_back(static_cast<const char*>(data), size);
  }

  std::string text;
  Message message;
  bool is_done = false;
  ucs_status_t status = UCS_OK;
  uint64_t bytes = 0;
  std::vector<std::string> heard;
};

Descriptor DuplicateOf(int fd) {
  return Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

class LocalLinksTest : public testing::Test {
 protected:
  explicit LocalLinksTest(int num_ranks = 2) {
    for (int rank = 0; rank < num_ranks; ++rank) {
      ranks_.emplace_back();
      EXPECT_TRUE(LocalLinks::Create(rank, num_ranks, &ranks_.back()).ok());
    }
    for (int to = 0; to < num_ranks; ++to) {
      for (int from = 0; from < num_ranks; ++from) {
        if (to != from) Introduce(from, to);
      }
    }
  }

  void Introduce(int from, int to) {
    LocalLinks& other = *ranks_[to];
    SharedParts parts;
    EXPECT_TRUE(Segment::Attach(DuplicateOf(other.segment().fd()),
                                other.segment().bytes(), &parts.segment)
                    .ok());
    parts.event_fd = DuplicateOf(other.event_fd());
    ranks_[from]->Add(to, std::move(parts));
  }

  void Send(TestMessage* message, uint64_t tag, int from = 0, int to = 1) {
    ranks_[from]->Send(to, tag, &message->message, message->text.data(),
                       message->text.size());
  }
  void Receive(TestMessage* message, uint64_t tag, int at = 1) {
    ranks_[at]->Receive(tag, &message->message);
  }
  void Progress(int rounds = 100) {
    for (int i = 0; i < rounds; ++i) {
      for (auto& rank : ranks_) rank->Progress();
    }
  }

  std::vector<std::unique_ptr<LocalLinks>> ranks_;
};

class LocalSizesTest : public LocalLinksTest,
                       public testing::WithParamInterface<uint64_t> {};

TEST_P(LocalSizesTest, WhatIsSentComesToAReceiveBeforeOrAfterIt) {
  for (const bool is_posted_first : {true, false}) {
    TestMessage sent(TextOf(GetParam(), 1));
    TestMessage received(std::string(GetParam(), '\0'));
    if (is_posted_first) Receive(&received, DataTagOf(1));
    Send(&sent, DataTagOf(1));
    if (!is_posted_first) {
      Progress();
      EXPECT_EQ(sent.is_done, GetParam() <= LocalLinks::kMostWholeBytes);
      Receive(&received, DataTagOf(1));
    }
    Progress();
    EXPECT_TRUE(sent.is_done);
    EXPECT_TRUE(received.is_done);
    EXPECT_EQ(received.bytes, GetParam());
    EXPECT_EQ(received.text, sent.text);
    EXPECT_FALSE(sent.message.IsUnderWay());
    EXPECT_FALSE(received.message.IsUnderWay());
  }
}

TEST_P(LocalSizesTest, AReceiveThatIsTooSmallIsAnErrorAndTheSendIsOver) {
  if (GetParam() == 0) return;
  for (const bool is_posted_first : {true, false}) {
    TestMessage sent(TextOf(GetParam(), 1));
    TestMessage received(std::string(GetParam() - 1, '\0'));
    if (is_posted_first) Receive(&received, DataTagOf(1));
    Send(&sent, DataTagOf(1));
    Progress();
    if (!is_posted_first) Receive(&received, DataTagOf(1));
    Progress();
    EXPECT_TRUE(sent.is_done);
    EXPECT_EQ(received.status, UCS_ERR_MESSAGE_TRUNCATED);
    EXPECT_EQ(received.text, std::string(GetParam() - 1, '\0'));
  }
}

INSTANTIATE_TEST_SUITE_P(Bytes, LocalSizesTest,
                         testing::Values(0, 1, 64, 65, 1024, 4096, 32 << 10,
                                         (32 << 10) + 1, 1'000'003));

// Nobody waits for the receive of another message, however many there are.
TEST_F(LocalLinksTest, MessagesThatNobodyReceivesHinderNoOther) {
  std::vector<std::unique_ptr<TestMessage>> unread;
  for (uint64_t i = 0; i < 1000; ++i) {
    const uint64_t sizes[] = {4, 5000, 30'000, 200'000};
    unread.push_back(std::make_unique<TestMessage>(TextOf(sizes[i % 4], i)));
    Send(unread.back().get(), DataTagOf(1));
    Progress(1);
  }
  TestMessage sent(TextOf(100'000, 1));
  TestMessage received(std::string(100'000, '\0'));
  Receive(&received, DataTagOf(2));
  Send(&sent, DataTagOf(2));
  Progress();
  EXPECT_TRUE(received.is_done);
  EXPECT_EQ(received.text, sent.text);
  for (const auto& one : unread) {
    TestMessage late(std::string(one->text.size(), '\0'));
    Receive(&late, DataTagOf(1));
    Progress(20);
    ASSERT_TRUE(one->is_done);
    ASSERT_TRUE(late.is_done);
    ASSERT_EQ(late.text, one->text);
  }
}

// Sizes, and who is first, by chance; both directions at once.
TEST_F(LocalLinksTest, MessagesOfATagComeInTheirOrder) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 10; ++round) {
    struct Matched {
      TestMessage sent, received;
    };
    std::map<std::pair<int, uint64_t>, std::vector<std::unique_ptr<Matched>>>
        all;
    for (int i = 0; i < 200; ++i) {
      const int from = static_cast<int>(random() % 2);
      const uint64_t tag =
          DataTagOf(static_cast<uint64_t>(from) * 4 + random() % 3);
      const uint64_t bytes =
          random() % 4 == 0 ? random() % 300'000 : random() % 3000;
      all[{from, tag}].push_back(std::make_unique<Matched>(
          Matched{TestMessage(TextOf(bytes, random())),
                  TestMessage(std::string(bytes, '\0'))}));
      Matched& one = *all[{from, tag}].back();
      for (TestMessage* message : {&one.sent, &one.received}) {
        message->message.receiver = message;
        message->message.data = message->text.data();
      }
    }
    std::map<std::pair<int, uint64_t>, std::pair<size_t, size_t>> next;
    for (size_t left = 400; left > 0;) {
      auto at = all.begin();
      std::advance(at, static_cast<long>(random() % all.size()));
      auto& [num_sent, num_received] = next[at->first];
      const auto& [from, tag] = at->first;
      if (random() % 2 == 0 && num_sent < at->second.size()) {
        Send(&at->second[num_sent++]->sent, tag, from, 1 - from);
        --left;
      } else if (num_received < at->second.size()) {
        Receive(&at->second[num_received++]->received, tag, 1 - from);
        --left;
      }
      if (random() % 3 == 0) ranks_[random() % 2]->Progress();
    }
    Progress(1000);
    for (const auto& [key, matched] : all) {
      for (const auto& one : matched) {
        ASSERT_TRUE(one->sent.is_done);
        ASSERT_TRUE(one->received.is_done);
        ASSERT_EQ(one->sent.text, one->received.text);
      }
    }
  }
}

TEST_F(LocalLinksTest, AReceiveFromAnySourceHearsAllUntilItIsCanceled) {
  TestMessage first("first"), second("second"), other("other"), late("late");
  Send(&first, NoticeTagOf(3));
  Progress();  // Before anybody listens.
  TestMessage ear("");
  ranks_[1]->ReceiveAny(NoticeTagOf(0), &ear.message);
  EXPECT_EQ(ear.heard, (std::vector<std::string>{"first"}));
  Send(&other, NoticeTagOf(3, kComm + 1));
  Send(&second, NoticeTagOf(4));
  Progress();
  EXPECT_EQ(ear.heard, (std::vector<std::string>{"first", "second"}));
  ranks_[1]->Cancel(&ear.message);
  Send(&late, NoticeTagOf(3));
  Progress();
  EXPECT_EQ(ear.heard.size(), 2u);
  EXPECT_TRUE(first.is_done && second.is_done && late.is_done);
}

TEST_F(LocalLinksTest, ACanceledReceiveIsNotWrittenTo) {
  TestMessage sent(TextOf(1'000'000, 1));
  TestMessage received(std::string(1'000'000, '\0'));
  Receive(&received, DataTagOf(1));
  Send(&sent, DataTagOf(1));
  Progress(2);  // Parts are on their way.
  const std::string before = received.text;
  ASSERT_NE(before, std::string(before.size(), '\0'));
  ASSERT_FALSE(received.is_done);
  ranks_[1]->Cancel(&received.message);
  EXPECT_TRUE(received.is_done);
  EXPECT_EQ(received.status, UCS_ERR_CANCELED);
  Progress();
  EXPECT_EQ(received.text, before);
  // And others get on.
  TestMessage next(TextOf(1'000'000, 2)), to(std::string(1'000'000, '\0'));
  Receive(&to, DataTagOf(1));
  Send(&next, DataTagOf(1));
  Progress();
  EXPECT_EQ(to.text, next.text);
}

TEST_F(LocalLinksTest, ACanceledSendIsNotReadAnyMore) {
  for (const int rounds : {0, 1, 2}) {
    TestMessage received(std::string(1'000'000, '\0'));
    Receive(&received, DataTagOf(1));
    auto sent = std::make_unique<TestMessage>(TextOf(1'000'000, 1));
    Send(sent.get(), DataTagOf(1));
    Progress(rounds);
    ASSERT_FALSE(sent->is_done);
    ranks_[0]->Cancel(&sent->message);
    EXPECT_EQ(sent->status, UCS_ERR_CANCELED);
    sent.reset();
    Progress();
    EXPECT_FALSE(received.is_done);
    ranks_[1]->Cancel(&received.message);
  }
}

TEST_F(LocalLinksTest, WhatFindsNoRoomGoesOnceThereIsSome) {
  std::vector<std::unique_ptr<TestMessage>> sent;
  for (uint64_t i = 0; i < 10'000; ++i) {
    sent.push_back(std::make_unique<TestMessage>(TextOf(40, i)));
    Send(sent.back().get(), DataTagOf(1));
  }
  EXPECT_TRUE(ranks_[0]->HasUnsent(1));
  EXPECT_FALSE(sent.back()->is_done);
  ASSERT_TRUE(ranks_[0]->Arm());  // It sleeps.
  for (int i = 0; i < 10; ++i) ranks_[1]->Progress();
  eventfd_t woken = 0;
  EXPECT_EQ(eventfd_read(ranks_[0]->event_fd(), &woken), 0);
  ranks_[0]->Disarm();
  Progress();
  EXPECT_FALSE(ranks_[0]->HasUnsent(1));
  for (const auto& one : sent) {
    TestMessage received(std::string(40, '\0'));
    Receive(&received, DataTagOf(1));
    while (!received.is_done) Progress(1);
    ASSERT_EQ(received.text, one->text);
  }
}

// Neither has been added to the other.
class UnlinkedTest : public LocalLinksTest {
 protected:
  UnlinkedTest() : LocalLinksTest(0) {
    for (int rank = 0; rank < 2; ++rank) {
      ranks_.emplace_back();
      EXPECT_TRUE(LocalLinks::Create(rank, 2, &ranks_.back()).ok());
    }
  }
};

TEST_F(UnlinkedTest, MessagesWaitUntilTheOtherIsAdded) {
  TestMessage first("one"), second("two");
  Send(&first, DataTagOf(1));
  Send(&second, DataTagOf(1));
  Progress();
  EXPECT_FALSE(first.is_done);
  Introduce(0, 1);
  EXPECT_TRUE(first.is_done && second.is_done);
  for (const char* const text : {"one", "two"}) {
    TestMessage received("...");
    Receive(&received, DataTagOf(1));
    Progress();
    EXPECT_EQ(received.text, text);
  }
}

TEST_F(UnlinkedTest, WhatWaitsCanBeTakenBack) {
  TestMessage first("one"), second("two");
  Send(&first, DataTagOf(1));
  Send(&second, DataTagOf(2));
  LinkedQueue<Message> unsent = ranks_[0]->TakeUnsent(1);
  EXPECT_FALSE(ranks_[0]->HasUnsent(1));
  for (TestMessage* const one : {&first, &second}) {
    ASSERT_EQ(unsent.front(), &one->message);
    unsent.Pop();
    EXPECT_FALSE(one->message.IsLocal());
    EXPECT_FALSE(one->is_done);
  }
  EXPECT_TRUE(unsent.empty());
}

// So many messages are sent whole, ahead of their receives, as if there had
// been none before them that nobody has received.
TEST_F(LocalLinksTest, MessagesOfACommunicatorThatIsGoneAreForgotten) {
  uint64_t bytes = 0;
  const auto num_ahead = [&](uint64_t comm) {
    int num_done = 0;
    for (bool is_done = true; is_done && num_done < 10'000; ++num_done) {
      TestMessage sent(TextOf(bytes, 1));
      Send(&sent, DataTagOf(1, comm));
      Progress(1);
      is_done = sent.is_done;
      if (!is_done) ranks_[0]->Cancel(&sent.message);
    }
    return num_done;
  };
  uint64_t comm = 1;
  for (const uint64_t each : {40, 30'000}) {
    bytes = each;
    const int first = num_ahead(comm);
    EXPECT_GT(first, 2);
    EXPECT_LT(first, 10'000);
    ranks_[1]->Retire(comm++);
    EXPECT_EQ(num_ahead(comm), first);
    ranks_[1]->Retire(comm);
    TestMessage late(TextOf(bytes, 1));
    Send(&late, DataTagOf(1, comm++));
    Progress();
    EXPECT_EQ(num_ahead(comm), first);
    ranks_[1]->Retire(comm++);
  }
}

TEST_F(LocalLinksTest, ThereIsRoomForTheMessagesOfAllThatReserveIt) {
  constexpr uint64_t kEach = 400;
  for (int round = 0; round < 2; ++round) {
    const uint64_t before = HeapAllocations();
    ranks_[1]->Reserve(kEach);
    ranks_[1]->Reserve(kEach);
    // What has been given back is used again.
    EXPECT_TRUE(round == 0 || HeapAllocations() == before);
    std::vector<std::unique_ptr<TestMessage>> sent;
    for (uint64_t i = 0; i < 2 * kEach; ++i) {
      sent.push_back(std::make_unique<TestMessage>(TextOf(4, i)));
    }
    const uint64_t reserved = HeapAllocations();
    for (uint64_t i = 0; i < 2 * kEach; ++i) {
      Send(sent[i].get(), DataTagOf(1, 1 + i / kEach));
      ranks_[1]->Progress();
    }
    EXPECT_EQ(HeapAllocations(), reserved);
    for (const uint64_t comm : {1, 2}) {
      for (uint64_t i = 0; i < kEach; ++i) {
        TestMessage received("1234");
        Receive(&received, DataTagOf(1, comm));
        ASSERT_TRUE(received.is_done);
      }
      ranks_[1]->GiveBack(kEach);
    }
  }
}

TEST_F(LocalLinksTest, WhoHasSomethingToDoDoesNotSleep) {
  TestMessage sent("x"), later("y");
  Send(&sent, DataTagOf(1));
  EXPECT_FALSE(ranks_[1]->Arm());
  Progress();
  ASSERT_TRUE(ranks_[1]->Arm());
  Send(&later, DataTagOf(1));
  eventfd_t woken = 0;
  EXPECT_EQ(eventfd_read(ranks_[1]->event_fd(), &woken), 0);
}

TEST_F(LocalLinksTest, ProcessesWakeEachOther) {
  constexpr uint64_t kRounds = 1000;
  const auto play = [&](int own) {
    for (uint64_t i = 0; i < kRounds; ++i) {
      const uint64_t bytes = i % 500 == 0 ? 100'000 : 8;
      TestMessage sent(TextOf(bytes, i));
      TestMessage received(std::string(bytes, '\0'));
      Receive(&received, DataTagOf(1), own);
      const auto await = [&](const TestMessage& one) {
        while (!one.is_done) {
          ranks_[own]->Progress();
          if (one.is_done || !ranks_[own]->Arm()) continue;
          pollfd fd = {ranks_[own]->event_fd(), POLLIN, 0};
          if (poll(&fd, 1, /*timeout=*/60'000) == 0) return false;
          ranks_[own]->Disarm();
          eventfd_t ignored = 0;
          eventfd_read(ranks_[own]->event_fd(), &ignored);
        }
        return true;
      };
      if (own == 0) Send(&sent, DataTagOf(1), 0, 1);
      if (!await(received)) return false;
      if (own == 1) Send(&sent, DataTagOf(1), 1, 0);
      if (!await(sent) || received.text != sent.text) return false;
    }
    return true;
  };
  const pid_t child = fork();
  if (child == 0) _exit(play(1) ? 0 : 1);
  EXPECT_TRUE(play(0));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Rank 2, or another one, is out of its mind.
class WrongEntriesTest : public LocalLinksTest {
 protected:
  enum Kind : uint32_t { kAsk = 2, kGo, kPart };  // As in local_links.h.
  // The number of the first transfer of a rank, and what it is more each time.
  static constexpr uint64_t kFirstTransfer = 1;
  static constexpr uint64_t kNextTransfer = uint64_t{1} << 32;
  static constexpr uint64_t kLargeBytes = 1'000'000;

  WrongEntriesTest() : LocalLinksTest(3) {}

  // As if `from` had written that to rank 0.
  void Write(int from, EntryHeader wrong) {
    const uint64_t mark = DataTagOf(9) + num_wrong_++;
    TestMessage sent("0123456789");
    Send(&sent, mark, from, 0);
    wrong.payload_bytes = 10;
    const Segment& segment = ranks_[0]->segment();
    for (uint64_t at = 0; at < segment.bytes(); at += 64) {
      EntryHeader header;
      std::memcpy(&header, segment.data() + at, sizeof(header));
      if (header.tag != mark) continue;
      std::memcpy(segment.data() + at, &wrong, sizeof(wrong));
      ranks_[0]->Progress();
      return;
    }
    FAIL() << "nothing was sent";
  }
  void ExpectReceived(const TestMessage& sent, const TestMessage& received) {
    Progress();
    EXPECT_TRUE(sent.is_done);
    EXPECT_TRUE(received.is_done);
    EXPECT_EQ(received.status, UCS_OK);
    EXPECT_EQ(received.text, sent.text);
  }

  uint64_t num_wrong_ = 0;
};

TEST_F(WrongEntriesTest, NobodyAnswersForAnother) {
  uint64_t transfer = kFirstTransfer;
  for (const uint64_t from : {0, 7}) {
    TestMessage sent(TextOf(kLargeBytes, from));
    TestMessage received(std::string(kLargeBytes, '\0'));
    Send(&sent, DataTagOf(1));
    Write(2, {.kind = kGo, .from = from, .to = transfer});
    EXPECT_FALSE(sent.is_done);
    Receive(&received, DataTagOf(1));
    ExpectReceived(sent, received);
    transfer += kNextTransfer;
  }
}

TEST_F(WrongEntriesTest, NobodyAnswersTwice) {
  uint64_t transfer = kFirstTransfer;
  for (const uint64_t from : {0, 7}) {
    TestMessage sent(TextOf(kLargeBytes, from));
    TestMessage received(std::string(kLargeBytes, '\0'));
    Receive(&received, DataTagOf(1));
    Send(&sent, DataTagOf(1));
    ranks_[1]->Progress();
    ranks_[0]->Progress();  // It has begun.
    Write(1, {.kind = kGo, .from = from, .to = transfer});
    EXPECT_FALSE(sent.is_done);
    ExpectReceived(sent, received);
    transfer += kNextTransfer;
  }
}

TEST_F(WrongEntriesTest, NobodySendsForAnother) {
  TestMessage sent(TextOf(kLargeBytes, 1));
  TestMessage received(std::string(kLargeBytes, '\0'));
  Receive(&received, DataTagOf(1), 0);
  Send(&sent, DataTagOf(1), 1, 0);
  ranks_[0]->Progress();
  Write(2, {.kind = kPart, .to = kFirstTransfer});
  ExpectReceived(sent, received);
}

TEST_F(WrongEntriesTest, AQuestionOfNobodyIsNone) {
  TestMessage received(std::string(kLargeBytes, '\0'));
  Write(2, {.kind = kAsk, .tag = DataTagOf(1), .bytes = kLargeBytes});
  Receive(&received, DataTagOf(1), 0);
  EXPECT_FALSE(received.is_done);
  ranks_[0]->Cancel(&received.message);
}

class ManyLocalRanksTest : public LocalLinksTest {
 protected:
  ManyLocalRanksTest() : LocalLinksTest(70) {}
};

TEST_F(ManyLocalRanksTest, EachReachesEachOther) {
  for (int from = 0; from < 70; ++from) {
    for (int to = 0; to < 70; to += 23) {
      if (from == to) continue;
      TestMessage sent(TextOf(20'000, static_cast<uint64_t>(from)));
      TestMessage received(std::string(20'000, '\0'));
      Receive(&received, DataTagOf(1), to);
      Send(&sent, DataTagOf(1), from, to);
      Progress(3);
      ASSERT_EQ(received.text, sent.text);
    }
  }
}

TEST_F(ManyLocalRanksTest, ASegmentHasAFewMebibytes) {
  for (const int num_ranks : {2, 3, 64, 200, 256}) {
    EXPECT_LE(LocalLinks::SegmentBytes(num_ranks), 5 << 20) << num_ranks;
  }
}

}  // namespace
}  // namespace commsched::ucx
