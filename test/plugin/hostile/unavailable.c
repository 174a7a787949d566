/* A plugin that cannot run on this machine, and says why. */
#include <stdio.h>

#include "commsched/plugin.h"

static commsched_status_t Init(const commsched_host_t* host, char* message,
                               uint64_t message_size) {
  (void)host;
  snprintf(message, message_size, "needs 8 flux capacitors, found 0");
  return COMMSCHED_UNAVAILABLE;
}

static void Encode(const float* input, uint64_t count, void* output) {
  (void)input;
  (void)count;
  (void)output;
}

static void Decode(const void* input, uint64_t count, float* output) {
  (void)input;
  (void)count;
  (void)output;
}

static const commsched_codec_t kCodec = {
    .struct_size = sizeof(commsched_codec_t),
    .dtypes = 1,
    .name = "unavailable",
    .version = "1",
    .block_elements = 1,
    .block_bytes = 4,
    .encode = Encode,
    .decode = Decode,
};

static const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_CODEC, 0, &kCodec}};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .num_plugins = 1,
    .plugins = kPlugins,
    .init = Init,
};
