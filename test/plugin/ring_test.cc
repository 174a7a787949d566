// A queue of entries between two ranks of backend "ucx".
#include "plugins/ucx/host/ring.h"

#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace commsched::ucx {
namespace {

constexpr uint64_t kRingBytes = 4096;

struct TestRing {
  RingControl control = {};
  alignas(64) char data[kRingBytes] = {};
  RingWriter writer{&control, data, kRingBytes};
  RingReader reader{&control, data, kRingBytes};

  bool Write(const std::string& text, uint64_t tag = 0) {
    char* const room = writer.Reserve(text.size());
    if (room == nullptr) return false;
    std::memcpy(room, text.data(), text.size());
    writer.Publish({.kind = 1,
                    .payload_bytes = static_cast<uint32_t>(text.size()),
                    .tag = tag});
    return true;
  }
  // "": there is none.
  std::string Read(uint64_t* tag = nullptr) {
    const char* payload = nullptr;
    const EntryHeader* const header = reader.Peek(&payload);
    if (header == nullptr) return "";
    const std::string text(payload, header->payload_bytes);
    if (tag != nullptr) *tag = header->tag;
    reader.Pop();
    return text;
  }
};

TEST(RingTest, EntriesComeInTheirOrderWhateverTheirSizes) {
  TestRing ring;
  std::mt19937_64 random(1);
  std::deque<std::string> written;
  uint64_t next = 0;
  for (int i = 0; i < 30'000; ++i) {
    std::string text(1 + random() % LargestPayload(kRingBytes), '\0');
    if (random() % 2 != 0) text.resize(1 + text.size() % 100);
    for (char& c : text) c = static_cast<char>(random());
    if (random() % 2 != 0 && ring.Write(text, next + written.size())) {
      written.push_back(text);
    }
    uint64_t tag = 0;
    const std::string read = random() % 2 != 0 ? ring.Read(&tag) : "";
    if (read.empty()) continue;
    ASSERT_EQ(read, written.front());
    ASSERT_EQ(tag, next++);
    written.pop_front();
  }
  EXPECT_GT(next, 1000u);
}

TEST(RingTest, TheLargestPayloadFitsAnEmptyRingWhereverItBegins) {
  for (uint64_t begin = 0; begin < kRingBytes; begin += 64) {
    TestRing ring;
    for (uint64_t at = 0; at < begin; at += 64) {
      ASSERT_TRUE(ring.Write("x"));
      ASSERT_EQ(ring.Read(), "x");
    }
    const std::string largest(LargestPayload(kRingBytes), 'y');
    ASSERT_TRUE(ring.Write(largest)) << begin;
    EXPECT_EQ(ring.Read(), largest);
  }
}

TEST(RingTest, WhoWaitsForRoomIsToldOnceHalfOfItIsEmpty) {
  TestRing ring;
  int num_written = 0;
  while (ring.Write("x")) ++num_written;
  EXPECT_FALSE(ring.writer.AwaitRoom(1));
  for (int i = 1; i <= num_written; ++i) {
    EXPECT_EQ(ring.Read(), "x");
    EXPECT_EQ(ring.reader.TakeWaitingWriter(), i == num_written / 2) << i;
  }
}

TEST(RingTest, RoomThatCameBeforeTheWaitIsSeen) {
  TestRing ring;
  while (ring.Write("x")) {
  }
  while (!ring.Read().empty()) {
  }
  EXPECT_FALSE(ring.reader.TakeWaitingWriter());  // Nobody waits yet.
  EXPECT_TRUE(ring.writer.AwaitRoom(1));
  EXPECT_TRUE(ring.Write("x"));
}

TEST(RingTest, WhoWaitsForALargeEntryIsNotToldBeforeItFits) {
  TestRing ring;
  ASSERT_TRUE(ring.Write(std::string(kRingBytes / 2 - 128, 'x')));
  const std::string largest(LargestPayload(kRingBytes), 'y');
  ASSERT_TRUE(ring.Write("x"));
  ASSERT_TRUE(ring.Write(std::string(500, 'x')));
  ASSERT_FALSE(ring.Write(largest));
  ASSERT_FALSE(ring.writer.AwaitRoom(largest.size()));
  bool is_told = false;
  while (!is_told) {
    ASSERT_FALSE(ring.Read().empty());
    is_told = ring.reader.TakeWaitingWriter();
  }
  EXPECT_TRUE(ring.Write(largest));
}

TEST(RingTest, WhatIsNoEntryIsNotRead) {
  constexpr uint32_t kFiller = UINT32_MAX;
  constexpr uint64_t kLine = 64;
  struct Wrong {
    uint64_t at;
    EntryHeader header;
    uint64_t tail;
  };
  for (const Wrong& wrong : {
           Wrong{0, {.kind = 1, .payload_bytes = 1 << 20}, 2 * kLine},
           Wrong{0, {.kind = 1, .payload_bytes = kLine}, kLine},
           // Fillers that go further than what has been written, and round and
           // round.
           Wrong{kLine, {.kind = kFiller}, 2 * kLine},
           Wrong{0, {.kind = kFiller}, kRingBytes},
           Wrong{0, {.kind = kFiller}, kRingBytes * 1000},
           // More than a ring has.
           Wrong{0, {.kind = 1, .payload_bytes = 1}, kRingBytes + kLine},
           Wrong{kLine, {.kind = 1, .payload_bytes = 1}, 0},
       }) {
    TestRing ring;
    ASSERT_TRUE(ring.Write("x"));
    if (wrong.at != 0) {
      ASSERT_EQ(ring.Read(), "x");
    }
    std::memcpy(ring.data + wrong.at, &wrong.header, sizeof(wrong.header));
    ring.control.tail = wrong.tail;
    const char* payload = nullptr;
    EXPECT_EQ(ring.reader.Peek(&payload), nullptr) << wrong.tail;
    EXPECT_EQ(ring.reader.Peek(&payload), nullptr) << wrong.tail;
  }
}

TEST(RingTest, AHeaderThatHasBeenLookedAtDoesNotChange) {
  TestRing ring;
  ASSERT_TRUE(ring.Write("x"));
  const char* payload = nullptr;
  const EntryHeader* const header = ring.reader.Peek(&payload);
  ASSERT_NE(header, nullptr);
  const EntryHeader later = {.kind = 1, .payload_bytes = 1 << 20};
  std::memcpy(ring.data, &later, sizeof(later));
  EXPECT_EQ(header->payload_bytes, 1u);
}

TEST(RingTest, OneThreadWritesWhatAnotherReads) {
  constexpr uint64_t kEntries = 20'000;
  TestRing ring;
  std::atomic<bool> is_told{false};
  std::thread writer([&] {
    for (uint64_t i = 0; i < kEntries; ++i) {
      const std::string text(1 + i * 7 % 300, static_cast<char>(i));
      while (!ring.Write(text, i)) {
        is_told = false;
        if (ring.writer.AwaitRoom(text.size())) continue;
        while (!is_told) std::this_thread::yield();
      }
    }
  });
  uint64_t num_wrong = 0;
  for (uint64_t i = 0; i < kEntries;) {
    uint64_t tag = 0;
    const std::string text = ring.Read(&tag);
    if (ring.reader.TakeWaitingWriter()) is_told = true;
    if (text.empty()) {
      std::this_thread::yield();
      continue;
    }
    num_wrong += tag != i || text.size() != 1 + i * 7 % 300 ||
                 text.back() != static_cast<char>(i);
    ++i;
  }
  writer.join();
  EXPECT_EQ(num_wrong, 0u);
}

}  // namespace
}  // namespace commsched::ucx
