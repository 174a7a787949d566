#ifndef COMMSCHED_EXAMPLES_TRAINER_INTERRUPTION_H_
#define COMMSCHED_EXAMPLES_TRAINER_INTERRUPTION_H_

#include <signal.h>

#include <atomic>

namespace commsched::trainer {

// While it lives, SIGINT and SIGTERM ask the run to end after its step; the
// second one ends the process at once, as these signals do by default. The same
// signal within a second is a copy of the first: programs such as timeout(1)
// signal their child and then its process group. A signal that the process was
// started to ignore stays ignored.
//
// Before Defer() there is nothing to save, and building may wait for other
// ranks: signals end the process at once.
//
// One at a time; the main thread's.
class Interruption {
 public:
  Interruption();
  ~Interruption();

  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // From now on a signal waits for the step. Any thread, any number of times.
  static void Defer();

  // The signal that came first; 0: none. Any thread may read it.
  const std::atomic<int>& signal() const;

 private:
  struct sigaction before_[2];
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_INTERRUPTION_H_
