/* The least backend: groups of one rank, where every collective is a copy. Copy
 * this folder, change the names, then what a communicator is.
 *
 * It is INLINE: a launch is complete when Launch returns, and there is no poll.
 * A backend whose launches take time drops that capability, posts in Launch,
 * moves on in Poll, and calls desc->wake whenever a Poll may have become
 * useful. The rules are in commsched/plugin.h; the suite in test/conformance
 * checks them. */
#include <stdio.h>
#include <string.h>

#include "commsched/plugin.h"

/* What the ranks of a world share: queues, sockets. */
typedef struct Instance {
  int32_t world_size;
} Instance;

/* A member's handle. */
typedef struct Comm {
  /* The first failure sticks: who claims it writes the message, then, with
   * release, the status. */
  int32_t claimed;
  commsched_status_t status;
  char message[256];
} Comm;

static const commsched_host_t* host;

static commsched_status_t Init(const commsched_host_t* given, char* message,
                               uint64_t message_size) {
  /* A backend that cannot run on this machine returns UNAVAILABLE, and says
   * why. */
  (void)message;
  (void)message_size;
  host = given;
  return COMMSCHED_OK;
}

static commsched_status_t InstanceCreate(const commsched_instance_desc_t* desc,
                                         void** out_instance, char* message,
                                         uint64_t message_size) {
  Instance* instance;
  if (desc->config[0] != '\0') {
    snprintf(message, message_size, "takes no configuration, but got '%s'",
             desc->config);
    return COMMSCHED_INVALID_ARGUMENT;
  }
  instance = (Instance*)host->alloc(host->user, sizeof(Instance));
  if (instance == 0) return COMMSCHED_RESOURCE_EXHAUSTED;
  instance->world_size = desc->world_size;
  *out_instance = instance;
  return COMMSCHED_OK;
}

static void InstanceDestroy(void* instance) {
  host->free(host->user, instance);
}

static commsched_status_t CommCreate(void* instance,
                                     const commsched_comm_desc_t* desc,
                                     void** out_comm, char* message,
                                     uint64_t message_size) {
  Comm* comm;
  (void)instance;
  if (desc->size != 1) {
    snprintf(message, message_size,
             "axis '%s' has %d members; this backend knows groups of one",
             desc->axis, desc->size);
    return COMMSCHED_UNIMPLEMENTED;
  }
  comm = (Comm*)host->alloc(host->user, sizeof(Comm));
  if (comm == 0) return COMMSCHED_RESOURCE_EXHAUSTED;
  memset(comm, 0, sizeof(*comm));
  *out_comm = comm;
  return COMMSCHED_OK;
}

static uint64_t ElementBytes(commsched_dtype_t dtype) {
  switch (dtype) {
    case COMMSCHED_F64:
    case COMMSCHED_I64:
      return 8;
    case COMMSCHED_F16:
    case COMMSCHED_BF16:
      return 2;
    case COMMSCHED_I8:
    case COMMSCHED_U8:
      return 1;
    default:
      return 4; /* F32, I32 */
  }
}

/* Never blocks, never allocates. What it is given has been checked. */
static commsched_status_t Launch(void* opaque, const commsched_launch_t* launch,
                                 uint32_t ticket, commsched_stream_t stream,
                                 char* message, uint64_t message_size) {
  const Comm* comm = (const Comm*)opaque;
  const commsched_status_t status =
      __atomic_load_n(&comm->status, __ATOMIC_ACQUIRE);
  const uint64_t size = ElementBytes(launch->dtype);
  uint32_t i;
  (void)ticket;
  (void)stream;
  if (status != COMMSCHED_OK) {
    snprintf(message, message_size, "%s", comm->message);
    return status;
  }
  if (launch->kind == COMMSCHED_BARRIER) return COMMSCHED_OK;
  for (i = 0; i < launch->num_members; ++i) {
    const commsched_member_t* member = &launch->members[i];
    /* Of one member there is one part. */
    const uint64_t count = member->counts ? member->counts[0] : member->count;
    /* In place, there is nothing to do. */
    if (member->input != member->output && count != 0) {
      memcpy(member->output, member->input, count * size);
    }
  }
  return COMMSCHED_OK;
}

/* Any thread, also while another is in Launch. */
static void CommAbort(void* opaque, commsched_status_t status,
                      const char* message) {
  Comm* comm = (Comm*)opaque;
  if (__atomic_exchange_n(&comm->claimed, 1, __ATOMIC_ACQ_REL) != 0) return;
  snprintf(comm->message, sizeof(comm->message), "%s", message);
  __atomic_store_n(&comm->status, status, __ATOMIC_RELEASE);
}

static void CommDestroy(void* comm) { host->free(host->user, comm); }

static const commsched_backend_t kBackend = {
    .struct_size = sizeof(commsched_backend_t),
    .abi = COMMSCHED_BACKEND_ABI,
    .capabilities = COMMSCHED_BACKEND_VECTORED | COMMSCHED_BACKEND_INLINE |
                    COMMSCHED_BACKEND_DETERMINISTIC,
    .name = "skeleton",
    .version = "1",
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
    .init = Init,
};
