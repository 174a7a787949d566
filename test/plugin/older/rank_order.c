/* A backend as they were until 0.1: it sums in the order of ranks, and knows
 * nothing of the tree. Its one rank does nothing. */
#include <stddef.h>

#include "commsched/plugin.h"

static commsched_status_t InstanceCreate(const commsched_instance_desc_t* desc,
                                         void** out_instance, char* message,
                                         uint64_t message_size) {
  (void)desc;
  (void)message;
  (void)message_size;
  static int instance;
  *out_instance = &instance;
  return COMMSCHED_OK;
}

static void InstanceDestroy(void* instance) { (void)instance; }

static commsched_status_t RankOpen(void* instance,
                                   const commsched_backend_rank_desc_t* desc,
                                   void** out_rank, char* message,
                                   uint64_t message_size) {
  (void)desc;
  (void)message;
  (void)message_size;
  *out_rank = instance;
  return COMMSCHED_OK;
}

static void RankClose(void* rank) { (void)rank; }

static commsched_status_t CommCreate(void* rank,
                                     const commsched_comm_desc_t* desc,
                                     void** out_comm, char* message,
                                     uint64_t message_size) {
  (void)desc;
  (void)message;
  (void)message_size;
  *out_comm = rank;
  return COMMSCHED_OK;
}

static commsched_status_t Launch(void* comm, const commsched_launch_t* launch,
                                 uint32_t request, commsched_stream_t stream,
                                 char* message, uint64_t message_size) {
  (void)comm;
  (void)launch;
  (void)request;
  (void)stream;
  (void)message;
  (void)message_size;
  return COMMSCHED_OK;
}

static void Abort(void* rank, void* const* comms, uint32_t num_comms,
                  commsched_status_t status, const char* message) {
  (void)rank;
  (void)comms;
  (void)num_comms;
  (void)status;
  (void)message;
}

static commsched_status_t CommDestroy(void* comm, int64_t deadline_ns,
                                      char* message, uint64_t message_size) {
  (void)comm;
  (void)deadline_ns;
  (void)message;
  (void)message_size;
  return COMMSCHED_OK;
}

/* Launches ended with `members` then, and so they lie behind each other. */
static commsched_status_t CommExpect(void* comm,
                                     const commsched_launch_t* launches,
                                     uint32_t num_launches, char* message,
                                     uint64_t message_size) {
  enum { kBytes = offsetof(commsched_launch_t, tag) };
  (void)comm;
  (void)message;
  (void)message_size;
  for (uint32_t i = 0; i < num_launches; ++i) {
    const commsched_launch_t* launch =
        (const void*)((const char*)launches + (size_t)i * kBytes);
    if (launch->struct_size != kBytes || launch->slot != i) {
      return COMMSCHED_INVALID_ARGUMENT;
    }
  }
  return COMMSCHED_OK;
}

static const commsched_backend_t kBackend = {
    .struct_size = offsetof(commsched_backend_t, comm_estimate),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_INLINE |
                    COMMSCHED_BACKEND_DETERMINISTIC,
    .name = "rank_order",
    .version = "0.1",
    .instance_create = InstanceCreate,
    .instance_destroy = InstanceDestroy,
    .rank_open = RankOpen,
    .rank_close = RankClose,
    .comm_create = CommCreate,
    .launch = Launch,
    .abort = Abort,
    .comm_destroy = CommDestroy,
    .comm_expect = CommExpect,
};

static const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_BACKEND, 0, &kBackend},
};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 1,
    .plugins = kPlugins,
    .init = 0,
};
