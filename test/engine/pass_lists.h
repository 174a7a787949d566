// Lists of the passes of a step of the toy.
#ifndef COMMSCHED_TEST_ENGINE_PASS_LISTS_H_
#define COMMSCHED_TEST_ENGINE_PASS_LISTS_H_

#include <cstdint>
#include <vector>

#include "commsched/pass.h"

namespace commsched::engine {

inline constexpr uint32_t kListModules = 4;
inline constexpr uint32_t kListWindow = 4;  // Micro-batches.

using PassList = std::vector<commsched_pass_t>;

PassList AsByDefault();
PassList GPipe();
// As the first of two stages: a backward follows once two forwards are ahead.
PassList OneForwardOneBackward();
// Weights' halves wait until the next micro-batch has had its first half.
PassList ZeroBubble();
// A loss over all micro-batches, from results that are kept without what a
// backward needs.
PassList CachedGradients();
// Module by module, so that the backwards of all micro-batches lie between the
// first and the last that a bucket of several modules has.
PassList ModuleByModule();
PassList Recomputing();

struct PassSchedule {
  const char* name;
  PassList (*list)();
};

inline constexpr PassSchedule kSchedules[] = {
    {"AsByDefault", AsByDefault},
    {"GPipe", GPipe},
    {"OneForwardOneBackward", OneForwardOneBackward},
    {"ZeroBubble", ZeroBubble},
    {"CachedGradients", CachedGradients},
    {"ModuleByModule", ModuleByModule},
    {"Recomputing", Recomputing}};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_PASS_LISTS_H_
