#ifndef COMMSCHED_SRC_CAPI_PLUGIN_POLICY_H_
#define COMMSCHED_SRC_CAPI_PLUGIN_POLICY_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "commsched/plugin.h"
#include "plan/policy.h"

namespace commsched {

// A policy plugin as the planner sees it. What its functions return or throw
// becomes a Status; the planner checks what they answer.
//
// Thread-safe, as the plugin is.
class PluginPolicy final : public Policy {
 public:
  explicit PluginPolicy(const commsched_policy_t* table) : table_(table) {}

  absl::string_view name() const override { return table_->name; }
  absl::StatusOr<MergeAnswer> Merge(
      const MergeQuestion& question) const override;
  absl::StatusOr<std::vector<uint32_t>> Order(
      absl::Span<const PolicyLaunch> launches) const override;

 private:
  const commsched_policy_t* const table_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_PLUGIN_POLICY_H_
