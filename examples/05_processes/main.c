/* The step of 01_first_step on ranks that are processes: every process runs
 * this program, and finds the others by what its launcher tells it.
 *
 *   commsched run -n 4 -- example_05_processes [STEPS [ELEMENTS]]
 *
 * Started alone it is a job of one rank.
 */
#include <stdio.h>
#include <stdlib.h>

#include "commsched/commsched.h"

enum { SHOWN = 3 }; /* Steps whose sums are printed. */

/* Of the step: what the session needs to know. */
struct step {
  commsched_op_id_t backward;
  commsched_buffer_id_t gradient;
  uint64_t count;
};

static void check(commsched_status_t status, const char* what) {
  if (status == COMMSCHED_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, commsched_status_name(status),
          commsched_last_error());
  exit(1);
}

/* "backward" fills a gradient, "reduce" sums it over the ranks, in place. */
static commsched_plan_t* plan_step(uint32_t ranks, struct step* step) {
  commsched_graph_t* graph;
  check(commsched_graph_create(&graph), "graph");
  commsched_group_id_t group;
  check(commsched_graph_add_group(graph, "dp", ranks, &group), "group");

  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  buffer.name = "gradient";
  buffer.dtype = COMMSCHED_F32;
  buffer.ownership = COMMSCHED_BOUND;
  buffer.count = step->count;
  check(commsched_graph_add_buffer(graph, &buffer, &step->gradient), "buffer");

  commsched_access_t writes = {0};
  writes.buffer = step->gradient;
  writes.mode = COMMSCHED_WRITE;
  commsched_compute_desc_t compute = commsched_compute_desc_init();
  compute.name = "backward";
  compute.accesses = &writes;
  compute.num_accesses = 1;
  check(commsched_graph_add_compute(graph, &compute, &step->backward),
        "compute");

  commsched_collective_desc_t reduce = commsched_collective_desc_init();
  reduce.name = "reduce";
  reduce.kind = COMMSCHED_ALL_REDUCE;
  reduce.reduce_op = COMMSCHED_SUM;
  reduce.group = group;
  reduce.input.buffer = step->gradient;
  reduce.output.buffer = step->gradient;
  commsched_op_id_t op;
  check(commsched_graph_add_collective(graph, &reduce, &op), "collective");

  commsched_plan_t* plan;
  check(commsched_plan_build(graph, NULL, NULL, &plan), "plan");
  commsched_graph_destroy(graph);
  return plan;
}

static commsched_session_t* create_session(commsched_context_t* context,
                                           commsched_plan_t* plan,
                                           commsched_group_t* group,
                                           const struct step* step,
                                           float* gradient) {
  const commsched_binding_t binding = {step->gradient, 0, gradient,
                                       step->count * sizeof(float)};
  commsched_session_desc_t desc = commsched_session_desc_init();
  desc.context = context;
  desc.plan = plan;
  desc.groups = &group;
  desc.num_groups = 1;
  desc.bindings = &binding;
  desc.num_bindings = 1;
  commsched_session_t* session;
  check(commsched_session_create(&desc, &session), "session");
  return session;
}

static void run_step(commsched_session_t* session, const struct step* step,
                     float* gradient, float value) {
  const commsched_stream_t here = commsched_stream_caller();
  check(commsched_session_step_begin(session), "step_begin");
  check(commsched_session_before(session, step->backward, here), "before");
  for (uint64_t i = 0; i < step->count; ++i) gradient[i] = value;
  check(commsched_session_after(session, step->backward, here), "after");
  check(commsched_session_step_end(session), "step_end");
  check(commsched_session_drain(session), "drain");
}

int main(int argc, char** argv) {
  const long steps = argc > 1 ? atol(argv[1]) : 3;
  const long count = argc > 2 ? atol(argv[2]) : 4;
  if (argc > 3 || steps < 1 || count < 1) {
    fprintf(stderr, "usage: %s [STEPS [ELEMENTS]]\n", argv[0]);
    return 2;
  }
  /* Rank, size and where to meet come from the environment. */
  const commsched_join_desc_t desc = commsched_join_desc_init();
  commsched_world_t* world;
  check(commsched_world_join(&desc, &world), "join");
  const int32_t rank = commsched_world_rank(world);
  const int32_t size = commsched_world_size(world);
  commsched_context_t* context;
  check(commsched_context_create(world, rank, &context), "context");
  int32_t* members = malloc((size_t)size * sizeof(int32_t));
  float* gradient = malloc((size_t)count * sizeof(float));
  if (members == NULL || gradient == NULL) return 1;
  for (int32_t i = 0; i < size; ++i) members[i] = i;
  commsched_group_t* group;
  check(commsched_group_create(context, "dp", members, (uint32_t)size, &group),
        "group");

  struct step step = {0};
  step.count = (uint64_t)count;
  commsched_plan_t* plan = plan_step((uint32_t)size, &step);
  commsched_session_t* session =
      create_session(context, plan, group, &step, gradient);
  float sums[SHOWN] = {0};
  for (long i = 0; i < steps; ++i) {
    run_step(session, &step, gradient, (float)((rank + 1) * (i % 100 + 1)));
    if (i < SHOWN) sums[i] = gradient[count - 1];
    if (i % 64 == 63) { /* Of a long run, how far it is. */
      printf("rank %d: step %ld\n", rank, i + 1);
      fflush(stdout);
    }
  }
  printf("rank %d of %d:", rank, size);
  for (long i = 0; i < SHOWN && i < steps; ++i) printf(" %g", sums[i]);
  printf("\n");

  commsched_session_destroy(session);
  commsched_plan_destroy(plan);
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
  free(gradient);
  free(members);
  return fflush(stdout) != 0 || ferror(stdout) ? 1 : 0;
}
