/* Host streams. */

#include "c_check.h"

static void increment(void* user) { ++*(int*)user; }

static commsched_stream_t new_stream(commsched_context_t* context) {
  commsched_stream_t stream = commsched_stream_caller();
  EXPECT_OK(commsched_host_stream_create(context, "test", 16, &stream));
  EXPECT(stream.kind == COMMSCHED_STREAM_HOST && stream.native != NULL);
  return stream;
}

static void test_host_stream(commsched_context_t* context) {
  commsched_stream_t stream = new_stream(context);
  int count = 0;
  for (int i = 0; i < 100; ++i) { /* More than the ring holds. */
    EXPECT_OK(commsched_host_stream_enqueue(stream, increment, &count));
  }
  EXPECT_OK(commsched_stream_synchronize(stream));
  EXPECT(count == 100);
  EXPECT_OK(commsched_host_stream_enqueue(stream, increment, &count));
  commsched_host_stream_destroy(stream); /* Runs what is enqueued. */
  EXPECT(count == 101);
}

static void test_stream_errors(commsched_context_t* context) {
  commsched_stream_t stream = commsched_stream_caller();
  commsched_stream_t bad = commsched_stream_caller();
  EXPECT_NULL("context",
              commsched_host_stream_create(NULL, "test", 16, &stream));
  EXPECT_NULL("name", commsched_host_stream_create(context, NULL, 16, &stream));
  EXPECT_NULL("out_stream",
              commsched_host_stream_create(context, "test", 16, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "0",
               commsched_host_stream_create(context, "test", 0, &stream));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "65537",
               commsched_host_stream_create(context, "test", 65537, &stream));
  EXPECT(stream.kind == COMMSCHED_STREAM_CALLER);
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "CALLER",
               commsched_host_stream_enqueue(stream, increment, NULL));
  EXPECT_OK(commsched_stream_synchronize(stream));
  bad.kind = 9;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "kind is 9",
               commsched_stream_synchronize(bad));
  bad.kind = COMMSCHED_STREAM_CUDA;
  EXPECT_FAILS(COMMSCHED_UNIMPLEMENTED, "CUDA",
               commsched_stream_synchronize(bad));
  bad.kind = COMMSCHED_STREAM_HOST;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "native",
               commsched_stream_synchronize(bad));
  bad.kind = COMMSCHED_STREAM_CALLER;
  bad.reserved = 1;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "reserved",
               commsched_stream_synchronize(bad));
  commsched_host_stream_destroy(stream); /* CALLER: nothing. */
  stream = new_stream(context);
  EXPECT_NULL("fn", commsched_host_stream_enqueue(stream, NULL, NULL));
  commsched_host_stream_destroy(stream);
}

void test_stream(void) {
  commsched_world_t* world = c_new_world(1, NULL);
  commsched_context_t* context = c_new_context(world, 0);
  test_host_stream(context);
  test_stream_errors(context);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}
