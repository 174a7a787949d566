// What ranks send by UCX, seen as it goes: in this program a function of its
// own is in the place of UCX's.
#ifndef COMMSCHED_TEST_PLUGIN_UCX_SENDS_H_
#define COMMSCHED_TEST_PLUGIN_UCX_SENDS_H_

#include <cstddef>
#include <cstdint>
#include <functional>

#include "plugins/ucx/tags.h"

namespace commsched {

struct UcxSend {
  void* endpoint = nullptr;
  uint64_t tag = 0;
  size_t bytes = 0;

  uint64_t type() const { return tag & ((uint64_t{1} << ucx::kTypeBits) - 1); }
  // Of the group; who sends it.
  uint64_t rank() const {
    return tag >> ucx::kTypeBits & ((uint64_t{1} << ucx::kRankBits) - 1);
  }
  // Of a collective, and which phase of it (ucx::Phase).
  bool is_data() const { return type() < ucx::kCardsType; }
  uint64_t phase() const { return type() % ucx::kNumPhases; }

  // Sends another message there first, of this tag.
  void SendFirst(const void* data, size_t size) const;
};

// From when it is made until it is gone, or another one is made after it, calls
// `on_send` before each message goes, on the thread that sends it. Nobody sends
// while it is made, or goes.
class UcxSendWatcher {
 public:
  using OnSend = std::function<void(const UcxSend& send)>;

  explicit UcxSendWatcher(OnSend on_send);
  ~UcxSendWatcher();
  UcxSendWatcher(const UcxSendWatcher&) = delete;
  UcxSendWatcher& operator=(const UcxSendWatcher&) = delete;

 private:
  const OnSend on_send_;
  const OnSend* const before_;
};

}  // namespace commsched

#endif  // COMMSCHED_TEST_PLUGIN_UCX_SENDS_H_
