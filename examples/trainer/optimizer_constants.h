#ifndef COMMSCHED_EXAMPLES_TRAINER_OPTIMIZER_CONSTANTS_H_
#define COMMSCHED_EXAMPLES_TRAINER_OPTIMIZER_CONSTANTS_H_

namespace commsched::trainer {

// Of AdamW and SGD, whatever the model.
inline constexpr float kWeightDecay = 0.1f;
inline constexpr float kBeta1 = 0.9f;
inline constexpr float kBeta2 = 0.95f;
inline constexpr float kEpsilon = 1e-8f;
inline constexpr float kMomentum = 0.9f;

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_OPTIMIZER_CONSTANTS_H_
