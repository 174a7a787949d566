// What a stream does, one after the other.
#ifndef COMMSCHED_TEST_FAKES_GPU_WORK_H_
#define COMMSCHED_TEST_FAKES_GPU_WORK_H_

#include <functional>

namespace fake_gpu {

enum class Progress {
  kDone,
  kSome,  // Somebody else's work may be able to go on now.
  kNone,
};

struct Work {
  // Does all of it, and waits for whom it takes: on a stream's own thread.
  std::function<void()> run;
  // Does what can be done now, without waiting: for the deterministic driver.
  // Null: `run` waits for nobody.
  std::function<Progress()> try_run;
};

}  // namespace fake_gpu

#endif  // COMMSCHED_TEST_FAKES_GPU_WORK_H_
