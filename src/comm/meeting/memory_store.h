#ifndef COMMSCHED_SRC_COMM_MEETING_MEMORY_STORE_H_
#define COMMSCHED_SRC_COMM_MEETING_MEMORY_STORE_H_

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "comm/meeting/value_store.h"

namespace commsched {

// Of ranks that are threads of this process. Thread-safe.
class MemoryStore final : public ValueStore {
 public:
  absl::Status Put(const std::string& key, const std::string& value) override;
  absl::StatusOr<std::string> Get(const std::string& key,
                                  int64_t timeout_ns) override;

 private:
  Mutex mu_;
  CondVar changed_;
  absl::flat_hash_map<std::string, std::string> values_ ABSL_GUARDED_BY(mu_);
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_MEETING_MEMORY_STORE_H_
