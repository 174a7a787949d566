#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "control/hub.h"
#include "control/messages.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {
namespace {

constexpr int kRanks = 3;

// What the hub sends is for ranks that are there, and a client can read it.
void CheckSent(const std::string& frame) {
  const auto header = DecodeFrameHeader(
      absl::string_view(frame).substr(0, kFrameHeaderBytes), kMaxPayloadBytes);
  Require(header.ok());
  const auto payload = absl::string_view(frame).substr(kFrameHeaderBytes);
  Require(payload.size() == header->payload_bytes);
  if (header->kind == FrameKind::kLost) {
    Require(Decode<LostMessage>(payload).ok());
  } else if (header->kind == FrameKind::kFailed) {
    const auto failed = Decode<FailedMessage>(payload);
    Require(failed.ok());
    Require(failed->code != 0);
    Require(failed->rank >= 0 && failed->rank < kRanks);
    Require(failed->message.size() <= FailedMessage::kMaxMessageBytes);
  } else if (header->kind == FrameKind::kOrdersDiffer) {
    const auto differ = Decode<OrdersDifferMessage>(payload);
    Require(differ.ok());
    Require(differ->a_first != differ->b_first);
    Require(differ->a_first >= 0 && differ->a_first < kRanks);
    Require(differ->b_first >= 0 && differ->b_first < kRanks);
  } else {
    Require(header->kind == FrameKind::kReply);
    Require(Decode<ReplyMessage>(payload).ok());
  }
}

}  // namespace

// Frames, each behind a byte that says who sends it and how much later. A rank
// that breaks the protocol is lost.
size_t FuzzControlHub(const uint8_t* data, size_t size) {
  bool present[kRanks] = {true, true, true};
  Hub hub(kRanks, [&](int rank, SharedFrame frame) {
    Require(rank >= 0 && rank < kRanks);
    CheckSent(*frame);
  });
  for (int rank = 0; rank < kRanks; ++rank) Require(hub.Join(rank).ok());
  size_t accepted = 0;
  int64_t now_ns = 0;
  Source source(data, size);
  while (source.size() > kFrameHeaderBytes) {
    const auto byte = source.Take<uint8_t>();
    const int rank = byte % kRanks;
    now_ns += byte / kRanks;
    hub.Tick(now_ns);
    std::string bytes(kFrameHeaderBytes, '\0');
    source.Fill(bytes.data(), bytes.size());
    if (!present[rank]) continue;
    const auto header = DecodeFrameHeader(bytes, 1 << 16);
    absl::Status status = header.status();
    if (status.ok()) {
      std::string payload(
          std::min<size_t>(header->payload_bytes, source.size()), '\0');
      source.Fill(payload.data(), payload.size());
      status = hub.Handle(rank, header->kind, payload, now_ns);
    }
    if (!status.ok()) {
      Require(!status.message().empty());
      hub.Lose(rank, status.message());
    } else {
      ++accepted;
    }
    present[rank] = status.ok() && header->kind != FrameKind::kLeave;
    Require(hub.num_present() ==
            std::count(std::begin(present), std::end(present), true));
  }
  hub.Tick(INT64_MAX);
  for (int rank = 0; rank < kRanks; ++rank) hub.Lose(rank, "the end");
  Require(hub.num_present() == 0);
  return accepted;
}

}  // namespace commsched::test
