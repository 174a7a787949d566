/// Ulysses attention on the reference engine: ranks that share each sequence.
///
/// Each rank of a sequence-parallel group has a piece of the tokens of every
/// sequence. During attention it has all tokens of some of the heads instead,
/// and all-to-alls take queries, keys, values and results from one to the
/// other. An attention object knows which head goes where, adds the ops and
/// collectives of its modules to a model (model.h) in the order in which
/// most of the exchanges run under compute, and runs the ops of a step. What it
/// computes with (products of matrices, the attention of one head) are
/// functions of the caller's:
///
///   get_info             how much memory a description comes to
///   create               checks the description
///   register             after the modules and parameters of the engine
///   in each forward:     pass_begin, work on the input, run, pass_end
///   in each backward:    pass_begin, run, pass_end
///   destroy              after the engine
///
/// With R the rows of a rank, batch * seq / ranks, W the width, H and K heads
/// of queries and of keys and of S elements each, a module computes
///
///   q, k, v = input (R, W) * qkv_weight (W, (H + 2 K) S) + qkv_bias
///   output  = residual + attend(q, k, v) (R, H S) * out_weight (H S, W)
///             + out_bias
///
/// Rows are time-major: row t * batch + b has token t of the rank's piece of
/// sequence b, and rank r has tokens r * seq / ranks and on. Matrices are
/// row-major. Columns of qkv_weight are those of all queries, keys and values,
/// head by head; query head h has the keys and values of head h * K / H.
///
/// Heads need not divide by the ranks: the first ranks have one more. Where
/// several ranks need one head of keys, each gets it.
///
/// Conventions and errors: engine.h. An attention object is used by one thread
/// at a time, that of its engine.
#ifndef COMMSCHED_ATTENTION_H_
#define COMMSCHED_ATTENTION_H_

#include <stdint.h>
#include <string.h>

#include "commsched/engine_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The attention modules of one rank's model.
typedef struct commsched_attention commsched_attention_t;

/// out (rows, cols) = a b, or out += a b where `accumulate` is 1; the sum is
/// over `inner`. A stride is the distance between the rows of a matrix, in
/// elements. Where an operand is `transposed`, its transpose is what lies in
/// memory. Operands do not overlap the result. Never grows.
typedef struct commsched_product {
  const float* a;
  const float* b;
  float* out;
  uint64_t rows, cols, inner;
  uint64_t a_stride, b_stride, out_stride;
  uint32_t a_transposed, b_transposed;
  uint32_t accumulate;
  uint32_t reserved;  ///< 0.
} commsched_product_t;

/// One head of one sequence: `seq` rows of `head_size` elements. Those of q, y,
/// dy and dq are `q_stride` apart, those of k, v, dk and dv `kv_stride`.
///
/// Heads of queries that share keys and values add up their gradients: where
/// `accumulate` is 1, dk and dv are added to, and otherwise set. Never grows.
typedef struct commsched_attention_head {
  uint64_t seq, head_size;
  uint64_t q_stride, kv_stride;
  const float* q;
  const float* k;
  const float* v;
  float* kept;     ///< `kept_count` elements from the forward for the backward.
  float* scratch;  ///< `scratch_count` elements that a call may overwrite.
  float* y;        ///< Of a forward: the result.
  const float* dy;  ///< Of a backward: the gradient of y.
  float* dq;
  float* dk;
  float* dv;
  uint32_t accumulate;
  uint32_t reserved;  ///< 0.
} commsched_attention_head_t;

/// What the caller computes with. All functions run within
/// commsched_attention_run(), on the thread that calls it, and do their work
/// before they return. Anything but OK fails the run; the message is that of
/// commsched_set_last_error(). Arguments that are passed by pointer live during
/// the call only.
typedef struct commsched_attention_kernels {
  uint64_t struct_size;
  void* user;
  commsched_status_t (*product)(void* user, const commsched_product_t* args);
  /// y of q, k and v; and what the backward needs of it in `kept`.
  commsched_status_t (*head_forward)(void* user,
                                     const commsched_attention_head_t* args);
  /// dv of dy and `kept`. Before head_backward_query_key, so that the gradient
  /// of the values travels first; q, k and v may not have arrived.
  commsched_status_t (*head_backward_value)(
      void* user, const commsched_attention_head_t* args);
  /// dq and dk of dy, q, k, v and `kept`.
  commsched_status_t (*head_backward_query_key)(
      void* user, const commsched_attention_head_t* args);
  /// The gradient of the input of layer `layer` is complete in `d_input`. What
  /// the caller does here with it may read `input_parameters` and add to
  /// `input_gradients` (commsched_attention_layer_t). NULL: nothing is done.
  commsched_status_t (*input_gradient)(void* user, uint32_t layer);
  /// No later op of this backward adds to the gradient of `parameter`, which is
  /// one of the layer's; its reduction may begin once this has returned. NULL:
  /// nobody is told.
  commsched_status_t (*gradient_complete)(void* user,
                                          commsched_parameter_id_t parameter);
} commsched_attention_kernels_t;

static inline commsched_attention_kernels_t commsched_attention_kernels_init(
    void) {
  commsched_attention_kernels_t kernels;
  memset(&kernels, 0, sizeof(kernels));
  kernels.struct_size = sizeof(kernels);
  return kernels;
}

typedef struct commsched_attention_desc {
  uint64_t struct_size;
  uint64_t layers;     ///< Attention modules, 1 to 65536.
  uint64_t heads;      ///< Of queries, 1 to 65536.
  uint64_t kv_heads;   ///< Of keys and values; divides `heads`. 0: as many.
  uint64_t head_size;  ///< Elements of a head, 1 to 65536.
  uint64_t width;      ///< W, 1 to 2^24. 0: heads * head_size.
  uint64_t batch;      ///< Sequences of a micro-batch, 1 to 2^24.
  uint64_t seq;        ///< Tokens of a whole sequence, 1 to 2^24.
  uint32_t ranks;      ///< That share a sequence; 0: 1.
  uint32_t rank;       ///< This one's place among them.
  /// A rank's heads are cut into so many chunks, which are exchanged one after
  /// the other: 1 to heads / ranks. 0: 1. With two or more the exchanges of
  /// values and of results run under compute, too.
  uint32_t chunks;
  /// As what ranks exchange: F32, F16 or BF16. What an op writes is rounded to
  /// it, and what it reads is widened for it.
  commsched_dtype_t dtype;
  /// 1: an op without work follows each exchange and waits for it, so that
  /// nothing runs under it.
  uint32_t blocking;
  /// 1: forwards run again before their backwards
  /// (commsched_model_recompute()), and all layers share the memory of one.
  uint32_t recompute;
  uint64_t kept_count;     ///< Of a head, elements of fp32; 0: seq * seq.
  uint64_t scratch_count;  ///< Elements of fp32; 0: none.
  /// `memory_bytes` of memory, as many as commsched_attention_get_info() says
  /// or more, aligned to 64. NULL: create allocates.
  void* memory;
  uint64_t memory_bytes;
  const commsched_attention_kernels_t* kernels;  ///< Copied.
} commsched_attention_desc_t;

static inline commsched_attention_desc_t commsched_attention_desc_init(void) {
  commsched_attention_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// What a description comes to on this rank.
typedef struct commsched_attention_info {
  uint64_t struct_size;
  uint64_t memory_bytes;
  /// Of one layer, what is added to the model.
  uint32_t forward_ops, forward_collectives;
  uint32_t backward_ops, backward_collectives;
} commsched_attention_info_t;

static inline commsched_attention_info_t commsched_attention_info_init(void) {
  commsched_attention_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

/// Checks a description and fills `out_info`, made by
/// commsched_attention_info_init(). `memory` and `kernels` are not looked at.
///
/// Ownership: `desc` is read during the call.
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set, a field outside
/// its
///                              range, `seq` not a multiple of `ranks`, fewer
///                              heads than ranks
///            OUT_OF_RANGE      more than 2^60 bytes of memory
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_attention_get_info(const commsched_attention_desc_t* desc,
                             commsched_attention_info_t* out_info);

/// Makes an attention object. It sets its memory to zero.
///
/// Ownership: `desc` is read during the call; `memory` must outlive the object
///            and the engine that runs its model. Release with
///            commsched_attention_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT    those of get_info; no `kernels`, or one
///                                without an entry that may not be NULL; memory
///                                that is misaligned or too short
///            OUT_OF_RANGE        as get_info
///            RESOURCE_EXHAUSTED  no memory
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_attention_create(const commsched_attention_desc_t* desc,
                           commsched_attention_t** out_attention);

/// One attention module, as it is registered with the model.
typedef struct commsched_attention_layer {
  uint64_t struct_size;
  commsched_module_id_t module;
  commsched_parameter_id_t qkv_weight, qkv_bias;
  commsched_parameter_id_t out_weight, out_bias;
  uint32_t num_input_parameters;
  uint32_t num_input_gradients;
  uint32_t reserved;  ///< 0.
  /// Begins the names of activations that only this layer has, as in "NAME.q".
  /// Unused with `recompute`, where there are none, and may then be NULL.
  const char* name;
  /// What kernels.input_gradient reads and adds to, such as the parameters of a
  /// norm before the projections.
  const commsched_parameter_id_t* input_parameters;
  const commsched_parameter_id_t* input_gradients;
} commsched_attention_layer_t;

static inline commsched_attention_layer_t commsched_attention_layer_init(void) {
  commsched_attention_layer_t layer;
  memset(&layer, 0, sizeof(layer));
  layer.struct_size = sizeof(layer);
  return layer;
}

/// Adds what the layers need to `model`: the group `axis`, of the size of
/// `group`, which the engine is given in `groups` of its description; the
/// activations "q_out", "k_out", "v_out", "o_out", "do_out", "do_in", "dq_out",
/// "dk_out", "dv_out", "dq_in", "dk_in", "dv_in" and those of the layers, and
/// ops and collectives. All of it is equal on all ranks, addresses aside.
///
/// Shape:     `layers` has as many entries as the description says, in the
/// order
///            in which the modules were added to the model.
/// Ownership: `layers` and `group` are read during the call. The attention
///            object must outlive the engine that runs the model.
/// Threads:   one per model at a time.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, another number of layers, a `group` of
///                                 other size, a layer without a name
///            FAILED_PRECONDITION  the object is registered already
///            and those of commsched_model_add_group(), _add_activation(),
///            _add_op() and _add_collective()
///            After an error, what was added stays: destroy the model.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_attention_register(
    commsched_attention_t* attention, commsched_model_t* model,
    const char* axis, commsched_group_t* group,
    const commsched_attention_layer_t* layers, uint64_t num_layers);

/// What a module lends to its ops, all of fp32. Of a forward no gradient is
/// touched, nor `d_output` and `d_input`; of a backward neither `residual`,
/// `output` nor a bias. Never grows.
typedef struct commsched_attention_block {
  const float* residual;  ///< (R, W). NULL: zeros.
  const float* input;  ///< (R, W), unchanged from the forward to the backward.
  float* output;       ///< (R, W), which is set. May not be `residual`.
  const float* d_output;  ///< (R, W).
  float* d_input;         ///< (R, W), which is set. May not be `d_output`.
  const float* qkv_weight;
  const float* qkv_bias;
  const float* out_weight;
  const float* out_bias;
  float* d_qkv_weight;  ///< Gradients are added to.
  float* d_qkv_bias;
  float* d_out_weight;
  float* d_out_bias;
} commsched_attention_block_t;

/// Runs the forward, or with `backward` 1 the backward, of layer `layer` of the
/// model that `engine` runs, between the engine's begin and end of it: each op,
/// and before it a wait for the exchanges that it depends on. Within a step
/// that comes to commsched_engine_op_begin() and _op_end() for each.
///
/// `block` NULL: ops do nothing, and what is in memory is exchanged, as an
/// evaluation needs that only looks at parameters.
///
/// Ownership: `block` is read during the call.
/// Threads:   one per engine at a time.
/// Blocks:    until the exchanges that its ops wait for are complete.
/// Errors:    INVALID_ARGUMENT     NULL, `layer` out of range, a pointer of the
///                                 block that this direction needs is NULL
///            FAILED_PRECONDITION  not registered
///            those of commsched_engine_op_begin(), and what a kernel returned.
///            After either of these the step cannot go on.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_attention_run(
    commsched_attention_t* attention, commsched_engine_t* engine,
    uint32_t layer, uint32_t backward, uint32_t micro_batch,
    const commsched_attention_block_t* block);

/// Accepts NULL.
///
/// Threads:   any, once per handle, after the engine was destroyed.
/// Blocks:    never.
/// Since:     0.1
COMMSCHED_API void commsched_attention_destroy(
    commsched_attention_t* attention);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_ATTENTION_H_
