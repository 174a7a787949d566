// What goes wrong, as the backend's configuration says it.
#ifndef COMMSCHED_PLUGINS_FAULT_SPEC_H_
#define COMMSCHED_PLUGINS_FAULT_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

namespace commsched::fault {

struct Fault {
  enum class Kind {
    kDelay,       // reported done `delay_ns` later than it is
    kLate,        // handed on `delay_ns` later, and all after it
    kHang,        // never reported done
    kFailLaunch,  // launch() fails
    kFailPoll,    // poll() does, once the launch is complete
  };

  Kind kind = Kind::kDelay;
  // Where; -1 and "": everywhere.
  int64_t rank = -1;  // In the world.
  std::string axis;
  int64_t launch = -1;  // Number on its communicator, from 0.
  // Of the launches that match, so many in a million, drawn by the seed.
  uint64_t per_million = 1'000'000;
  int64_t delay_ns = 1'000'000;
};

struct Spec {
  std::string inner = "inproc";
  std::string inner_config;
  uint64_t seed = 1;
  std::vector<Fault> faults;
};

// Reads "key=value;key=value":
//
//   inner=NAME         the backend that moves the data
//   seed=N
//   fault=KIND,...     KIND is delay, late, hang, fail_launch or fail_poll;
//   then
//                      rank=R, axis=A, launch=N, per_million=P, us=D as far as
//                      wanted. As often as there are faults: the first that
//                      matches a launch happens.
//   inner_config=TEXT  last: the rest is the inner backend's
//
// False, and why in `*error`, naming key and value.
bool ReadSpec(const std::string& text, Spec* spec, std::string* error);

// The fault that happens to launch `number` of a communicator, or null. The
// same in every run.
const Fault* Match(const Spec& spec, int world_rank, const std::string& axis,
                   uint64_t number);

}  // namespace commsched::fault

#endif  // COMMSCHED_PLUGINS_FAULT_SPEC_H_
