// A plugin whose init breaks the rule that no exception leaves it.
#include <stdexcept>

#include "commsched/plugin.h"

namespace {

commsched_status_t Init(const commsched_host_t*, char*, uint64_t) {
  throw std::runtime_error("oops");
}

commsched_status_t Merge(const commsched_merge_question_t*,
                         commsched_merge_answer_t*, char*, uint64_t) {
  return COMMSCHED_OK;
}

const commsched_policy_t kPolicy = {sizeof(commsched_policy_t),
                                    COMMSCHED_POLICY_ABI,
                                    0,
                                    "throws",
                                    "1",
                                    &Merge,
                                    nullptr};
const commsched_plugin_t kPlugins[] = {{COMMSCHED_PLUGIN_POLICY, 0, &kPolicy}};

}  // namespace

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {sizeof(commsched_plugin_list_t),
                                              COMMSCHED_PLUGIN_LIST_ABI, 1,
                                              kPlugins, &Init};
