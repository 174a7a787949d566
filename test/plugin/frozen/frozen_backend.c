/* A backend of ABI 0, as of the plugin.h of this folder. */
#include <stddef.h>

#include "commsched/plugin.h"

static int32_t world_size;

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

static const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_BACKEND, 0, &kBackend},
};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 1,
    .plugins = kPlugins,
    .init = NULL,
};
