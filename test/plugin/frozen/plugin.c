/* Compiled against the plugin.h of this folder, which never changes: whatever
 * is built against today's must go on loading. */
#include "commsched/plugin.h"

#include <string.h>

static int32_t world_size;

static commsched_status_t Init(const commsched_host_t* host, char* message,
                               uint64_t message_size) {
  (void)message;
  (void)message_size;
  host->log(host->user, 0, "frozen");
  return host->now_ns(host->user) > 0 ? COMMSCHED_OK : COMMSCHED_INTERNAL;
}

static commsched_status_t InstanceCreate(const commsched_instance_desc_t* desc,
                                         void** out_instance, char* message,
                                         uint64_t message_size) {
  (void)message;
  (void)message_size;
  world_size = desc->world_size;
  *out_instance = &world_size;
  return COMMSCHED_OK;
}

static void InstanceDestroy(void* instance) { (void)instance; }

static commsched_status_t CommCreate(void* instance,
                                     const commsched_comm_desc_t* desc,
                                     void** out_comm, char* message,
                                     uint64_t message_size) {
  (void)desc;
  (void)message;
  (void)message_size;
  *out_comm = instance;
  return COMMSCHED_OK;
}

static commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                                 uint32_t ticket, commsched_stream_t stream,
                                 char* message, uint64_t message_size) {
  (void)comm;
  (void)launch;
  (void)ticket;
  (void)stream;
  (void)message;
  (void)message_size;
  return COMMSCHED_OK;
}

static void CommAbort(void* comm, commsched_status_t status,
                      const char* message) {
  (void)comm;
  (void)status;
  (void)message;
}

static void CommDestroy(void* comm) { (void)comm; }

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
  *out_observation = &world_size;
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

static const commsched_backend_t kBackend = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = COMMSCHED_BACKEND_INLINE,
    .name = "frozen",
    .version = "0",
    .instance_create = InstanceCreate,
    .instance_destroy = InstanceDestroy,
    .comm_create = CommCreate,
    .launch = Launch,
    .comm_abort = CommAbort,
    .comm_destroy = CommDestroy,
};

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
    {COMMSCHED_PLUGIN_BACKEND, 0, &kBackend},
    {COMMSCHED_PLUGIN_POLICY, 0, &kPolicy},
    {COMMSCHED_PLUGIN_CODEC, 0, &kCodec},
    {COMMSCHED_PLUGIN_OBSERVER, 0, &kObserver},
};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 4,
    .plugins = kPlugins,
    .init = Init,
};
