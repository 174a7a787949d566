/* The least policy: merges nothing that is larger than 1 MiB, and leaves the
 * order to the library. Copy this folder, change the names, then the answers.
 *
 * A policy is asked on every rank and has to answer alike: no clock, no random
 * numbers, no addresses, no memory of earlier questions. */
#include "commsched/plugin.h"

enum { kLargeBytes = 1 << 20 };

static commsched_status_t Merge(const commsched_merge_question_t* question,
                                commsched_merge_answer_t* out_answer,
                                char* message, uint64_t message_size) {
  (void)message;
  (void)message_size;
  /* JOIN may only be answered where `legal` is 1; SPLIT and OURS always. */
  const int large = question->open->bytes > kLargeBytes ||
                    question->next->bytes > kLargeBytes;
  *out_answer = large ? COMMSCHED_MERGE_SPLIT : COMMSCHED_MERGE_OURS;
  return COMMSCHED_OK;
}

static const commsched_policy_t kPolicy = {
    .struct_size = sizeof(commsched_policy_t),
    .abi = COMMSCHED_POLICY_ABI,
    .name = "skeleton",
    .version = "1",
    .merge = Merge,
    .order = 0,
};

static const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_POLICY, 0, &kPolicy},
};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 1,
    .plugins = kPlugins,
};
