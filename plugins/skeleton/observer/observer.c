/* The least observer: counts what it sees and says so when the session goes.
 * Copy this folder, change the names, then OnEvent.
 *
 * OnEvent is called between launches, on the thread that issues them: no locks,
 * no files, no waiting. Gather there, and write in Detach. */
#include <stdio.h>

#include "commsched/plugin.h"

/* One per session; made from the host's memory. */
typedef struct Counts {
  int32_t rank;
  uint64_t steps;
  uint64_t launches;
  uint64_t bytes;
  const commsched_observed_plan_t* plan; /* Valid until Detach. */
} Counts;

static const commsched_host_t* host;

static commsched_status_t Init(const commsched_host_t* given, char* message,
                               uint64_t message_size) {
  /* A plugin that cannot run here returns UNAVAILABLE and says why. */
  (void)message;
  (void)message_size;
  host = given;
  return COMMSCHED_OK;
}

static commsched_status_t Attach(const commsched_observed_plan_t* plan,
                                 void** out_observation, char* message,
                                 uint64_t message_size) {
  Counts* counts = (Counts*)host->alloc(host->user, sizeof(Counts));
  if (counts == 0) {
    snprintf(message, message_size, "no memory for counts");
    return COMMSCHED_RESOURCE_EXHAUSTED;
  }
  *counts = (Counts){.rank = plan->world_rank, .plan = plan};
  *out_observation = counts;
  return COMMSCHED_OK;
}

static commsched_status_t OnEvent(void* observation,
                                  const commsched_observer_event_t* event,
                                  char* message, uint64_t message_size) {
  (void)message;
  (void)message_size;
  Counts* counts = (Counts*)observation;
  if (event->kind == COMMSCHED_OBSERVE_STEP_END) {
    ++counts->steps;
  } else if (event->kind == COMMSCHED_OBSERVE_LAUNCH_END) {
    ++counts->launches;
    counts->bytes += counts->plan->launches[event->launch]->bytes;
  }
  return COMMSCHED_OK;
}

static void Detach(void* observation) {
  Counts* counts = (Counts*)observation;
  char line[160];
  snprintf(line, sizeof(line), "rank %d: %llu steps, %llu launches, %llu bytes",
           counts->rank, (unsigned long long)counts->steps,
           (unsigned long long)counts->launches,
           (unsigned long long)counts->bytes);
  host->log(host->user, /* INFO */ 1, line);
  host->free(host->user, counts);
}

static const commsched_observer_t kObserver = {
    .struct_size = sizeof(commsched_observer_t),
    .abi = COMMSCHED_OBSERVER_ABI,
    /* Nothing else is delivered, or costs anything. */
    .events = COMMSCHED_OBSERVE_STEP_END | COMMSCHED_OBSERVE_LAUNCH_END,
    .name = "skeleton",
    .version = "1",
    .attach = Attach,
    .on_event = OnEvent,
    .detach = Detach,
};

static const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_OBSERVER, 0, &kObserver},
};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 1,
    .plugins = kPlugins,
    .init = Init,
};
