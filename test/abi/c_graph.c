/* Graphs. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "c_check.h"

/* A graph with the group "dp" of 2 and the bound buffer "grad" of 8 f32. */
static commsched_graph_t* new_graph(void) {
  commsched_graph_t* graph = NULL;
  commsched_group_id_t group = 9;
  commsched_buffer_id_t id = 9;
  commsched_buffer_desc_t buffer = commsched_buffer_desc_init();
  EXPECT_OK(commsched_graph_create(&graph));
  EXPECT_OK(commsched_graph_add_group(graph, "dp", 2, &group));
  EXPECT(group == 0);
  buffer.name = "grad";
  buffer.count = 8;
  buffer.ownership = COMMSCHED_BOUND;
  EXPECT_OK(commsched_graph_add_buffer(graph, &buffer, &id));
  EXPECT(id == 0);
  return graph;
}

static void test_groups(commsched_graph_t* graph) {
  commsched_group_id_t id = 99;
  EXPECT_NULL("graph", commsched_graph_add_group(NULL, "tp", 2, &id));
  EXPECT_NULL("name", commsched_graph_add_group(graph, NULL, 2, &id));
  EXPECT_NULL("out_group", commsched_graph_add_group(graph, "tp", 2, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "0",
               commsched_graph_add_group(graph, "tp", 0, &id));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "4097",
               commsched_graph_add_group(graph, "tp", 4097, &id));
  EXPECT_FAILS(COMMSCHED_ALREADY_EXISTS, "dp",
               commsched_graph_add_group(graph, "dp", 2, &id));
  EXPECT(id == 99);
}

static commsched_status_t add_buffer(commsched_graph_t* graph, const char* name,
                                     commsched_dtype_t dtype,
                                     commsched_ownership_t ownership,
                                     uint64_t count) {
  commsched_buffer_id_t id = 99;
  commsched_buffer_desc_t desc = commsched_buffer_desc_init();
  commsched_status_t status;
  desc.name = name;
  desc.dtype = dtype;
  desc.ownership = ownership;
  desc.count = count;
  status = commsched_graph_add_buffer(graph, &desc, &id);
  EXPECT((status == COMMSCHED_OK) == (id != 99));
  return status;
}

static void test_buffers(commsched_graph_t* graph) {
  commsched_buffer_id_t id = 99;
  commsched_buffer_desc_t desc = commsched_buffer_desc_init();
  desc.name = "b";
  desc.count = 1;
  EXPECT_NULL("graph", commsched_graph_add_buffer(NULL, &desc, &id));
  EXPECT_NULL("desc", commsched_graph_add_buffer(graph, NULL, &id));
  EXPECT_NULL("out_buffer", commsched_graph_add_buffer(graph, &desc, NULL));
  desc.struct_size = 0;
  EXPECT_UNSIZED(commsched_graph_add_buffer(graph, &desc, &id));
  EXPECT_NULL("buffer.name", add_buffer(graph, NULL, COMMSCHED_F32, 0, 1));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "dtype is 99",
               add_buffer(graph, "b", 99, COMMSCHED_OWNED, 1));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "ownership is 3",
               add_buffer(graph, "b", COMMSCHED_F32, 3, 1));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'b'",
               add_buffer(graph, "b", COMMSCHED_F32, COMMSCHED_OWNED, 0));
  EXPECT_FAILS(
      COMMSCHED_OUT_OF_RANGE, "'b'",
      add_buffer(graph, "b", COMMSCHED_F32, COMMSCHED_OWNED, UINT64_MAX / 2));
  desc.struct_size = sizeof(desc);
  desc.ownership = COMMSCHED_BOUND;
  desc.place_group = 5;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "place group 5",
               commsched_graph_add_buffer(graph, &desc, &id));
  EXPECT_FAILS(COMMSCHED_ALREADY_EXISTS, "'grad'",
               add_buffer(graph, "grad", COMMSCHED_F32, COMMSCHED_OWNED, 1));
  EXPECT_OK(add_buffer(graph, "fresh", COMMSCHED_F32, COMMSCHED_LATE_BOUND, 8));
}

static commsched_status_t add_compute(commsched_graph_t* graph,
                                      const commsched_compute_desc_t* desc) {
  const uint64_t before = commsched_graph_num_ops(graph);
  commsched_op_id_t id = 99;
  const commsched_status_t status =
      commsched_graph_add_compute(graph, desc, &id);
  const uint64_t added = commsched_graph_num_ops(graph) - before;
  EXPECT(added == (status == COMMSCHED_OK ? 1u : 0u));
  EXPECT(id == (status == COMMSCHED_OK ? before : 99u));
  return status;
}

static void test_compute_access_errors(commsched_graph_t* graph) {
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  commsched_access_t accesses[2];
  memset(accesses, 0, sizeof(accesses));
  desc.name = "op";
  desc.accesses = accesses;
  desc.num_accesses = 1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "mode is 0",
               add_compute(graph, &desc));
  accesses[0].mode = COMMSCHED_WRITE;
  accesses[0].region = 4;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "region is 4",
               add_compute(graph, &desc));
  accesses[0].region = COMMSCHED_TILE;
  accesses[0].count = 4;
  accesses[0].rows = 2;
  accesses[0].stride = 3;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "stride of 3",
               add_compute(graph, &desc));
  accesses[0].stride = 5;
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "grad", add_compute(graph, &desc));
  accesses[0].region = COMMSCHED_RANGE;
  accesses[0].offset = 4;
  accesses[0].count = 5;
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "grad", add_compute(graph, &desc));
  accesses[0].region = COMMSCHED_SHARD;
  accesses[0].group = 3;
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "3", add_compute(graph, &desc));
  accesses[0].region = COMMSCHED_WHOLE;
  accesses[0].buffer = 5;
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "5", add_compute(graph, &desc));
  accesses[0].buffer = 0;
  accesses[1] = accesses[0];
  desc.num_accesses = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "grad", add_compute(graph, &desc));
}

static void test_compute_errors(commsched_graph_t* graph) {
  const commsched_op_id_t unknown = 42;
  commsched_op_id_t id = 99;
  commsched_compute_desc_t desc = commsched_compute_desc_init();
  desc.name = "op";
  EXPECT_NULL("graph", commsched_graph_add_compute(NULL, &desc, &id));
  EXPECT_NULL("desc", commsched_graph_add_compute(graph, NULL, &id));
  EXPECT_NULL("out_op", commsched_graph_add_compute(graph, &desc, NULL));
  desc.struct_size = 4097;
  EXPECT_UNSIZED(add_compute(graph, &desc));
  desc = commsched_compute_desc_init();
  EXPECT_NULL("compute.name", add_compute(graph, &desc));
  desc.name = "op";
  desc.num_accesses = 1;
  EXPECT_NULL("compute.accesses", add_compute(graph, &desc));
  desc.num_accesses = 0;
  desc.num_after = 1;
  EXPECT_NULL("compute.after", add_compute(graph, &desc));
  desc.after = &unknown;
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "42", add_compute(graph, &desc));
  desc.num_after = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'compute.num_after' is 0",
               add_compute(graph, &desc));
  desc.after = NULL;
  desc.lane = 16;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "16", add_compute(graph, &desc));
  desc.lane = 0;
  desc.cost_ns = -1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "-1", add_compute(graph, &desc));
  desc.cost_ns = 0;
  desc.flops = NAN;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "op", add_compute(graph, &desc));
}

static commsched_status_t add_collective(
    commsched_graph_t* graph, const commsched_collective_desc_t* desc) {
  const uint64_t before = commsched_graph_num_ops(graph);
  commsched_op_id_t id = 99;
  const commsched_status_t status =
      commsched_graph_add_collective(graph, desc, &id);
  EXPECT(commsched_graph_num_ops(graph) - before ==
         (status == COMMSCHED_OK ? 1u : 0u));
  return status;
}

static void test_collective_errors(commsched_graph_t* graph) {
  const uint64_t counts[2] = {3, 5};
  commsched_op_id_t id = 99;
  commsched_collective_desc_t desc = commsched_collective_desc_init();
  desc.name = "c";
  EXPECT_NULL("graph", commsched_graph_add_collective(NULL, &desc, &id));
  EXPECT_NULL("desc", commsched_graph_add_collective(graph, NULL, &id));
  EXPECT_NULL("out_op", commsched_graph_add_collective(graph, &desc, NULL));
  desc.struct_size = 0;
  EXPECT_UNSIZED(add_collective(graph, &desc));
  desc = commsched_collective_desc_init();
  EXPECT_NULL("collective.name", add_collective(graph, &desc));
  desc.name = "c";
  desc.num_counts = 2;
  EXPECT_NULL("collective.counts", add_collective(graph, &desc));
  desc.counts = counts; /* ALL_REDUCE has no uneven form. */
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "c", add_collective(graph, &desc));
  desc.num_counts = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'collective.num_counts' is 0",
               add_collective(graph, &desc));
  desc.counts = NULL;
  desc.num_after = 1;
  EXPECT_NULL("collective.after", add_collective(graph, &desc));
  desc.num_after = 0;
  desc.after = &id;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'collective.num_after' is 0",
               add_collective(graph, &desc));
  desc.after = NULL;
  desc.kind = 9;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "kind is 9",
               add_collective(graph, &desc));
  desc.kind = COMMSCHED_SEND;
  desc.peer_offset = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "peer_offset 2",
               add_collective(graph, &desc));
  desc.peer_offset = 1;
  desc.lossy = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "lossy is 2",
               add_collective(graph, &desc));
  desc.lossy = 1;
  desc.kind = COMMSCHED_ALL_REDUCE;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "lossy",
               add_collective(graph, &desc));
  desc.lossy = 0;
  desc.input.buffer = 1; /* LATE_BOUND, and no compute op writes it. */
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'fresh'",
               add_collective(graph, &desc));
  desc.input.buffer = 0;
  desc.reduce_op = 99;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "reduce_op is 99",
               add_collective(graph, &desc));
  desc.reduce_op = COMMSCHED_SUM;
  desc.group = 4;
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "4", add_collective(graph, &desc));
  desc.group = 0;
  desc.kind = COMMSCHED_BROADCAST;
  desc.root = 2;
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "2", add_collective(graph, &desc));
}

/* What the rest of the graph is made of. */
static void test_ops(commsched_graph_t* graph) {
  commsched_compute_desc_t compute = commsched_compute_desc_init();
  commsched_collective_desc_t reduce = commsched_collective_desc_init();
  commsched_access_t write;
  commsched_op_id_t first = 0;
  memset(&write, 0, sizeof(write));
  write.mode = COMMSCHED_WRITE;
  compute.name = "backward";
  compute.accesses = &write;
  compute.num_accesses = 1;
  EXPECT_OK(add_compute(graph, &compute));
  EXPECT_FAILS(COMMSCHED_ALREADY_EXISTS, "'backward'",
               add_compute(graph, &compute));
  reduce.name = "reduce";
  EXPECT_OK(add_collective(graph, &reduce));
  reduce.name = "barrier";
  reduce.kind = COMMSCHED_BARRIER;
  reduce.after = &first; /* It touches nothing. */
  reduce.num_after = 1;
  EXPECT_OK(add_collective(graph, &reduce));
  EXPECT_NULL("graph", commsched_graph_add_edge(NULL, 0, 2, 1));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "77",
               commsched_graph_add_edge(graph, 0, 77, 1));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "distance is 2",
               commsched_graph_add_edge(graph, 0, 2, 2));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "backward",
               commsched_graph_add_edge(graph, 2, 0, 0));
  EXPECT_OK(commsched_graph_add_edge(graph, 2, 0, 1));
  EXPECT(commsched_graph_num_ops(graph) == 3);
}

static void test_find(const commsched_graph_t* graph) {
  commsched_op_id_t op = 99;
  EXPECT_NULL("graph", commsched_graph_find_op(NULL, "reduce", &op));
  EXPECT_NULL("name", commsched_graph_find_op(graph, NULL, &op));
  EXPECT_NULL("out_op", commsched_graph_find_op(graph, "reduce", NULL));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "'nothing'",
               commsched_graph_find_op(graph, "nothing", &op));
  EXPECT(op == 99);
  EXPECT_OK(commsched_graph_find_op(graph, "reduce", &op));
  EXPECT(op == 1);
}

static void test_json(const commsched_graph_t* graph) {
  char* json = NULL;
  char* again = NULL;
  commsched_graph_t* copy = NULL;
  EXPECT_NULL("graph", commsched_graph_to_json(NULL, &json));
  EXPECT_NULL("out_json", commsched_graph_to_json(graph, NULL));
  EXPECT_OK(commsched_graph_to_json(graph, &json));
  if (json == NULL) return;
  EXPECT_NULL("json", commsched_graph_from_json(NULL, 1, &copy));
  EXPECT_NULL("out_graph", commsched_graph_from_json(json, 1, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "",
               commsched_graph_from_json("{", 1, &copy));
  EXPECT(copy == NULL);
  EXPECT_OK(commsched_graph_from_json(json, strlen(json), &copy));
  EXPECT_OK(commsched_graph_to_json(copy, &again));
  EXPECT(again != NULL && strcmp(json, again) == 0);
  commsched_graph_destroy(copy);
  commsched_string_free(json);
  commsched_string_free(again);
}

void test_graph(void) {
  commsched_graph_t* graph = new_graph();
  EXPECT_NULL("graph", commsched_graph_reserve(NULL, 1));
  EXPECT_FAILS(COMMSCHED_RESOURCE_EXHAUSTED, "16777216",
               commsched_graph_reserve(graph, (1u << 24) + 1));
  EXPECT_OK(commsched_graph_reserve(graph, 16));
  test_groups(graph);
  test_buffers(graph);
  test_compute_access_errors(graph);
  test_compute_errors(graph);
  test_collective_errors(graph);
  test_ops(graph);
  test_find(graph);
  test_json(graph);
  commsched_graph_destroy(graph);
  commsched_graph_destroy(NULL);
  commsched_string_free(NULL);
  EXPECT(commsched_graph_num_ops(NULL) == 0);
}
