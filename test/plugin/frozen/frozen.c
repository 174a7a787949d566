/* Compiled against the plugin.h of this folder, which never changes: whatever
 * is built against today's must go on loading. */
#include <string.h>

#include "commsched/plugin.h"

static int32_t observation;

static commsched_status_t Init(const commsched_host_t* host, char* message,
                               uint64_t message_size) {
  (void)message;
  (void)message_size;
  host->log(host->user, 0, "frozen");
  return host->now_ns(host->user) > 0 ? COMMSCHED_OK : COMMSCHED_INTERNAL;
}

static void Encode(const float* input, uint64_t count, void* output) {
  memcpy(output, input, count * sizeof(float));
}

static void Decode(const void* input, uint64_t count, float* output) {
  memcpy(output, input, count * sizeof(float));
}

static commsched_status_t Merge(const commsched_merge_question_t* question,
                                commsched_merge_answer_t* out_answer,
                                char* message, uint64_t message_size) {
  (void)message;
  (void)message_size;
  *out_answer = question->ours;
  return COMMSCHED_OK;
}

static commsched_status_t Attach(const commsched_observed_plan_t* plan,
                                 void** out_observation, char* message,
                                 uint64_t message_size) {
  (void)plan;
  (void)message;
  (void)message_size;
  *out_observation = &observation;
  return COMMSCHED_OK;
}

static commsched_status_t OnEvent(void* observation,
                                  const commsched_observer_event_t* event,
                                  char* message, uint64_t message_size) {
  (void)observation;
  (void)event;
  (void)message;
  (void)message_size;
  return COMMSCHED_CANCELLED;
}

static void Detach(void* observation) { (void)observation; }

static const commsched_policy_t kPolicy = {
    .struct_size = sizeof(commsched_policy_t),
    .abi = COMMSCHED_POLICY_ABI,
    .name = "frozen",
    .version = "0",
    .merge = Merge,
};

static const commsched_codec_t kCodec = {
    .struct_size = sizeof(commsched_codec_t),
    .abi = COMMSCHED_CODEC_ABI,
    .dtypes = 1u << COMMSCHED_F32,
    .name = "frozen",
    .version = "0",
    .block_elements = 1,
    .block_bytes = 4,
    .encode = Encode,
    .decode = Decode,
};

static const commsched_observer_t kObserver = {
    .struct_size = sizeof(commsched_observer_t),
    .abi = COMMSCHED_OBSERVER_ABI,
    .events = COMMSCHED_OBSERVE_LAUNCH_END,
    .name = "frozen",
    .version = "0",
    .attach = Attach,
    .on_event = OnEvent,
    .detach = Detach,
};

static const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_POLICY, 0, &kPolicy},
    {COMMSCHED_PLUGIN_CODEC, 0, &kCodec},
    {COMMSCHED_PLUGIN_OBSERVER, 0, &kObserver},
};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 3,
    .plugins = kPlugins,
    .init = Init,
};
