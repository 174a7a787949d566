/* Ranks compare what they have in common. */
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "c_check.h"

static commsched_agree_desc_t desc_of(const commsched_fact_t* fact) {
  commsched_agree_desc_t desc = commsched_agree_desc_init();
  desc.name = "options";
  desc.facts = fact;
  desc.num_facts = 1;
  return desc;
}

static void test_refusals(commsched_world_t* world) {
  const commsched_fact_t fact = {"lr", "0.1"};
  const commsched_fact_t hollow = {"lr", NULL};
  const int32_t zero = 0;
  commsched_context_t* context = c_new_context(world, 0);
  commsched_context_t* other = c_new_context(world, 1);
  commsched_group_t* alone = NULL;
  commsched_agree_desc_t desc = desc_of(&fact);
  uint64_t number = 77;
  EXPECT_OK(commsched_group_create(context, "alone", &zero, 1, &alone));
  EXPECT_NULL("context", commsched_context_agree(NULL, &desc, NULL));
  EXPECT_NULL("desc", commsched_context_agree(context, NULL, NULL));
  desc.struct_size = 0;
  EXPECT_UNSIZED(commsched_context_agree(context, &desc, NULL));
  desc = desc_of(NULL);
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "desc.facts",
               commsched_context_agree(context, &desc, NULL));
  desc = desc_of(&hollow);
  EXPECT_NULL("facts[].value", commsched_context_agree(context, &desc, NULL));
  desc = desc_of(&fact);
  desc.name = "";
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "desc.name",
               commsched_context_agree(context, &desc, NULL));
  desc = desc_of(&fact);
  desc.timeout_ns = -1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "timeout_ns is -1",
               commsched_context_agree(context, &desc, NULL));
  desc = desc_of(&fact);
  desc.meet = alone;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "axis 'alone'",
               commsched_context_agree(other, &desc, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "code is 0",
               commsched_context_decline(context, &desc, COMMSCHED_OK, "no"));
  EXPECT_NULL("reason", commsched_context_decline(context, &desc,
                                                  COMMSCHED_INTERNAL, NULL));
  EXPECT(number == 77);
  EXPECT_OK(commsched_context_agree(context, &desc, &number));
  EXPECT(number == 0);
  EXPECT_OK(commsched_context_agree(context, &desc, &number));
  EXPECT(number == 1);
  /* Rank 1 does not come to what all were to come to. */
  desc.meet = NULL;
  desc.timeout_ns = 1;
  EXPECT_FAILS(COMMSCHED_DEADLINE_EXCEEDED, "missing of 2 ranks: 1",
               commsched_context_agree(context, &desc, NULL));
  EXPECT_FAILS(COMMSCHED_DEADLINE_EXCEEDED, "missing of 2 ranks: 1",
               commsched_context_agree(other, &desc, NULL));
  EXPECT_OK(
      commsched_context_decline(other, &desc, COMMSCHED_INTERNAL, "no time"));
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "rank 1 will not come: no time",
               commsched_context_agree(context, &desc, NULL));
  commsched_group_destroy(alone);
  commsched_context_destroy(other);
  commsched_context_destroy(context);
}

static void* differ(void* world) {
  const commsched_fact_t fact = {"lr", "0.2"};
  commsched_context_t* context = c_new_context((commsched_world_t*)world, 1);
  const commsched_agree_desc_t desc = desc_of(&fact);
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION,
               "options: lr is 0.1 on rank 0 and 0.2 on rank 1",
               commsched_context_agree(context, &desc, NULL));
  commsched_context_destroy(context);
  return NULL;
}

static void test_difference(void) {
  const commsched_fact_t fact = {"lr", "0.1"};
  const commsched_agree_desc_t desc = desc_of(&fact);
  commsched_world_t* world = c_new_world(2, NULL);
  commsched_context_t* context = c_new_context(world, 0);
  pthread_t other;
  EXPECT(pthread_create(&other, NULL, differ, world) == 0);
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION,
               "options: lr is 0.1 on rank 0 and 0.2 on rank 1",
               commsched_context_agree(context, &desc, NULL));
  pthread_join(other, NULL);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}

/* A second handle does what the first did, once that is gone. */
static void test_duplicates(commsched_world_t* world) {
  const int32_t ranks[] = {1, 0};
  commsched_context_t* context = c_new_context(world, 0);
  commsched_context_t* second = NULL;
  commsched_group_t* group = NULL;
  commsched_group_t* copy = NULL;
  EXPECT_OK(commsched_group_create(context, "dp", ranks, 2, &group));
  EXPECT_NULL("context", commsched_context_duplicate(NULL, &second));
  EXPECT_NULL("out_context", commsched_context_duplicate(context, NULL));
  EXPECT_NULL("group", commsched_group_duplicate(NULL, &copy));
  EXPECT_NULL("out_group", commsched_group_duplicate(group, NULL));
  EXPECT_OK(commsched_context_duplicate(context, &second));
  EXPECT_OK(commsched_group_duplicate(group, &copy));
  commsched_group_destroy(group);
  commsched_context_destroy(context);
  EXPECT(commsched_context_rank(second) == 0);
  EXPECT(commsched_group_rank(copy) == 1);
  EXPECT_FAILS(COMMSCHED_ALREADY_EXISTS, "rank 0",
               commsched_context_create(world, 0, &context));
  commsched_group_destroy(copy);
  commsched_context_destroy(second);
}

void test_agree(void) {
  commsched_world_t* world = c_new_world(2, NULL);
  test_refusals(world);
  test_duplicates(world);
  test_difference();
  commsched_world_destroy(world);
}
