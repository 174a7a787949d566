#ifndef COMMSCHED_SRC_ENGINE_UPDATE_AGREED_VALUES_H_
#define COMMSCHED_SRC_ENGINE_UPDATE_AGREED_VALUES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "commsched/engine_types.h"

namespace commsched::engine {

// Two values of a step, neither negative and both finite, as one number that
// travels with the norm. Never 0: that is where nothing has come, since the
// backend moves nothing. To add 0 to it changes no bit.
double PairOf(float first, float second);

// Puts what the ranks must step with alike into `out`, which has a number for
// the learning rate and clip_norm, and two for each option set.
void SetAgreedValues(const commsched_engine_update_args_t& args,
                     std::vector<double>* out);

// What differs between two such numbers, of which one is at `index` on each of
// two ranks.
struct Difference {
  std::string name;                // "lr", "decay of option set 2"
  std::string of_first, of_other;  // "0.5"
};
Difference DifferenceAt(size_t index, double first, double other);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_UPDATE_AGREED_VALUES_H_
