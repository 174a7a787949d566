// What the tables of the built-in backends share: statuses as numbers and
// messages, and checks of what crosses the table.
#ifndef COMMSCHED_SRC_COMM_PLUGIN_TABLE_SUPPORT_H_
#define COMMSCHED_SRC_COMM_PLUGIN_TABLE_SUPPORT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "commsched/plugin.h"

namespace commsched {

// The code of `status`; its message goes to `message`, cut to `message_size`.
commsched_status_t ToTable(const absl::Status& status, char* message,
                           uint64_t message_size);

// The status for a code and message that crossed the table. A code that is not
// a failure becomes UNKNOWN: it is used where there was one.
absl::Status FailureFromTable(commsched_status_t code, const char* message);

// Room for the reason that a function of a plugin gives when it fails. Whatever
// the plugin does with it, or does not, it reads as a text: kept and used for
// many calls it costs each a single store.
//
// Thread-compatible.
class PluginMessage {
 public:
  // What to hand to the next call: size() bytes, an empty text.
  char* Begin() {
    text_[0] = '\0';
    return text_;
  }
  static constexpr uint64_t size() { return kSize; }
  // What the call has written, up to where the room or a NUL ends it.
  absl::string_view text() const;

 private:
  static constexpr uint64_t kSize = 512;
  char text_[kSize] = {};
};

// The status for what function `call` of `plugin`, such as "backend 'nccl'",
// has returned, which is not OK: the plugin's code and reason. INTERNAL, naming
// plugin, call and number, if the code is none.
absl::Status PluginFailure(absl::string_view plugin, absl::string_view call,
                           commsched_status_t code,
                           const PluginMessage& message);

// Of a backend's table. `done` must be 0 or 1: INTERNAL, naming it, if not.
absl::Status BackendFailure(const commsched_backend_t& backend,
                            absl::string_view call, commsched_status_t code,
                            const PluginMessage& message);
absl::Status CheckLaunchResult(const commsched_backend_t& backend,
                               const commsched_launch_result_t& result);
// Internal unless `ready`, which comm_ready gave, is 0 or 1.
absl::Status CheckReady(const commsched_backend_t& backend, uint32_t ready);

// Calls comm_expect, which `backend` has, with launches as far apart as it
// looks for them.
commsched_status_t ExpectLaunches(const commsched_backend_t& backend,
                                  void* comm,
                                  absl::Span<const commsched_launch_t> launches,
                                  char* message, uint64_t message_size);

// InvalidArgument unless `desc` has a world and a configuration.
absl::Status CheckInstanceDesc(const commsched_instance_desc_t* desc);

// For backends that take no configuration: InvalidArgument, naming the text, if
// `desc` has one.
absl::Status CheckNoConfig(const commsched_instance_desc_t& desc);

// InvalidArgument, naming the communicator and the value, unless `desc` can
// make a communicator of `world_rank` in a world of `world_size` ranks.
absl::Status CheckCommDesc(const commsched_comm_desc_t* desc, int world_size,
                           int world_rank);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_PLUGIN_TABLE_SUPPORT_H_
