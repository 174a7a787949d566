/* Codec "bf16": f32 data travels as bfloat16, half the bytes.
 *
 * Rounds to nearest, ties to even: the relative error is at most 2^-8. Keeps
 * the range of f32; infinities stay, and every NaN stays one. */
#include <stddef.h>
#include <string.h>

#include "commsched/plugin.h"

static uint16_t Round(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    /* A NaN whose payload is in the low half must not become an infinity. */
    return (uint16_t)(bits >> 16 | 0x40u);
  }
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static void Encode(const float* input, uint64_t count, void* output) {
  uint16_t* out = (uint16_t*)output;
  for (uint64_t i = 0; i < count; ++i) out[i] = Round(input[i]);
}

static void Decode(const void* input, uint64_t count, float* output) {
  const uint16_t* in = (const uint16_t*)input;
  for (uint64_t i = 0; i < count; ++i) {
    const uint32_t bits = (uint32_t)in[i] << 16;
    memcpy(&output[i], &bits, sizeof(bits));
  }
}

static const commsched_codec_t kCodec = {
    .struct_size = sizeof(commsched_codec_t),
    .abi = COMMSCHED_CODEC_ABI,
    .dtypes = 1u << COMMSCHED_F32,
    .name = "bf16",
    .version = "1",
    .block_elements = 1,
    .block_bytes = 2,
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
