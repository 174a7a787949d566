// Where whoever serves many channels and recordings learns what has become of
// their requests.
#ifndef COMMSCHED_SRC_BASE_COMPLETIONS_H_
#define COMMSCHED_SRC_BASE_COMPLETIONS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/mutex.h"

namespace commsched {

// What has become of one request.
struct Completion {
  uint64_t key = 0;  // the number that its maker gave the channel or recording
  uint64_t request = 0;
  uint64_t user = 0;  // what its submitter gave with it; the op of a recording
  absl::StatusCode code = absl::StatusCode::kOk;
};

// Finished requests of anybody, in the order in which they finished, until
// they are taken. An object of its own: they may be of several worlds.
//
// A request takes its place when it is submitted, so that whoever finishes it
// never waits and allocates nothing. There are `capacity` places; memory grows
// with the most that were taken at once.
//
// Thread-safe.
class Completions {
 public:
  explicit Completions(uint64_t capacity) : capacity_(capacity) {}
  Completions(const Completions&) = delete;
  Completions& operator=(const Completions&) = delete;

  // A place for a request; it goes back when its completion is taken, or by
  // GiveBack(), of a request that is never to finish. kResourceExhausted: all
  // are taken.
  absl::Status Reserve();
  void GiveBack();

  // The request of a place has finished.
  void Add(const Completion& completion);

  // Fills `out` from the front with what has finished, oldest first, and
  // returns how many that are. Waits until there is one, `deadline_ns` of
  // SystemClock, or a wake-up: then it may be none.
  size_t Next(absl::Span<Completion> out, int64_t deadline_ns);
  // Ends a Next() that waits, or else the next one that would.
  void Wake();

 private:
  const uint64_t capacity_;

  Mutex mu_;
  CondVar changed_;
  // A ring, of which num_ from first_ on are there. Its size is a power of two,
  // and at least num_reserved_.
  std::vector<Completion> ring_ ABSL_GUARDED_BY(mu_);
  size_t first_ ABSL_GUARDED_BY(mu_) = 0;
  size_t num_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t num_reserved_ ABSL_GUARDED_BY(mu_) = 0;
  size_t num_waiting_ ABSL_GUARDED_BY(mu_) = 0;
  bool is_woken_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_BASE_COMPLETIONS_H_
