#ifndef COMMSCHED_EXAMPLES_TRAINER_INTERRUPTION_H_
#define COMMSCHED_EXAMPLES_TRAINER_INTERRUPTION_H_

#include <signal.h>

#include <atomic>

namespace commsched::trainer {

// While it lives, SIGINT and SIGTERM ask the run to end after its step; the
// second one ends the process at once, as these signals do by default. A signal
// that the process was started to ignore stays ignored.
//
// One at a time; the main thread's.
class Interruption {
 public:
  Interruption();
  ~Interruption();

  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // The signal that came first; 0: none. Any thread may read it.
  const std::atomic<int>& signal() const;

 private:
  struct sigaction before_int_;
  struct sigaction before_term_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_INTERRUPTION_H_
