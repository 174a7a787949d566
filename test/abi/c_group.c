/* Groups and meshes. */
#include <stdint.h>

#include "c_check.h"

static void test_create(commsched_context_t* context) {
  const int32_t ranks[] = {3, 1};
  const int32_t twice[] = {1, 1};
  const int32_t outside[] = {1, 4};
  const int32_t others[] = {0, 2};
  commsched_group_t* group = NULL;
  EXPECT_NULL("context", commsched_group_create(NULL, "dp", ranks, 2, &group));
  EXPECT_NULL("axis", commsched_group_create(context, NULL, ranks, 2, &group));
  EXPECT_NULL("ranks", commsched_group_create(context, "dp", NULL, 2, &group));
  EXPECT_NULL("out_group",
              commsched_group_create(context, "dp", ranks, 2, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "no name",
               commsched_group_create(context, "", ranks, 2, &group));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "no ranks",
               commsched_group_create(context, "dp", ranks, 0, &group));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "rank 1",
               commsched_group_create(context, "dp", twice, 2, &group));
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "rank 4",
               commsched_group_create(context, "dp", outside, 2, &group));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "rank 1",
               commsched_group_create(context, "dp", others, 2, &group));
  EXPECT(group == NULL);
  EXPECT_OK(commsched_group_create(context, "dp", ranks, 2, &group));
  EXPECT(commsched_group_size(group) == 2);
  EXPECT(commsched_group_rank(group) == 1);
  EXPECT(commsched_group_world_rank(group, 0) == ranks[0]);
  EXPECT(commsched_group_world_rank(group, 1) == ranks[1]);
  EXPECT(commsched_group_world_rank(group, 2) == -1);
  EXPECT(commsched_group_world_rank(group, -1) == -1);
  EXPECT(strcmp(commsched_group_axis(group), "dp") == 0);
  commsched_group_destroy(group);
}

static void test_mesh(commsched_context_t* context) {
  const commsched_axis_t axes[] = {{"dp_shard", 2}, {"tp", 2}};
  const commsched_axis_t small[] = {{"dp_shard", 2}, {"tp", 1}};
  const commsched_axis_t twice[] = {{"tp", 2}, {"tp", 2}};
  const commsched_axis_t empty[] = {{"dp_shard", 4}, {"tp", 0}};
  const commsched_axis_t unnamed[] = {{NULL, 4}};
  commsched_mesh_t* mesh = NULL;
  commsched_group_t* group = NULL;
  EXPECT_NULL("context", commsched_mesh_create(NULL, axes, 2, &mesh));
  EXPECT_NULL("axes", commsched_mesh_create(context, NULL, 2, &mesh));
  EXPECT_NULL("out_mesh", commsched_mesh_create(context, axes, 2, NULL));
  EXPECT_NULL("axes[].name", commsched_mesh_create(context, unnamed, 1, &mesh));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "no axes",
               commsched_mesh_create(context, axes, 0, &mesh));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "the 4 ranks",
               commsched_mesh_create(context, small, 2, &mesh));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'tp' twice",
               commsched_mesh_create(context, twice, 2, &mesh));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'tp' has size 0",
               commsched_mesh_create(context, empty, 2, &mesh));
  EXPECT(mesh == NULL);
  EXPECT_OK(commsched_mesh_create(context, axes, 2, &mesh));
  EXPECT_NULL("mesh", commsched_mesh_group(NULL, "tp", &group));
  EXPECT_NULL("axis", commsched_mesh_group(mesh, NULL, &group));
  EXPECT_NULL("out_group", commsched_mesh_group(mesh, "tp", NULL));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "'pp'",
               commsched_mesh_group(mesh, "pp", &group));
  EXPECT(group == NULL);
  /* Rank 1 of 2 x 2 is at (0, 1). */
  EXPECT_OK(commsched_mesh_group(mesh, "tp", &group));
  EXPECT(commsched_group_rank(group) == 1);
  commsched_group_destroy(group);
  EXPECT_OK(commsched_mesh_group(mesh, "dp_shard", &group));
  commsched_mesh_destroy(mesh); /* Groups do not need it. */
  EXPECT(commsched_group_size(group) == 2);
  EXPECT(commsched_group_rank(group) == 0);
  commsched_group_destroy(group);
}

/* A group keeps its context, and with it the rank. */
static void test_lifetime(commsched_world_t* world) {
  const int32_t ranks[] = {0};
  commsched_context_t* context = c_new_context(world, 0);
  commsched_context_t* second = NULL;
  commsched_group_t* group = NULL;
  EXPECT_OK(commsched_group_create(context, "dp", ranks, 1, &group));
  commsched_context_destroy(context);
  EXPECT_FAILS(COMMSCHED_ALREADY_EXISTS, "0",
               commsched_context_create(world, 0, &second));
  commsched_group_destroy(group);
  EXPECT_OK(commsched_context_create(world, 0, &second));
  commsched_context_destroy(second);
}

void test_group(void) {
  commsched_world_t* world = c_new_world(4, NULL);
  commsched_context_t* context = c_new_context(world, 1);
  test_create(context);
  test_mesh(context);
  test_lifetime(world);
  commsched_group_destroy(NULL);
  commsched_mesh_destroy(NULL);
  EXPECT(commsched_group_size(NULL) == 0);
  EXPECT(commsched_group_rank(NULL) == -1);
  EXPECT(commsched_group_world_rank(NULL, 0) == -1);
  EXPECT(commsched_group_axis(NULL) == NULL);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}
