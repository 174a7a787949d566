// What the tables of the built-in backends share: statuses as numbers and
// messages, and checks of what crosses the table.
#ifndef COMMSCHED_SRC_COMM_TABLE_SUPPORT_H_
#define COMMSCHED_SRC_COMM_TABLE_SUPPORT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "commsched/plugin.h"

namespace commsched {

// The code of `status`; its message goes to `message`, cut to `message_size`.
commsched_status_t ToTable(const absl::Status& status, char* message,
                           uint64_t message_size);

// The status for a code and message that crossed the table. A code that is not
// a failure becomes UNKNOWN: it is used where there was one.
absl::Status FailureFromTable(commsched_status_t code, const char* message);

// InvalidArgument, naming the text, unless `desc` can make an instance of a
// backend that takes no configuration.
absl::Status CheckInstanceDesc(const commsched_instance_desc_t* desc);

// InvalidArgument, naming the communicator and the value, unless `desc` can
// make a communicator in a world of `world_size` ranks.
absl::Status CheckCommDesc(const commsched_comm_desc_t* desc, int world_size);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_TABLE_SUPPORT_H_
