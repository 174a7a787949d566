/* Plans. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "c_check.h"

static void test_build(const struct c_step* step) {
  commsched_plan_options_t options = commsched_plan_options_init();
  commsched_plan_t* plan = NULL;
  const int32_t hosts[2] = {0, 1};
  EXPECT_NULL("graph", commsched_plan_build(NULL, &options, NULL, &plan));
  EXPECT_NULL("out_plan",
              commsched_plan_build(step->graph, &options, NULL, NULL));
  options.schedule = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "schedule is 2",
               commsched_plan_build(step->graph, &options, NULL, &plan));
  options.schedule = COMMSCHED_SERIAL;
  options.deterministic = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "deterministic is 2",
               commsched_plan_build(step->graph, &options, NULL, &plan));
  options.deterministic = 1;
  options.arena_bytes = 1;
  EXPECT_FAILS(COMMSCHED_RESOURCE_EXHAUSTED, "arena",
               commsched_plan_build(step->graph, &options, NULL, &plan));
  options.struct_size = 0;
  EXPECT_UNSIZED(commsched_plan_build(step->graph, &options, NULL, &plan));
  EXPECT(plan == NULL);
  options = commsched_plan_options_init();
  options.num_ranks = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "options.host_of_rank",
               commsched_plan_build(step->graph, &options, NULL, &plan));
  options.host_of_rank = hosts;
  options.num_ranks = 4097;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT,
               "options.num_ranks is 4097; at most 4096",
               commsched_plan_build(step->graph, &options, NULL, &plan));
  options.num_ranks = 2;
  options.max_launches_in_flight = 1;
  EXPECT_OK(commsched_plan_build(step->graph, &options, NULL, &plan));
  commsched_plan_destroy(plan);
}

static void test_build_roles(const struct c_step* step) {
  commsched_role_desc_t roles[2] = {commsched_role_desc_init(),
                                    commsched_role_desc_init()};
  commsched_plan_t* plans[2] = {NULL, NULL};
  const uint32_t outside[2] = {0, 7};
  const uint32_t* members[1] = {outside};
  roles[0].graph = step->graph;
  EXPECT_NULL("graph", commsched_plan_build_roles(roles, 2, NULL, plans));
  roles[1].graph = step->graph;
  EXPECT_NULL("roles", commsched_plan_build_roles(NULL, 2, NULL, plans));
  EXPECT_NULL("out_plans", commsched_plan_build_roles(roles, 2, NULL, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "num_roles is 0",
               commsched_plan_build_roles(roles, 0, NULL, plans));
  roles[1].num_groups = 9;
  roles[1].role_of_member = members;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "roles[1]: num_groups is 9",
               commsched_plan_build_roles(roles, 2, NULL, plans));
  roles[1].num_groups = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "roles[1]: 'role_of_member' is",
               commsched_plan_build_roles(roles, 2, NULL, plans));
  roles[1].role_of_member = NULL;
  roles[1].num_groups = 1;
  EXPECT_NULL("role_of_member",
              commsched_plan_build_roles(roles, 2, NULL, plans));
  roles[1].num_groups = 0;
  roles[1].struct_size = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "roles[1]: struct_size is 0",
               commsched_plan_build_roles(roles, 2, NULL, plans));
  EXPECT(plans[0] == NULL && plans[1] == NULL);
  roles[1].struct_size = roles[0].struct_size;
  EXPECT_OK(commsched_plan_build_roles(roles, 2, NULL, plans));
  EXPECT(plans[0] != NULL && plans[1] != NULL);
  commsched_plan_destroy(plans[0]);
  commsched_plan_destroy(plans[1]);
}

/* Plans share the graph until it changes. */
static void test_change_after_build(const struct c_step* step) {
  char* json = NULL;
  EXPECT_OK(commsched_graph_to_json(step->graph, &json));
  commsched_graph_t* graph = NULL;
  EXPECT_OK(commsched_graph_from_json(json, strlen(json), &graph));
  commsched_string_free(json);
  commsched_plan_t* plans[2] = {NULL, NULL};
  char* texts[2] = {NULL, NULL};
  EXPECT_OK(commsched_plan_build(graph, NULL, NULL, &plans[0]));
  EXPECT_OK(commsched_plan_explain(plans[0], COMMSCHED_JSON, &texts[0]));
  const uint64_t num_ops = commsched_graph_num_ops(graph);
  commsched_compute_desc_t more = commsched_compute_desc_init();
  more.name = "added after the plan";
  commsched_op_id_t op = 0;
  EXPECT_OK(commsched_graph_add_compute(graph, &more, &op));
  EXPECT(op == num_ops && commsched_graph_num_ops(graph) == num_ops + 1);
  EXPECT_OK(commsched_plan_explain(plans[0], COMMSCHED_JSON, &texts[1]));
  EXPECT(strcmp(texts[0], texts[1]) == 0);
  commsched_string_free(texts[1]);
  EXPECT_OK(commsched_plan_build(graph, NULL, NULL, &plans[1]));
  commsched_graph_destroy(graph);
  EXPECT_OK(commsched_plan_explain(plans[1], COMMSCHED_JSON, &texts[1]));
  EXPECT(strstr(texts[0], more.name) == NULL);
  EXPECT(strstr(texts[1], more.name) != NULL);
  for (int i = 0; i < 2; ++i) {
    commsched_string_free(texts[i]);
    commsched_plan_destroy(plans[i]);
  }
}

static commsched_status_t build(const struct c_step* step,
                                const commsched_cost_profile_t* profile) {
  commsched_plan_t* plan = NULL;
  const commsched_status_t status =
      commsched_plan_build(step->graph, NULL, profile, &plan);
  EXPECT((plan != NULL) == (status == COMMSCHED_OK));
  commsched_plan_destroy(plan);
  return status;
}

static void test_profile(const struct c_step* step) {
  int64_t costs[3] = {1000, 0, -7};
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  profile.struct_size = 0;
  EXPECT_UNSIZED(build(step, &profile));
  profile = commsched_cost_profile_init();
  profile.link_bytes_per_s = -1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "link_bytes_per_s is -1",
               build(step, &profile));
  profile.link_bytes_per_s = NAN;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "link_bytes_per_s",
               build(step, &profile));
  profile.link_bytes_per_s = 1e9;
  profile.link_latency_ns = -2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "link_latency_ns is -2",
               build(step, &profile));
  profile.link_latency_ns = 0;
  profile.num_ranks_sharing = 4;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "num_cores", build(step, &profile));
  profile.num_cores = 2;
  profile.num_ops = 3;
  EXPECT_NULL("profile.op_cost_ns", build(step, &profile));
  profile.op_cost_ns = costs;
  profile.num_ops = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'profile.num_ops' is 0",
               build(step, &profile));
  profile.num_ops = 3;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "op_cost_ns[2] is -7",
               build(step, &profile));
  profile.num_ops = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "2", build(step, &profile));
  costs[2] = 1000;
  profile.num_ops = 3;
  EXPECT_OK(build(step, &profile));
}

/* A collective that travels in three pieces is one. */
static void test_pieces(void) {
  commsched_graph_t* graph = NULL;
  commsched_plan_t* plan = NULL;
  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  commsched_collective_desc_t reduce = commsched_collective_desc_init();
  commsched_plan_options_t options = commsched_plan_options_init();
  commsched_plan_info_t info = commsched_plan_info_init();
  commsched_op_id_t op = 0;
  EXPECT_OK(commsched_graph_create(&graph));
  EXPECT_OK(commsched_graph_add_group(graph, "dp", 2, &reduce.group));
  buffer.name = "grad";
  buffer.count = 1000;
  buffer.ownership = COMMSCHED_BOUND;
  EXPECT_OK(commsched_graph_add_buffer(graph, &buffer, &reduce.input.buffer));
  reduce.name = "reduce";
  reduce.output.buffer = reduce.input.buffer;
  EXPECT_OK(commsched_graph_add_collective(graph, &reduce, &op));
  options.partition_bytes = 1600;
  EXPECT_OK(commsched_plan_build(graph, &options, NULL, &plan));
  EXPECT_OK(commsched_plan_get_info(plan, &info));
  EXPECT(info.num_launches == 3);
  EXPECT(info.num_collectives == 1);
  commsched_plan_destroy(plan);
  commsched_graph_destroy(graph);
}

static void test_info(const struct c_step* step) {
  const uint8_t zeros[16] = {0};
  commsched_plan_info_t info = commsched_plan_info_init();
  EXPECT_NULL("plan", commsched_plan_get_info(NULL, &info));
  EXPECT_NULL("out_info", commsched_plan_get_info(step->plan, NULL));
  EXPECT_OK(commsched_plan_get_info(step->plan, &info));
  EXPECT(info.num_ops == 3);
  EXPECT(info.num_launches == 1);
  EXPECT(info.num_collectives == 1);
  EXPECT(info.num_waits > 0);
  EXPECT(info.arena_bytes >= C_COUNT * sizeof(float));
  EXPECT(info.max_launch_bytes == C_COUNT * sizeof(float));
  EXPECT(memcmp(info.fingerprint, zeros, sizeof(zeros)) != 0);
  /* A caller of an earlier version gets the fields that it has. */
  info.num_launches = 77;
  info.struct_size = 2 * sizeof(uint64_t);
  info.num_ops = 0;
  EXPECT_OK(commsched_plan_get_info(step->plan, &info));
  EXPECT(info.num_ops == 3);
  EXPECT(info.num_launches == 77);
  EXPECT(info.struct_size == 2 * sizeof(uint64_t));
  info.struct_size = 0;
  EXPECT_UNSIZED(commsched_plan_get_info(step->plan, &info));
}

static void test_place(const struct c_step* step) {
  uint64_t offset = 1;
  uint64_t bytes = 0;
  EXPECT_NULL("plan",
              commsched_plan_place(NULL, step->scratch, &offset, &bytes));
  EXPECT_NULL("out_offset",
              commsched_plan_place(step->plan, step->scratch, NULL, &bytes));
  EXPECT_NULL("out_bytes",
              commsched_plan_place(step->plan, step->scratch, &offset, NULL));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "place: buffer 99 is not in the graph of 3",
               commsched_plan_place(step->plan, 99, &offset, &bytes));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "buffer 'grad' is not owned",
               commsched_plan_place(step->plan, step->grad, &offset, &bytes));
  EXPECT(offset == 1 && bytes == 0);
  EXPECT_OK(commsched_plan_place(step->plan, step->scratch, &offset, &bytes));
  EXPECT(offset == 0 && bytes == C_COUNT * sizeof(float));
}

static void test_predict(const struct c_step* step) {
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  commsched_prediction_t fast = commsched_prediction_init();
  commsched_prediction_t slow = commsched_prediction_init();
  EXPECT_NULL("plan", commsched_plan_predict(NULL, NULL, &fast));
  EXPECT_NULL("out_prediction", commsched_plan_predict(step->plan, NULL, NULL));
  EXPECT_OK(commsched_plan_predict(step->plan, NULL, &fast));
  EXPECT(fast.step_ns >= fast.lower_bound_ns && fast.lower_bound_ns > 0);
  EXPECT(fast.compute_ns == 2000); /* What the graph says. */
  profile.link_bytes_per_s = 1000;
  EXPECT_OK(commsched_plan_predict(step->plan, &profile, &slow));
  EXPECT(slow.step_ns > fast.step_ns);
  profile.flops_per_s = -1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "flops_per_s is -1",
               commsched_plan_predict(step->plan, &profile, &slow));
  slow.struct_size = 0;
  EXPECT_UNSIZED(commsched_plan_predict(step->plan, NULL, &slow));
}

static void test_explain(const struct c_step* step) {
  char* text = NULL;
  EXPECT_NULL("plan", commsched_plan_explain(NULL, COMMSCHED_TEXT, &text));
  EXPECT_NULL("out_text",
              commsched_plan_explain(step->plan, COMMSCHED_TEXT, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "format is 3, outside 0..2",
               commsched_plan_explain(step->plan, 3, &text));
  EXPECT(text == NULL);
  EXPECT_OK(commsched_plan_explain(step->plan, COMMSCHED_TEXT, &text));
  EXPECT(text != NULL && strstr(text, "reduce") != NULL);
  commsched_string_free(text);
  EXPECT_OK(commsched_plan_explain(step->plan, COMMSCHED_JSON, &text));
  EXPECT(text != NULL && text[0] == '{');
  commsched_string_free(text);
  EXPECT_OK(commsched_plan_explain(step->plan, COMMSCHED_DOT, &text));
  EXPECT(text != NULL && strncmp(text, "digraph", 7) == 0);
  commsched_string_free(text);
}

static void test_describe(const struct c_step* step) {
  const commsched_plan_t* plans[2] = {NULL, NULL};
  char* text = NULL;
  plans[0] = step->plan;
  EXPECT_NULL("out_text",
              commsched_plan_describe(plans, 1, COMMSCHED_TEXT, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "plans",
               commsched_plan_describe(NULL, 1, COMMSCHED_TEXT, &text));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "plans[1] is NULL",
               commsched_plan_describe(plans, 2, COMMSCHED_TEXT, &text));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "no plan",
               commsched_plan_describe(plans, 0, COMMSCHED_TEXT, &text));
  plans[1] = step->plan;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "all roles of one job",
               commsched_plan_describe(plans, 2, COMMSCHED_TEXT, &text));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "format is 2, outside 0..1",
               commsched_plan_describe(plans, 1, COMMSCHED_DOT, &text));
  EXPECT(text == NULL);
  EXPECT_OK(commsched_plan_describe(plans, 1, COMMSCHED_TEXT, &text));
  EXPECT(text != NULL && strstr(text, "axis '") != NULL);
  commsched_string_free(text);
  EXPECT_OK(commsched_plan_describe(plans, 1, COMMSCHED_JSON, &text));
  EXPECT(text != NULL && strstr(text, "commsched-map/1") != NULL);
  commsched_string_free(text);
}

void test_plan(void) {
  struct c_step step = c_new_step(2);
  test_build_roles(&step);
  test_build(&step);
  test_change_after_build(&step);
  test_profile(&step);
  commsched_graph_destroy(step.graph); /* Plans keep what they need. */
  step.graph = NULL;
  test_info(&step);
  test_pieces();
  test_place(&step);
  test_predict(&step);
  test_explain(&step);
  test_describe(&step);
  c_destroy_step(&step);
  commsched_plan_destroy(NULL);
}
