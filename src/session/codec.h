#ifndef COMMSCHED_SRC_SESSION_CODEC_H_
#define COMMSCHED_SRC_SESSION_CODEC_H_

#include <memory>

#include "absl/status/statusor.h"
#include "exec/codec_runner.h"
#include "plan/plan.h"

namespace commsched {

// What runs the codec of `plan`; null if no launch is coded. NotFound if there
// is no plugin of that name; FailedPrecondition, naming both sizes, if its
// blocks are not those that the plan was made for.
absl::StatusOr<std::unique_ptr<CodecRunner>> MakeCodec(const Plan& plan);

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_CODEC_H_
