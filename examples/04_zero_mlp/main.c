/* A two-layer network learns y = x0 * x1 on two ranks, trained with ZeRO-0 to
 * 3 by the reference engine: the model is this file's, all else the engine's.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "commsched/engine.h"

enum { RANKS = 2, INPUTS = 2, HIDDEN = 1024, BATCH = 32, STEPS = 200 };
enum { W1, B1, W2, B2, PARAMETERS }; /* Ids, in the order of registration. */
enum { HIDDEN_LAYER, OUTPUT_LAYER };

static const char* const kNames[] = {"w1", "b1", "w2", "b2"};
static const uint64_t kCounts[] = {INPUTS * HIDDEN, HIDDEN, HIDDEN, 1};

struct rank {
  int32_t number;
  const commsched_step_plan_t* plan;
  commsched_world_t* world;
  commsched_engine_t* engine;
  const float* value[PARAMETERS]; /* Within a forward or backward. */
  float* gradient[PARAMETERS];
  float x[BATCH][INPUTS], hidden[BATCH][HIDDEN], error[BATCH];
  float signal[BATCH][HIDDEN]; /* d loss / d hidden, before the ReLU. */
  double first_loss, last_loss;
  uint64_t state_bytes;
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

static void begin_pass(commsched_engine_t* engine, commsched_pass_kind_t kind,
                       commsched_module_id_t layer) {
  const commsched_pass_t pass = {kind, layer, 0, 0};
  check(commsched_engine_pass_begin(engine, &pass), "pass_begin");
}

static void end_pass(commsched_engine_t* engine, commsched_pass_kind_t kind,
                     commsched_module_id_t layer) {
  const commsched_pass_t pass = {kind, layer, 0, 0};
  check(commsched_engine_pass_end(engine, &pass), "pass_end");
}

/* In ZeRO-3 parameters have an address only while they are gathered. */
static void find_parameters(struct rank* self, int first, int last) {
  for (uint32_t p = (uint32_t)first; p <= (uint32_t)last; ++p) {
    const void* value;
    void* gradient;
    check(
        commsched_engine_parameter_address(self->engine, p, &value, &gradient),
        "parameter_address");
    self->value[p] = value; /* fp32, as the description says by default. */
    self->gradient[p] = gradient;
  }
}

static double forward(struct rank* self, uint32_t* random) {
  commsched_engine_t* engine = self->engine;
  begin_pass(engine, COMMSCHED_FORWARD, HIDDEN_LAYER);
  find_parameters(self, W1, B1);
  for (int i = 0; i < BATCH; ++i) {
    for (int k = 0; k < INPUTS; ++k) self->x[i][k] = noise(random);
    for (int h = 0; h < HIDDEN; ++h) {
      float sum = self->value[B1][h];
      for (int k = 0; k < INPUTS; ++k) {
        sum += self->x[i][k] * self->value[W1][k * HIDDEN + h];
      }
      self->hidden[i][h] = sum > 0 ? sum : 0;
    }
  }
  end_pass(engine, COMMSCHED_FORWARD, HIDDEN_LAYER);
  begin_pass(engine, COMMSCHED_FORWARD, OUTPUT_LAYER);
  find_parameters(self, W2, B2);
  double loss = 0;
  for (int i = 0; i < BATCH; ++i) {
    float y = self->value[B2][0];
    for (int h = 0; h < HIDDEN; ++h) {
      y += self->hidden[i][h] * self->value[W2][h];
    }
    self->error[i] = y - self->x[i][0] * self->x[i][1];
    loss += (double)self->error[i] * self->error[i] / BATCH;
  }
  end_pass(engine, COMMSCHED_FORWARD, OUTPUT_LAYER);
  return loss;
}

/* Gradients are added; the engine has zeroed them, and takes the mean over the
 * ranks while the layer before computes. */
static void backward(struct rank* self) {
  commsched_engine_t* engine = self->engine;
  begin_pass(engine, COMMSCHED_BACKWARD, OUTPUT_LAYER);
  find_parameters(self, W2, B2);
  for (int i = 0; i < BATCH; ++i) {
    const float d = 2.0f / BATCH * self->error[i];
    self->gradient[B2][0] += d;
    for (int h = 0; h < HIDDEN; ++h) {
      self->gradient[W2][h] += d * self->hidden[i][h];
      self->signal[i][h] = self->hidden[i][h] > 0 ? d * self->value[W2][h] : 0;
    }
  }
  end_pass(engine, COMMSCHED_BACKWARD, OUTPUT_LAYER);
  begin_pass(engine, COMMSCHED_BACKWARD, HIDDEN_LAYER);
  find_parameters(self, W1, B1);
  for (int i = 0; i < BATCH; ++i) {
    for (int h = 0; h < HIDDEN; ++h) {
      self->gradient[B1][h] += self->signal[i][h];
      for (int k = 0; k < INPUTS; ++k) {
        self->gradient[W1][k * HIDDEN + h] +=
            self->signal[i][h] * self->x[i][k];
      }
    }
  }
  end_pass(engine, COMMSCHED_BACKWARD, HIDDEN_LAYER);
}

/* Modules in the order of forward, and what they use. */
static commsched_model_t* make_model(void) {
  commsched_model_t* model;
  check(commsched_model_create(&model), "model");
  uint32_t id;
  check(commsched_model_add_module(model, "hidden", 0, 0, &id), "module");
  check(commsched_model_add_module(model, "output", 0, 0, &id), "module");
  for (int p = 0; p < PARAMETERS; ++p) {
    commsched_parameter_desc_t desc = commsched_parameter_desc_init();
    desc.module = p <= B1 ? HIDDEN_LAYER : OUTPUT_LAYER;
    desc.name = kNames[p];
    desc.dims = &kCounts[p];
    desc.num_dims = 1;
    check(commsched_model_add_parameter(model, &desc, &id), "parameter");
  }
  return model;
}

/* What each rank does in a step: made once, for all of them. */
static commsched_step_plan_t* make_plan(uint32_t stage) {
  commsched_step_plan_role_t role = commsched_step_plan_role_init();
  role.model = make_model();
  role.num_ranks = RANKS;
  commsched_step_plan_options_t options = commsched_step_plan_options_init();
  options.zero_stage = stage;
  options.bucket_bytes = 4096;
  options.max_live_bytes = stage == 3 ? 24576 : 0;
  options.clips = 1;
  commsched_step_plan_t* plan;
  check(commsched_step_plan_build(&role, 1, &options, &plan), "step plan");
  commsched_model_destroy(role.model); /* The plan keeps it. */
  return plan;
}

/* The same values on every rank. */
static void set_values(struct rank* self) {
  commsched_engine_t* engine = self->engine;
  uint32_t random = 1;
  for (uint32_t p = 0; p < PARAMETERS; ++p) {
    float values[INPUTS * HIDDEN];
    for (uint64_t i = 0; i < kCounts[p]; ++i) values[i] = noise(&random) / 8;
    check(commsched_engine_set_parameter(engine, p, values, kCounts[p]), "set");
  }
  commsched_engine_info_t info = commsched_engine_info_init();
  check(commsched_engine_get_info(engine, &info), "info");
  self->state_bytes = info.state_bytes;
}

static void train(struct rank* self) {
  uint32_t random = 2u + (uint32_t)self->number; /* Its own data. */
  commsched_engine_update_args_t args = commsched_engine_update_args_init();
  args.lr = 0.003f;
  for (int step = 0; step < STEPS; ++step) {
    check(commsched_engine_step_begin(self->engine, NULL), "step_begin");
    self->last_loss = forward(self, &random);
    if (step == 0) self->first_loss = self->last_loss;
    backward(self);
    check(commsched_engine_update(self->engine, &args), "update");
    check(commsched_engine_step_end(self->engine), "step_end");
  }
  check(commsched_engine_drain(self->engine), "drain");
}

static void* run_rank(void* argument) {
  struct rank* self = argument;
  commsched_context_t* context;
  check(commsched_context_create(self->world, self->number, &context),
        "context");
  const int32_t members[RANKS] = {0, 1};
  commsched_group_t* group;
  check(commsched_group_create(context, "dp", members, RANKS, &group), "group");
  commsched_engine_desc_t desc = commsched_engine_desc_init();
  desc.context = context;
  desc.group = group;
  desc.step_plan = self->plan;
  desc.clip_norm = 1;
  check(commsched_engine_create(&desc, &self->engine), "engine");
  set_values(self);
  train(self);
  commsched_engine_destroy(self->engine);
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  return NULL;
}

int main(void) {
  for (uint32_t stage = 0; stage <= 3; ++stage) {
    static struct rank ranks[RANKS];
    commsched_world_desc_t desc = commsched_world_desc_init();
    desc.size = RANKS;
    commsched_world_t* world;
    check(commsched_world_create_inproc(&desc, &world), "world");
    commsched_step_plan_t* plan = make_plan(stage);
    pthread_t threads[RANKS];
    for (int i = 0; i < RANKS; ++i) {
      ranks[i].number = i;
      ranks[i].plan = plan;
      ranks[i].world = world;
      if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0) return 1;
    }
    for (int i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);
    printf("ZeRO-%u: loss %.4f -> %.4f, %llu bytes of model state per rank\n",
           stage, (ranks[0].first_loss + ranks[1].first_loss) / 2,
           (ranks[0].last_loss + ranks[1].last_loss) / 2,
           (unsigned long long)ranks[0].state_bytes);
    commsched_step_plan_destroy(plan);
    commsched_world_destroy(world);
  }
  return fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}
