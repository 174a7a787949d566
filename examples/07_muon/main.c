/* An optimizer of the caller's: Muon, which orthogonalises the momentum of
 * whole matrices, with AdamW for everything else. Two ranks train a small
 * network with each of the two.
 */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "commsched/engine.h"

enum { RANKS = 2, INPUTS = 4, HIDDEN = 32, BATCH = 32, STEPS = 200 };
enum { W1, W2, W3, PARAMETERS }; /* Ids, in the order of registration. */

static const char* const kNames[] = {"w1", "w2", "w3"};
static const uint64_t kDims[][2] = {
    {HIDDEN, INPUTS}, {HIDDEN, HIDDEN}, {HIDDEN}};
static const uint32_t kNumDims[] = {2, 2, 1};

/* ---- The optimizer ------------------------------------------------------- */

enum { LARGEST = HIDDEN * HIDDEN };

/* What a rank steps with: AdamW, and room to compute in. */
struct muon {
  commsched_optimizer_table_t adamw;
  float x[LARGEST], a[LARGEST], b[LARGEST];
};

/* out = first * second, of n x k and k x m; `transposed`: second is m x k. */
static void multiply(const float* first, const float* second, int transposed,
                     uint64_t n, uint64_t k, uint64_t m, float* out) {
  for (uint64_t i = 0; i < n; ++i) {
    for (uint64_t j = 0; j < m; ++j) {
      float sum = 0;
      for (uint64_t l = 0; l < k; ++l) {
        sum += first[i * k + l] * second[transposed ? j * k + l : l * m + j];
      }
      out[i * m + j] = sum;
    }
  }
}

/* Newton-Schulz: makes all singular values of x, n x m, about 1. */
static void orthogonalise(struct muon* muon, uint64_t n, uint64_t m) {
  float* const x = muon->x;
  float squares = 1e-14f;
  for (uint64_t i = 0; i < n * m; ++i) squares += x[i] * x[i];
  for (uint64_t i = 0; i < n * m; ++i) x[i] /= sqrtf(squares);
  for (int step = 0; step < 5; ++step) { /* x = 3.4445 x + (b a + c a a) x */
    float aa[LARGEST];
    multiply(x, x, 1, n, m, n, muon->a);
    multiply(muon->a, muon->a, 0, n, n, n, aa);
    for (uint64_t i = 0; i < n * n; ++i) {
      aa[i] = -4.7750f * muon->a[i] + 2.0315f * aa[i];
    }
    multiply(aa, x, 0, n, n, m, muon->b);
    for (uint64_t i = 0; i < n * m; ++i) x[i] = 3.4445f * x[i] + muon->b[i];
  }
}

/* The segment is all of a matrix, since the table says whole_tensors. */
static void step_matrix(struct muon* muon,
                        const commsched_optimizer_bucket_t* bucket,
                        const commsched_optimizer_segment_t* segment) {
  if (segment->control->skip != 0) return;
  float* const weight = bucket->masters + segment->begin;
  float* const momentum = bucket->state + segment->begin;
  const float* const gradient =
      (const float*)bucket->gradients + segment->begin; /* fp32 here. */
  for (uint64_t i = 0; i < segment->count; ++i) {
    const float g = gradient[i] * (float)segment->control->gradient_scale;
    momentum[i] = 0.95f * momentum[i] + g;
    muon->x[i] = g + 0.95f * momentum[i];
  }
  const uint64_t rows = segment->dims[0], columns = segment->dims[1];
  orthogonalise(muon, rows, columns);
  const float rate =
      segment->lr * sqrtf((float)(rows > columns ? rows : columns)) * 0.2f;
  for (uint64_t i = 0; i < segment->count; ++i) {
    weight[i] -= segment->lr * segment->decay * weight[i] + rate * muon->x[i];
  }
}

static commsched_status_t step_muon(
    const commsched_optimizer_table_t* self, commsched_stream_t stream,
    const commsched_optimizer_bucket_t* bucket) {
  struct muon* const muon = self->user;
  for (uint32_t i = 0; i < bucket->num_segments; ++i) {
    if (bucket->segments[i].num_dims == 2) {
      step_matrix(muon, bucket, &bucket->segments[i]);
      continue;
    }
    commsched_optimizer_bucket_t rest = *bucket;
    rest.segments = &bucket->segments[i];
    rest.num_segments = 1;
    const commsched_status_t status =
        muon->adamw.step(&muon->adamw, stream, &rest);
    if (status != COMMSCHED_OK) return status;
  }
  return COMMSCHED_OK;
}

/* A matrix keeps one value per weight, its momentum, and leaves the other one
 * to what AdamW steps. */
static commsched_optimizer_table_t muon_table(struct muon* muon) {
  muon->adamw = commsched_adamw(0.9f, 0.95f, 1e-8f);
  commsched_optimizer_table_t table = commsched_optimizer_table_init();
  table.name = "muon";
  table.state_values = 2;
  table.state_names[0] = "muon.m";
  table.state_names[1] = "muon.v";
  table.whole_tensors = 1;
  table.beta1 = muon->adamw.beta1;
  table.beta2 = muon->adamw.beta2;
  table.step = step_muon;
  table.user = muon;
  return table;
}

/* ---- The network --------------------------------------------------------- */

struct rank {
  int32_t number;
  int uses_muon;
  commsched_world_t* world;
  commsched_engine_t* engine;
  struct muon muon;
  double first_loss, last_loss;
};

static void check(commsched_status_t status, const char* what) {
  if (status == COMMSCHED_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, commsched_status_name(status),
          commsched_engine_last_error());
  exit(1);
}

/* Uniform in [-1, 1). */
static float noise(uint32_t* state) {
  *state = *state * 1664525u + 1013904223u;
  return (float)(int32_t)*state / 2147483648.0f;
}

/* y = w3 tanh(w2 tanh(w1 x)) learns x0 * x1 * x2; adds the gradients of one
 * sample and returns its loss. */
static double learn(const float* const w[], float* const d[],
                    uint32_t* random) {
  float x[INPUTS], h1[HIDDEN], h2[HIDDEN], d2[HIDDEN], y = 0;
  for (int k = 0; k < INPUTS; ++k) x[k] = noise(random);
  multiply(w[W1], x, 0, HIDDEN, INPUTS, 1, h1);
  for (int i = 0; i < HIDDEN; ++i) h1[i] = tanhf(h1[i]);
  multiply(w[W2], h1, 0, HIDDEN, HIDDEN, 1, h2);
  for (int i = 0; i < HIDDEN; ++i) y += w[W3][i] * (h2[i] = tanhf(h2[i]));
  const float error = y - x[0] * x[1] * x[2];
  const float signal = 2 * error / BATCH;
  for (int i = 0; i < HIDDEN; ++i) {
    d[W3][i] += signal * h2[i];
    d2[i] = signal * w[W3][i] * (1 - h2[i] * h2[i]);
  }
  for (int j = 0; j < HIDDEN; ++j) {
    float d1 = 0;
    for (int i = 0; i < HIDDEN; ++i) {
      d[W2][i * HIDDEN + j] += d2[i] * h1[j];
      d1 += d2[i] * w[W2][i * HIDDEN + j];
    }
    d1 *= 1 - h1[j] * h1[j];
    for (int k = 0; k < INPUTS; ++k) d[W1][j * INPUTS + k] += d1 * x[k];
  }
  return (double)error * error / BATCH;
}

static double step(struct rank* self, uint32_t* random) {
  commsched_engine_t* engine = self->engine;
  const float* values[PARAMETERS];
  float* gradients[PARAMETERS];
  double loss = 0;
  const commsched_pass_t forward = {COMMSCHED_FORWARD, 0, 0, 0};
  const commsched_pass_t backward = {COMMSCHED_BACKWARD, 0, 0, 0};
  check(commsched_engine_step_begin(engine, NULL), "step_begin");
  check(commsched_engine_pass_begin(engine, &forward), "forward");
  check(commsched_engine_pass_end(engine, &forward), "forward");
  check(commsched_engine_pass_begin(engine, &backward), "backward");
  for (uint32_t p = 0; p < PARAMETERS; ++p) {
    const void* value;
    void* gradient;
    check(commsched_engine_parameter_address(engine, p, &value, &gradient),
          "parameter_address");
    values[p] = value;
    gradients[p] = gradient;
  }
  for (int i = 0; i < BATCH; ++i) loss += learn(values, gradients, random);
  check(commsched_engine_pass_end(engine, &backward), "backward");
  commsched_engine_update_args_t args = commsched_engine_update_args_init();
  args.lr = 0.01f;
  check(commsched_engine_update(engine, &args), "update");
  check(commsched_engine_step_end(engine), "step_end");
  return loss;
}

static commsched_model_t* make_model(void) {
  commsched_model_t* model;
  uint32_t id;
  check(commsched_model_create(&model), "model");
  check(commsched_model_add_module(model, "mlp", 0, 0, &id), "module");
  for (uint32_t p = 0; p < PARAMETERS; ++p) {
    commsched_parameter_desc_t desc = commsched_parameter_desc_init();
    desc.name = kNames[p];
    desc.dims = kDims[p];
    desc.num_dims = kNumDims[p];
    check(commsched_model_add_parameter(model, &desc, &id), "parameter");
  }
  return model;
}

/* Each rank its own, as the optimizer's table has what is the rank's. */
static commsched_step_plan_t* make_plan(struct rank* self) {
  const commsched_optimizer_table_t muon = muon_table(&self->muon);
  commsched_step_plan_role_t role = commsched_step_plan_role_init();
  role.model = make_model();
  role.num_ranks = RANKS;
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  options.zero_stage = 2; /* Each rank steps its own matrices. */
  options.optimizer = self->uses_muon ? &muon : &self->muon.adamw;
  commsched_step_plan_t* plan;
  check(commsched_step_plan_build(&role, 1, &options, &plan), "step plan");
  commsched_model_destroy(role.model); /* The plan keeps it. */
  return plan;
}

static void set_values(struct rank* self) {
  uint32_t random = 1;
  for (uint32_t p = 0; p < PARAMETERS; ++p) {
    const uint64_t count = kDims[p][0] * (kNumDims[p] == 2 ? kDims[p][1] : 1);
    float values[LARGEST];
    for (uint64_t i = 0; i < count; ++i) values[i] = noise(&random) / 4;
    check(commsched_engine_set_parameter(self->engine, p, values, count),
          "set");
  }
}

static void* run_rank(void* argument) {
  struct rank* self = argument;
  commsched_context_t* context;
  check(commsched_context_create(self->world, self->number, &context),
        "context");
  const int32_t members[RANKS] = {0, 1};
  commsched_group_t* group;
  check(commsched_group_create(context, "dp", members, RANKS, &group), "group");
  commsched_step_plan_t* plan = make_plan(self);
  commsched_engine_desc_t desc = commsched_engine_desc_init();
  desc.context = context;
  desc.group = group;
  desc.step_plan = plan;
  check(commsched_engine_create(&desc, &self->engine), "engine");
  commsched_step_plan_destroy(plan); /* The engine keeps it. */
  set_values(self);
  uint32_t random = 2u + (uint32_t)self->number; /* Its own data. */
  for (int i = 0; i < STEPS; ++i) {
    self->last_loss = step(self, &random);
    if (i == 0) self->first_loss = self->last_loss;
  }
  commsched_engine_destroy(self->engine);
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  return NULL;
}

int main(void) {
  for (int uses_muon = 0; uses_muon <= 1; ++uses_muon) {
    static struct rank ranks[RANKS];
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = RANKS;
    commsched_world_t* world;
    check(commsched_world_create_inproc(&desc, &world), "world");
    pthread_t threads[RANKS];
    for (int i = 0; i < RANKS; ++i) {
      ranks[i].number = i;
      ranks[i].uses_muon = uses_muon;
      ranks[i].world = world;
      if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0) return 1;
    }
    for (int i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);
    printf("%s: loss %.3f -> %.3f\n", uses_muon ? "Muon" : "AdamW",
           (ranks[0].first_loss + ranks[1].first_loss) / 2,
           (ranks[0].last_loss + ranks[1].last_loss) / 2);
    commsched_world_destroy(world);
  }
  return fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}
