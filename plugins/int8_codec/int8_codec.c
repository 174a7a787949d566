/* Codec "int8": 256 elements travel as one f32 scale and 256 bytes, about a
 * quarter of the bytes of f32.
 *
 * A block is scaled by its largest magnitude m: x becomes round(x / s) with
 * s = m / 127, so that the error is at most m / 254. Rounding is to nearest,
 * ties away from zero. A block with an infinity or a NaN decodes to NaN
 * throughout: what cannot be represented must not look like data. */
#include <string.h>

#include "commsched/plugin.h"

enum { kBlockElements = 256, kBlockBytes = 4 + kBlockElements };

static float Scale(const float* input, uint64_t count) {
  float largest = 0;
  int finite = 1;
  for (uint64_t i = 0; i < count; ++i) {
    const float magnitude = input[i] < 0 ? -input[i] : input[i];
    if (magnitude > largest) largest = magnitude;
    /* inf - inf and nan - nan are NaN, which equals nothing. */
    finite &= input[i] - input[i] == 0;
  }
  const uint32_t nan_bits = 0x7fc00000u;
  float scale = largest / 127.0f;
  if (!finite) memcpy(&scale, &nan_bits, sizeof(scale));
  return scale;
}

static int8_t Quantize(float value, float scale) {
  const float scaled = value / scale;
  const float rounded = scaled < 0 ? scaled - 0.5f : scaled + 0.5f;
  /* A tiny scale may have lost bits, so that the quotient exceeds 127. */
  if (rounded >= 127.0f) return 127;
  if (rounded <= -127.0f) return -127;
  return (int8_t)rounded;
}

static void EncodeBlock(const float* input, uint64_t count, char* output) {
  const float scale = Scale(input, count);
  int8_t values[kBlockElements] = {0};
  /* Neither 0 nor NaN is above 0: such blocks need no values. */
  if (scale > 0) {
    for (uint64_t i = 0; i < count; ++i) {
      values[i] = Quantize(input[i], scale);
    }
  }
  memcpy(output, &scale, sizeof(scale));
  memcpy(output + sizeof(scale), values, sizeof(values));
}

static void Encode(const float* input, uint64_t count, void* output) {
  char* out = (char*)output;
  for (uint64_t i = 0; i < count; i += kBlockElements, out += kBlockBytes) {
    const uint64_t left = count - i;
    EncodeBlock(input + i, left < kBlockElements ? left : kBlockElements, out);
  }
}

static void Decode(const void* input, uint64_t count, float* output) {
  const char* in = (const char*)input;
  for (uint64_t i = 0; i < count; i += kBlockElements, in += kBlockBytes) {
    float scale;
    int8_t values[kBlockElements];
    memcpy(&scale, in, sizeof(scale));
    memcpy(values, in + sizeof(scale), sizeof(values));
    for (uint64_t k = 0; k < kBlockElements && i + k < count; ++k) {
      output[i + k] = scale * (float)values[k];
    }
  }
}

/* As Decode, without a second pass over memory. */
static void DecodeAdd(const void* input, uint64_t count, float* sum) {
  const char* in = (const char*)input;
  for (uint64_t i = 0; i < count; i += kBlockElements, in += kBlockBytes) {
    float scale;
    int8_t values[kBlockElements];
    memcpy(&scale, in, sizeof(scale));
    memcpy(values, in + sizeof(scale), sizeof(values));
    for (uint64_t k = 0; k < kBlockElements && i + k < count; ++k) {
      sum[i + k] += scale * (float)values[k];
    }
  }
}

static const commsched_codec_t kCodec = {
    .struct_size = sizeof(commsched_codec_t),
    .abi = COMMSCHED_CODEC_ABI,
    .dtypes = 1u << COMMSCHED_F32 | 1u << COMMSCHED_F16 | 1u << COMMSCHED_BF16,
    .name = "int8",
    .version = "1",
    .block_elements = kBlockElements,
    .block_bytes = kBlockBytes,
    .encode = Encode,
    .decode = Decode,
    .decode_add = DecodeAdd,
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
