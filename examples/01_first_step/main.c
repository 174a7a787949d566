/* A step of two ops on two ranks: "backward" fills a gradient, "reduce" sums it
 * over the ranks. Describes it, plans it, explains the plan, runs three steps.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "commsched/commsched.h"

enum { RANKS = 2, STEPS = 3, COUNT = 4 };

/* What main() hands to a rank's thread, and what it gets back. */
struct rank {
  int32_t number;
  commsched_world_t* world;
  commsched_plan_t* plan;
  commsched_op_id_t backward;
  commsched_buffer_id_t buffer;
  float sums[STEPS];
};

static void check(commsched_status_t status, const char* what) {
  if (status == COMMSCHED_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, commsched_status_name(status),
          commsched_last_error());
  exit(1);
}

/* Ops say what they read and write; what must wait for what follows from it. */
static commsched_graph_t* describe(struct rank* ranks) {
  commsched_graph_t* graph;
  check(commsched_graph_create(&graph), "graph");
  commsched_group_id_t group;
  check(commsched_graph_add_group(graph, "dp", RANKS, &group), "group");

  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  buffer.name = "gradient";
  buffer.dtype = COMMSCHED_F32;
  buffer.ownership = COMMSCHED_BOUND;
  buffer.count = COUNT;
  commsched_buffer_id_t gradient;
  check(commsched_graph_add_buffer(graph, &buffer, &gradient), "buffer");

  commsched_access_t writes = {0};
  writes.buffer = gradient;
  writes.mode = COMMSCHED_WRITE;
  commsched_compute_desc_t compute = commsched_compute_desc_init();
  compute.name = "backward";
  compute.accesses = &writes;
  compute.num_accesses = 1;
  compute.cost_ns = 1000000;
  commsched_op_id_t backward;
  check(commsched_graph_add_compute(graph, &compute, &backward), "compute");

  commsched_collective_desc_t reduce = commsched_collective_desc_init();
  reduce.name = "reduce";
  reduce.kind = COMMSCHED_ALL_REDUCE;
  reduce.reduce_op = COMMSCHED_SUM;
  reduce.group = group;
  reduce.input.buffer = gradient;
  reduce.output.buffer = gradient; /* In place. */
  commsched_op_id_t op;
  check(commsched_graph_add_collective(graph, &reduce, &op), "collective");
  for (int i = 0; i < RANKS; ++i) {
    ranks[i].backward = backward;
    ranks[i].buffer = gradient;
  }
  return graph;
}

static void run_steps(struct rank* self, commsched_session_t* session,
                      float* gradient) {
  const commsched_stream_t here = commsched_stream_caller();
  for (int step = 0; step < STEPS; ++step) {
    check(commsched_session_step_begin(session), "step_begin");
    check(commsched_session_before(session, self->backward, here), "before");
    for (int i = 0; i < COUNT; ++i) {
      gradient[i] = (float)((self->number + 1) * (step + 1));
    }
    check(commsched_session_after(session, self->backward, here), "after");
    check(commsched_session_step_end(session), "step_end");
    /* Only because we look at the sum here: the next `before` would wait. */
    check(commsched_session_drain(session), "drain");
    self->sums[step] = gradient[COUNT - 1];
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

  float gradient[COUNT] = {0};
  const commsched_binding_t binding = {self->buffer, 0, gradient,
                                       sizeof(gradient)};
  commsched_session_desc_t desc = commsched_session_desc_init();
  desc.context = context;
  desc.plan = self->plan;
  desc.groups = &group;
  desc.num_groups = 1;
  desc.bindings = &binding;
  desc.num_bindings = 1;
  commsched_session_t* session;
  check(commsched_session_create(&desc, &session), "session");
  run_steps(self, session, gradient);

  commsched_session_destroy(session);
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  return NULL;
}

int main(void) {
  struct rank ranks[RANKS] = {{0}};
  commsched_graph_t* graph = describe(ranks);
  commsched_plan_t* plan;
  check(commsched_plan_build(graph, NULL, NULL, &plan), "plan");
  commsched_graph_destroy(graph);
  char* text;
  check(commsched_plan_explain(plan, COMMSCHED_TEXT, &text), "explain");
  fputs(text, stdout);
  commsched_string_free(text);

  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = RANKS;
  commsched_world_t* world;
  check(commsched_world_create_inproc(&desc, &world), "world");
  pthread_t threads[RANKS];
  for (int i = 0; i < RANKS; ++i) {
    ranks[i].number = i;
    ranks[i].world = world;
    ranks[i].plan = plan;
    if (pthread_create(&threads[i], NULL, run_rank, &ranks[i]) != 0) return 1;
  }
  for (int i = 0; i < RANKS; ++i) pthread_join(threads[i], NULL);
  for (int i = 0; i < RANKS; ++i) {
    printf("rank %d:", i);
    for (int step = 0; step < STEPS; ++step) printf(" %g", ranks[i].sums[step]);
    printf("\n");
  }
  commsched_plan_destroy(plan);
  commsched_world_destroy(world);
  return fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}
