#include "session/codec.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "comm/plugin/registry.h"

namespace commsched {

absl::StatusOr<std::unique_ptr<CodecRunner>> MakeCodec(const Plan& plan) {
  const bool coded =
      std::any_of(plan.launches.begin(), plan.launches.end(),
                  [](const Launch& launch) { return launch.coded; });
  if (!coded) return std::unique_ptr<CodecRunner>();
  const CodecModel& model = plan.options.codec;
  ASSIGN_OR_RETURN(const commsched_codec_t* table,
                   PluginRegistry::Process().Codec(model.name));
  if (table->block_elements != model.block_elements ||
      table->block_bytes != model.block_bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        "codec '", model.name, "' encodes ", table->block_elements,
        " elements into ", table->block_bytes, " bytes; the plan was made for ",
        model.block_elements, " into ", model.block_bytes));
  }
  return std::make_unique<CodecRunner>(
      table, static_cast<uint32_t>(plan.launches.size()));
}

}  // namespace commsched
