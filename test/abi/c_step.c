/* The step that plan, session and trace tests share. */
#include <string.h>

#include "c_check.h"

static commsched_buffer_id_t add_buffer(commsched_graph_t* graph,
                                        const char* name,
                                        commsched_ownership_t ownership) {
  commsched_buffer_desc_t desc = commsched_buffer_desc_init();
  commsched_buffer_id_t id = 0;
  desc.name = name;
  desc.count = C_COUNT;
  desc.ownership = ownership;
  EXPECT_OK(commsched_graph_add_buffer(graph, &desc, &id));
  return id;
}

static commsched_op_id_t add_compute(commsched_graph_t* graph, const char* name,
                                     const commsched_access_t* accesses,
                                     uint32_t num_accesses) {
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  commsched_op_id_t id = 0;
  desc.name = name;
  desc.accesses = accesses;
  desc.num_accesses = num_accesses;
  desc.cost_ns = 1000;
  EXPECT_OK(commsched_graph_add_compute(graph, &desc, &id));
  return id;
}

struct c_step c_new_step(int32_t group_size) {
  struct c_step step;
  commsched_collective_desc_t reduce = commsched_collective_desc_init();
  commsched_access_t accesses[3];
  memset(&step, 0, sizeof(step));
  memset(accesses, 0, sizeof(accesses));
  EXPECT_OK(commsched_graph_create(&step.graph));
  EXPECT_OK(
      commsched_graph_add_group(step.graph, "dp", group_size, &reduce.group));
  step.grad = add_buffer(step.graph, "grad", COMMSCHED_BOUND);
  step.scratch = add_buffer(step.graph, "scratch", COMMSCHED_OWNED);
  step.weights = add_buffer(step.graph, "weights", COMMSCHED_BOUND);
  accesses[0].buffer = step.grad;
  accesses[0].mode = COMMSCHED_WRITE;
  accesses[1].buffer = step.scratch;
  accesses[1].mode = COMMSCHED_WRITE;
  step.backward = add_compute(step.graph, "backward", accesses, 2);
  reduce.name = "reduce";
  reduce.input.buffer = step.grad;
  reduce.output.buffer = step.grad;
  EXPECT_OK(commsched_graph_add_collective(step.graph, &reduce, &step.reduce));
  accesses[0].mode = COMMSCHED_READ;
  accesses[1].mode = COMMSCHED_READ;
  accesses[2].buffer = step.weights;
  accesses[2].mode = COMMSCHED_READ_WRITE;
  step.update = add_compute(step.graph, "update", accesses, 3);
  EXPECT_OK(commsched_plan_build(step.graph, NULL, NULL, &step.plan));
  return step;
}

void c_destroy_step(struct c_step* step) {
  commsched_plan_destroy(step->plan);
  commsched_graph_destroy(step->graph);
}

void c_open_rank(struct c_rank* rank, commsched_world_t* world,
                 int32_t number) {
  const commsched_axis_t axis = {"dp", commsched_world_size(world)};
  commsched_mesh_t* mesh = NULL;
  memset(rank, 0, sizeof(*rank));
  rank->context = c_new_context(world, number);
  EXPECT_OK(commsched_mesh_create(rank->context, &axis, 1, &mesh));
  EXPECT_OK(commsched_mesh_group(mesh, "dp", &rank->group));
  commsched_mesh_destroy(mesh);
}

commsched_session_desc_t c_session_desc(const struct c_step* step,
                                        struct c_rank* rank,
                                        commsched_binding_t* bindings) {
  commsched_session_desc_t desc = commsched_session_desc_init();
  memset(bindings, 0, 2 * sizeof(*bindings));
  bindings[0].buffer = step->grad;
  bindings[0].address = rank->grad;
  bindings[0].bytes = sizeof(rank->grad);
  bindings[1].buffer = step->weights;
  bindings[1].address = rank->weights;
  bindings[1].bytes = sizeof(rank->weights);
  desc.context = rank->context;
  desc.plan = step->plan;
  desc.groups = &rank->group;
  desc.num_groups = 1;
  desc.bindings = bindings;
  desc.num_bindings = 2;
  return desc;
}

void c_close_rank(struct c_rank* rank) {
  commsched_session_destroy(rank->session);
  commsched_group_destroy(rank->group);
  commsched_context_destroy(rank->context);
}
