/* Channels and completions from C. */
#define _POSIX_C_SOURCE 200809L /* barriers */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "c_check.h"

static commsched_channel_op_t all_reduce(float* data, uint64_t user) {
  commsched_channel_op_t op = commsched_channel_op_init();
  op.kind = COMMSCHED_ALL_REDUCE;
  op.input = data;
  op.output = data;
  op.count = C_COUNT;
  op.user = user;
  return op;
}

static commsched_group_t* group_of_all(commsched_context_t* context) {
  const int32_t ranks[] = {0, 1};
  commsched_group_t* group = NULL;
  EXPECT_OK(commsched_group_create(context, "dp", ranks, 2, &group));
  return group;
}

static void test_completions(void) {
  commsched_completions_t* completions = NULL;
  commsched_completion_t completion;
  uint64_t count = 77;
  EXPECT_NULL("out_completions", commsched_completions_create(1, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "capacity is 0, outside 1..",
               commsched_completions_create(0, &completions));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "capacity is",
               commsched_completions_create(
                   (uint64_t)COMMSCHED_MAX_COMPLETIONS + 1, &completions));
  EXPECT_OK(commsched_completions_create(4, &completions));
  EXPECT_NULL("completions",
              commsched_completions_next(NULL, &completion, 1, 0, &count));
  EXPECT_NULL("out",
              commsched_completions_next(completions, NULL, 1, 0, &count));
  EXPECT_NULL("out_count",
              commsched_completions_next(completions, &completion, 1, 0, NULL));
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "num_out is 0",
      commsched_completions_next(completions, &completion, 0, 0, &count));
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "timeout_ns is -1, below 0",
      commsched_completions_next(completions, &completion, 1, -1, &count));
  EXPECT(count == 77);
  EXPECT_OK(commsched_completions_next(completions, &completion, 1, 0, &count));
  EXPECT(count == 0);
  EXPECT_NULL("completions", commsched_completions_wake(NULL));
  EXPECT_OK(commsched_completions_wake(completions));
  EXPECT_OK(commsched_completions_next(completions, &completion, 1, INT64_MAX,
                                       &count));
  EXPECT(count == 0);
  commsched_completions_destroy(completions);
  commsched_completions_destroy(NULL);
}

/* What the channel of both ranks refuses, on rank 0. */
static void test_refusals(commsched_channel_t* channel) {
  const commsched_stream_t caller = commsched_stream_caller();
  commsched_stream_t nowhere = caller;
  float data[C_COUNT] = {0};
  const uint64_t counts[] = {4, 4};
  commsched_channel_op_t op = all_reduce(data, 0);
  const commsched_channel_op_t* const none[] = {NULL};
  uint64_t request = 77;
  uint32_t done = 77;
  nowhere.kind = 99;
  EXPECT_NULL("channel", commsched_channel_submit(NULL, &op, caller, &request));
  EXPECT_NULL("op", commsched_channel_submit(channel, NULL, caller, &request));
  EXPECT_NULL("out_request",
              commsched_channel_submit(channel, &op, caller, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "99",
               commsched_channel_submit(channel, &op, nowhere, &request));
  op.counts = counts;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "op.num_counts",
               commsched_channel_submit(channel, &op, caller, &request));
  op.num_counts = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "num_counts is 2",
               commsched_channel_submit(channel, &op, caller, &request));
  op = all_reduce(data, 0);
  op.deterministic = 2;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "op.deterministic is 2",
               commsched_channel_submit(channel, &op, caller, &request));
  op.struct_size = 0;
  EXPECT_UNSIZED(commsched_channel_submit(channel, &op, caller, &request));
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "ops[0] is NULL",
      commsched_channel_submit_batch(channel, none, 1, caller, &request));
  EXPECT_FAILS(
      COMMSCHED_INVALID_ARGUMENT, "no sends and receives",
      commsched_channel_submit_batch(channel, none, 0, caller, &request));
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "request 1: nothing has been submitted",
               commsched_channel_test(channel, 1, &done));
  EXPECT_NULL("out_done", commsched_channel_test(channel, 1, NULL));
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "request 0",
               commsched_channel_wait(channel, 0, 0));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "timeout_ns is -1, below 0",
               commsched_channel_wait(channel, 1, -1));
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "request 5",
               commsched_channel_before(channel, 5, caller));
  EXPECT_NULL("channel", commsched_channel_before(NULL, 1, caller));
  EXPECT_NULL("channel", commsched_channel_wait(NULL, 1, 0));
  EXPECT_NULL("channel", commsched_channel_test(NULL, 1, &done));
  EXPECT_NULL("channel", commsched_channel_status(NULL));
  EXPECT(request == 77 && done == 77);
}

struct rank {
  commsched_context_t* context;
  pthread_barrier_t* ended; /* all requests of both ranks */
};

/* One rank, from create to destroy. */
static void* run_rank(void* user) {
  const struct rank* self = (const struct rank*)user;
  commsched_context_t* context = self->context;
  const int32_t rank = commsched_context_rank(context);
  const commsched_stream_t caller = commsched_stream_caller();
  commsched_group_t* group = group_of_all(context);
  commsched_completions_t* completions = NULL;
  commsched_completion_t completion;
  commsched_channel_desc_t desc = commsched_channel_desc_init();
  commsched_channel_t* channel = NULL;
  float data[C_COUNT];
  commsched_channel_op_t op = all_reduce(data, 5);
  commsched_channel_op_t send = commsched_channel_op_init();
  commsched_channel_op_t recv = commsched_channel_op_init();
  const commsched_channel_op_t* batch[] = {&send, &recv};
  float got = -1;
  uint64_t request = 0, count = 0;
  uint32_t done = 0;
  int i;
  EXPECT_OK(commsched_completions_create(16, &completions));
  desc.completions = completions;
  desc.key = 9;
  EXPECT_OK(commsched_channel_create(context, group, &desc, &channel));
  commsched_group_destroy(group);
  if (rank == 0) test_refusals(channel);

  for (i = 0; i < C_COUNT; ++i) data[i] = (float)(rank + 1);
  EXPECT_OK(commsched_channel_submit(channel, &op, caller, &request));
  EXPECT(request == 1);
  EXPECT_OK(commsched_channel_wait(channel, request, INT64_MAX));
  EXPECT_OK(commsched_channel_test(channel, request, &done));
  EXPECT(done == 1 && data[0] == 3 && data[C_COUNT - 1] == 3);
  EXPECT_OK(commsched_completions_next(completions, &completion, 1, INT64_MAX,
                                       &count));
  EXPECT(count == 1 && completion.key == 9 && completion.request == 1 &&
         completion.user == 5 && completion.status == COMMSCHED_OK);

  send.kind = COMMSCHED_SEND;
  send.peer = recv.peer = 1 - rank;
  send.tag = recv.tag = 3;
  send.input = data;
  send.count = recv.count = 1;
  recv.kind = COMMSCHED_RECV;
  recv.output = &got;
  EXPECT_OK(
      commsched_channel_submit_batch(channel, batch, 2, caller, &request));
  EXPECT_OK(commsched_channel_before(channel, request, caller));
  EXPECT(got == 3);

  EXPECT_OK(commsched_channel_status(channel));
  op.kind = COMMSCHED_BARRIER;
  EXPECT_OK(commsched_channel_submit(channel, &op, caller, &request));
  EXPECT_OK(commsched_channel_wait(channel, request, INT64_MAX));
  pthread_barrier_wait(self->ended);
  if (rank == 0) {
    commsched_channel_abort(channel, "enough");
    EXPECT_FAILS(COMMSCHED_ABORTED, "enough",
                 commsched_channel_status(channel));
    EXPECT_FAILS(COMMSCHED_ABORTED, "enough",
                 commsched_channel_submit(channel, &op, caller, &request));
  }
  commsched_channel_destroy(channel);
  commsched_completions_destroy(completions);
  return NULL;
}

static void test_creation(commsched_context_t* first,
                          commsched_context_t* other) {
  commsched_group_t* group = group_of_all(first);
  commsched_channel_desc_t desc = commsched_channel_desc_init();
  commsched_channel_t* channel = NULL;
  EXPECT_NULL("context",
              commsched_channel_create(NULL, group, &desc, &channel));
  EXPECT_NULL("group", commsched_channel_create(first, NULL, &desc, &channel));
  EXPECT_NULL("out_channel",
              commsched_channel_create(first, group, &desc, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "belongs to another context",
               commsched_channel_create(other, group, &desc, &channel));
  desc.launch_timeout_ns = -1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "launch_timeout_ns is -1",
               commsched_channel_create(first, group, &desc, &channel));
  commsched_group_destroy(group);
  /* The other member learns that it was refused. */
  group = group_of_all(other);
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "launch_timeout_ns is -1",
               commsched_channel_create(other, group, NULL, &channel));
  EXPECT(channel == NULL);
  commsched_group_destroy(group);
  commsched_channel_destroy(NULL);
  commsched_channel_abort(NULL, "nobody");
}

void test_channel(void) {
  commsched_world_t* world = c_new_world(2, "inproc");
  commsched_context_t* contexts[2];
  pthread_barrier_t ended;
  struct rank ranks[2];
  pthread_t other;
  contexts[0] = c_new_context(world, 0);
  contexts[1] = c_new_context(world, 1);
  test_completions();
  test_creation(contexts[0], contexts[1]);
  pthread_barrier_init(&ended, NULL, 2);
  ranks[0].context = contexts[0];
  ranks[1].context = contexts[1];
  ranks[0].ended = ranks[1].ended = &ended;
  EXPECT(pthread_create(&other, NULL, run_rank, &ranks[1]) == 0);
  run_rank(&ranks[0]);
  pthread_join(other, NULL);
  pthread_barrier_destroy(&ended);
  commsched_context_destroy(contexts[1]);
  commsched_context_destroy(contexts[0]);
  commsched_world_destroy(world);
}
