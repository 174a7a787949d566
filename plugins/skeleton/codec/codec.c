/* The least codec: nothing is lost, nothing is saved. Copy this folder, change
 * the names, then the two functions.
 *
 * A block of kBlockElements floats becomes kBlockBytes bytes. The last block of
 * a part may have fewer elements; it takes as many bytes. */
#include <string.h>

#include "commsched/plugin.h"

enum { kBlockElements = 16, kBlockBytes = 64 };

static void Encode(const float* input, uint64_t count, void* output) {
  memcpy(output, input, count * sizeof(float));
  /* Every byte of the last block travels; give each a value. */
  const uint64_t filled = count % kBlockElements;
  if (filled != 0) {
    memset((char*)output + count * sizeof(float), 0,
           (kBlockElements - filled) * sizeof(float));
  }
}

static void Decode(const void* input, uint64_t count, float* output) {
  memcpy(output, input, count * sizeof(float));
}

static const commsched_codec_t kCodec = {
    .struct_size = sizeof(commsched_codec_t),
    .abi = COMMSCHED_CODEC_ABI,
    /* f16 and bf16 would grow: they are handed over as f32. */
    .dtypes = 1u << COMMSCHED_F32,
    .name = "skeleton",
    .version = "1",
    .block_elements = kBlockElements,
    .block_bytes = kBlockBytes,
    .encode = Encode,
    .decode = Decode,
};

static const commsched_plugin_t kPlugins[] = {
    {COMMSCHED_PLUGIN_CODEC, 0, &kCodec},
};

COMMSCHED_PLUGIN_LIST commsched_plugins_v0 = {
    .struct_size = sizeof(commsched_plugin_list_t),
    .abi = COMMSCHED_PLUGIN_LIST_ABI,
    .num_plugins = 1,
    .plugins = kPlugins,
};
