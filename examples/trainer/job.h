#ifndef COMMSCHED_EXAMPLES_TRAINER_JOB_H_
#define COMMSCHED_EXAMPLES_TRAINER_JOB_H_

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "commsched/commsched.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/options.h"

namespace commsched::trainer {

// Who trains: ranks that are threads of this process, or processes of which
// this is one rank. Thread-compatible; Gather is for the thread of `context`'s
// rank.
class Job {
 public:
  // Threads, as `options` say.
  static absl::StatusOr<Job> OfThreads(const Options& options);
  // This process as one of the job that its launcher has started.
  static absl::StatusOr<Job> OfProcesses(const Options& options);

  commsched_world_t* world() const { return world_.get(); }
  int64_t size() const { return commsched_world_size(world_.get()); }
  bool has_processes() const { return commsched_world_rank(world()) >= 0; }
  // The ranks in this process are first() to first() + count() - 1.
  int64_t first() const {
    return has_processes() ? commsched_world_rank(world()) : 0;
  }
  int64_t count() const { return has_processes() ? 1 : size(); }
  // Whether rank 0, which speaks for all, is here.
  bool leads() const { return first() == 0; }

  // How long a rank waits for others to show something: --timeout, or 0, which
  // is the library's choice.
  std::chrono::nanoseconds timeout() const { return timeout_; }

  // Makes `*text` that of rank 0. Collective; before there are contexts.
  absl::Status TakeFromRank0(std::string* text) const;

 private:
  Job(WorldHandle world, const Options& options)
      : world_(std::move(world)),
        timeout_(std::chrono::seconds(options.timeout_s)) {}

  WorldHandle world_;
  std::chrono::nanoseconds timeout_;
};

// The ranks that share this machine's cores and memory.
int64_t NumSharing(const Options& options, commsched_context_t* context);

// Sets how many ranks share how many cores, as this process sees it.
void SetCores(const Options& options, commsched_context_t* context,
              commsched_cost_profile_t* costs);

// Sets what `costs` has of links to those of --link, or of the job's profile of
// links; false: neither is known. Waits until all ranks have joined.
absl::StatusOr<bool> SetLinks(const Options& options,
                              commsched_context_t* context,
                              commsched_cost_profile_t* costs);

// What each rank shows, by rank. Collective; `timeout` 0: that of the library.
absl::StatusOr<std::vector<std::string>> Gather(
    commsched_context_t* context, const char* name, absl::string_view mine,
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds(0));

// The same of lists of values, between processes of one program.
template <typename T>
absl::StatusOr<std::vector<std::vector<T>>> GatherLists(
    commsched_context_t* context, const char* name, absl::Span<const T> mine,
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds(0)) {
  static_assert(std::is_trivially_copyable_v<T>);
  const absl::string_view bytes(reinterpret_cast<const char*>(mine.data()),
                                mine.size() * sizeof(T));
  TRAINER_ASSIGN_OR_RETURN(const std::vector<std::string> shown,
                           Gather(context, name, bytes, timeout));
  std::vector<std::vector<T>> all;
  for (const std::string& one : shown) {
    std::vector<T>& values = all.emplace_back(one.size() / sizeof(T));
    if (one.empty()) continue;
    std::memcpy(values.data(), one.data(), values.size() * sizeof(T));
  }
  return all;
}

// And of one value each.
template <typename T>
absl::StatusOr<std::vector<T>> GatherValues(
    commsched_context_t* context, const char* name, const T& mine,
    std::chrono::nanoseconds timeout = std::chrono::nanoseconds(0)) {
  TRAINER_ASSIGN_OR_RETURN(
      const std::vector<std::vector<T>> lists,
      GatherLists(context, name, absl::MakeConstSpan(&mine, 1), timeout));
  std::vector<T> all;
  for (const std::vector<T>& list : lists) {
    if (list.size() != 1) {
      return absl::DataLossError(
          absl::StrCat("a rank shows something else than its ", name));
    }
    all.push_back(list.front());
  }
  return all;
}

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_JOB_H_
