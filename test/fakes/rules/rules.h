// What the vendor says of streams, events, memory, kernels, errors and
// collectives: a small program per sentence, which runs on the stand-ins and on
// the real libraries.
#ifndef COMMSCHED_TEST_FAKES_RULES_RULES_H_
#define COMMSCHED_TEST_FAKES_RULES_RULES_H_

#include <string>
#include <vector>

namespace commsched::rules {

struct Rule {
  const char* name;    // Of the test: what is shown.
  const char* source;  // The vendor's function or section.
  // The vendor's words; in parentheses, ours, where the vendor has no sentence
  // that says it.
  const char* sentence;
  std::string (*check)();  // "", or what does not hold.
  // It leaves a GPU in a state that others may not find it in, such as a hang,
  // or the vendor leaves open what a real library does.
  bool stand_in_only = false;
};

std::vector<Rule> CudaRules();        // Streams, events and memory.
std::vector<Rule> CudaKernelRules();  // Images and launches.
std::vector<Rule> CudaErrorRules();
std::vector<Rule> CudaDriverRules();  // The driver beside the runtime.
std::vector<Rule> NcclRules();        // Collectives, sends and receives.
std::vector<Rule> NcclCommRules();    // Communicators and groups.

}  // namespace commsched::rules

#endif  // COMMSCHED_TEST_FAKES_RULES_RULES_H_
