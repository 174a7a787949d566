#ifndef COMMSCHED_EXAMPLES_TRAINER_VIEWS_H_
#define COMMSCHED_EXAMPLES_TRAINER_VIEWS_H_

#include <span>

namespace commsched::trainer {

// Where parameter i lies. Elements of parameters that the module at hand does
// not use may be null.
using ParameterView = std::span<const float* const>;

// Where to add the gradient of parameter i.
using GradientView = std::span<float* const>;

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_VIEWS_H_
