#include "exec/program.h"

#include "absl/strings/str_cat.h"

namespace commsched {

std::string Program::LaunchName(uint32_t launch) const {
  const Launch& planned = plan->launches[launch];
  std::string name =
      absl::StrCat("#", launch, " ", CollectiveKindName(planned.kind), " '",
                   plan->graph->op(planned.members.front()).name, "'");
  if (planned.members.size() > 1) {
    absl::StrAppend(&name, "+", planned.members.size() - 1);
  }
  if (planned.piece.of > 1) {
    absl::StrAppend(&name, " piece ", planned.piece.index + 1, "/",
                    planned.piece.of);
  }
  absl::StrAppend(&name, " on axis ", plan->graph->group(planned.group).name);
  return name;
}

}  // namespace commsched
