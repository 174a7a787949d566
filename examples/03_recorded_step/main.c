/* Two ranks call eagerly, in their own order; the recording makes a plan of it.
 * Layer 1 is a branch: from step 4 on, rank 1 does not take it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "commsched/commsched.h"

enum { RANKS = 2, LAYERS = 3, STEPS = 10, COUNT = 4 };

struct rank {
  int32_t number;
  commsched_world_t* world;
  commsched_op_id_t backward[LAYERS], reduce[LAYERS], update[LAYERS];
  float gradient[LAYERS][COUNT];
  float sums[STEPS][LAYERS]; /* What main() prints. */
  commsched_recording_info_t info[STEPS];
};

static void check(commsched_status_t status, const char* what) {
  if (status == COMMSCHED_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, commsched_status_name(status),
          commsched_last_error());
  exit(1);
}

static commsched_op_id_t add_compute(commsched_recording_t* recording,
                                     const char* name,
                                     commsched_buffer_id_t buffer,
                                     commsched_access_mode_t mode) {
  commsched_access_t access = {0};
  access.buffer = buffer;
  access.mode = mode;
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = name;
  desc.accesses = &access;
  desc.num_accesses = 1;
  commsched_op_id_t op;
  check(commsched_recording_add_compute(recording, &desc, 0, &op), name);
  return op;
}

static void declare_layer(struct rank* self, commsched_recording_t* recording,
                          int layer) {
  char name[32];
  snprintf(name, sizeof(name), "gradient.%d", layer);
  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  buffer.name = name;
  buffer.ownership = COMMSCHED_BOUND;
  buffer.count = COUNT;
  commsched_buffer_id_t gradient;
  check(commsched_recording_add_buffer(recording, &buffer,
                                       self->gradient[layer], &gradient),
        name);
  snprintf(name, sizeof(name), "backward.%d", layer);
  self->backward[layer] =
      add_compute(recording, name, gradient, COMMSCHED_WRITE);
  snprintf(name, sizeof(name), "update.%d", layer);
  self->update[layer] = add_compute(recording, name, gradient, COMMSCHED_READ);
  snprintf(name, sizeof(name), "reduce.%d", layer);
  commsched_collective_desc_t reduce = commsched_collective_desc_init();
  reduce.name = name;
  reduce.input.buffer = gradient;
  reduce.output.buffer = gradient; /* In place, on group 0. */
  check(commsched_recording_add_collective(recording, &reduce, 0, 0,
                                           &self->reduce[layer]),
        name);
}

static int takes(const struct rank* self, int step, int layer) {
  return layer != 1 || step < 4 || self->number == 0;
}

static void run_step(struct rank* self, commsched_recording_t* recording,
                     int step) {
  const commsched_stream_t here = commsched_stream_caller();
  check(commsched_recording_step_begin(recording), "step_begin");
  for (int layer = LAYERS - 1; layer >= 0; --layer) {
    if (!takes(self, step, layer)) continue;
    check(commsched_recording_before(recording, self->backward[layer], here),
          "before");
    for (int i = 0; i < COUNT; ++i) {
      self->gradient[layer][i] = (float)(10 * self->number + layer + 1);
    }
    check(commsched_recording_after(recording, self->backward[layer], here),
          "after");
    check(commsched_recording_submit(recording, self->reduce[layer]), "submit");
  }
  for (int layer = 0; layer < LAYERS; ++layer) {
    if (!takes(self, step, layer)) continue;
    check(commsched_recording_before(recording, self->update[layer], here),
          "before");
    self->sums[step][layer] = self->gradient[layer][0];
    check(commsched_recording_after(recording, self->update[layer], here),
          "after");
  }
  check(commsched_recording_step_end(recording), "step_end");
  self->info[step] = commsched_recording_info_init();
  check(commsched_recording_get_info(recording, &self->info[step]), "info");
}

static void* run_rank(void* argument) {
  struct rank* self = argument;
  commsched_context_t* context;
  check(commsched_context_create(self->world, self->number, &context),
        "context");
  const int32_t members[RANKS] = {0, 1};
  commsched_group_t* group;
  check(commsched_group_create(context, "dp", members, RANKS, &group), "group");
  commsched_recording_desc_t desc = commsched_recording_desc_init();
  desc.context = context;
  desc.groups = &group;
  desc.num_groups = 1;
  commsched_recording_t* recording;
  check(commsched_recording_create(&desc, &recording), "recording");
  for (int layer = 0; layer < LAYERS; ++layer) {
    declare_layer(self, recording, layer);
  }
  for (int step = 0; step < STEPS; ++step) run_step(self, recording, step);
  check(commsched_recording_drain(recording), "drain");
  commsched_recording_destroy(recording);
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  return NULL;
}

int main(void) {
  static struct rank ranks[RANKS];
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = RANKS;
  commsched_world_t* world;
  check(commsched_world_create_inproc(&desc, &world), "world");
  pthread_t threads[RANKS];
  for (int i = 0; i < RANKS; ++i) {
    ranks[i].number = i;
    ranks[i].world = world;
    if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0) return 1;
  }
  for (int i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);

  static const char* const phases[] = {"recording", "frozen",
                                       "recording again"};
  for (int step = 0; step < STEPS; ++step) {
    printf("step %d:", step);
    for (int i = 0; i < RANKS; ++i) {
      printf(" rank %d", i);
      for (int layer = 0; layer < LAYERS; ++layer) {
        if (takes(&ranks[i], step, layer)) {
          printf(" %g", ranks[i].sums[step][layer]);
        } else {
          printf(" -");
        }
      }
    }
    printf("; then %s, %d plan(s)\n", phases[ranks[0].info[step].phase],
           (int)ranks[0].info[step].plans);
  }
  commsched_world_destroy(world);
  return 0;
}
