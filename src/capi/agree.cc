#include "commsched/agree.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/wait_registry.h"
#include "capi/boundary.h"
#include "capi/handles.h"
#include "capi/structs.h"
#include "capi/timeout.h"
#include "comm/meeting/comparison.h"

using commsched::AtBoundary;
using commsched::RequireNonNull;

namespace commsched {
namespace {

absl::Status CheckGroup(const char* field, const commsched_group_t* group,
                        const Context& context) {
  if (group == nullptr || group->context.get() == &context) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "desc.", field, ", on axis '", group->spec.axis,
      "', belongs to another context, that of rank ", group->context->rank()));
}

// What a decline reads: the name, and who comes.
absl::StatusOr<commsched_agree_desc_t> ReadName(
    const commsched_agree_desc_t* caller_desc, const Context& context) {
  ASSIGN_OR_RETURN(const commsched_agree_desc_t desc,
                   ReadStruct(caller_desc, "commsched_agree_desc_t"));
  RETURN_IF_ERROR(RequireNonNull({{"desc.name", desc.name}}));
  if (*desc.name == '\0') {
    return absl::InvalidArgumentError("desc.name is empty");
  }
  RETURN_IF_ERROR(CheckGroup("meet", desc.meet, context));
  return desc;
}

ComparisonName NameOf(const commsched_agree_desc_t& desc,
                      const Context& context) {
  ComparisonName name;
  name.name = desc.name;
  if (desc.meet != nullptr) {
    name.members = desc.meet->spec.ranks;
    return name;
  }
  for (int rank = 0; rank < context.world_size(); ++rank) {
    name.members.push_back(rank);
  }
  return name;
}

absl::StatusOr<uint64_t> Agree(Context& context,
                               const commsched_agree_desc_t& desc) {
  RETURN_IF_ERROR(CheckGroup("compare", desc.compare, context));
  RETURN_IF_ERROR(RequireArrayField("desc.facts", desc.facts, "desc.num_facts",
                                    desc.num_facts));
  ASSIGN_OR_RETURN(const int64_t timeout_ns,
                   TimeoutNs("timeout_ns", desc.timeout_ns));
  std::vector<Fact> facts;
  for (uint64_t i = 0; i < desc.num_facts; ++i) {
    const commsched_fact_t& fact = desc.facts[i];
    RETURN_IF_ERROR(RequireNonNull(
        {{"facts[].subject", fact.subject}, {"facts[].value", fact.value}}));
    facts.push_back({fact.subject, fact.value});
  }
  std::string scope;
  if (desc.compare != nullptr) {
    const GroupSpec& group = desc.compare->spec;
    scope = absl::StrCat(group.axis, " ", absl::StrJoin(group.ranks, ","));
  }
  const WaitingCall waiting(context.rank(), "agrees on something with others");
  return context.comparisons().Compare(NameOf(desc, context), scope, facts,
                                       timeout_ns);
}

}  // namespace
}  // namespace commsched

commsched_status_t commsched_context_agree(commsched_context_t* context,
                                           const commsched_agree_desc_t* desc,
                                           uint64_t* out_number) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull({{"context", context}, {"desc", desc}}));
    ASSIGN_OR_RETURN(const commsched_agree_desc_t ours,
                     commsched::ReadName(desc, *context->context));
    ASSIGN_OR_RETURN(const uint64_t number,
                     commsched::Agree(*context->context, ours));
    if (out_number != nullptr) *out_number = number;
    return absl::OkStatus();
  });
}

commsched_status_t commsched_context_decline(commsched_context_t* context,
                                             const commsched_agree_desc_t* desc,
                                             commsched_status_t code,
                                             const char* reason) {
  return AtBoundary([&]() -> absl::Status {
    RETURN_IF_ERROR(RequireNonNull(
        {{"context", context}, {"desc", desc}, {"reason", reason}}));
    ASSIGN_OR_RETURN(const commsched_agree_desc_t ours,
                     commsched::ReadName(desc, *context->context));
    if (code <= COMMSCHED_OK || code > COMMSCHED_UNAUTHENTICATED) {
      return absl::InvalidArgumentError(
          absl::StrCat("code is ", code, "; it must be that of an error"));
    }
    context->context->comparisons().Decline(
        commsched::NameOf(ours, *context->context),
        commsched::StatusFromCode(code, reason));
    return absl::OkStatus();
  });
}
