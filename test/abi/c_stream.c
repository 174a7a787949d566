/* Streams and events. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#include "c_check.h"

static void increment(void* user) { ++*(int*)user; }

/* A gate that work on a stream waits at. */
struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t opened;
  int open;
};

static void wait_at(void* user) {
  struct gate* gate = user;
  pthread_mutex_lock(&gate->mutex);
  while (!gate->open) pthread_cond_wait(&gate->opened, &gate->mutex);
  pthread_mutex_unlock(&gate->mutex);
}

static void open_gate(struct gate* gate) {
  pthread_mutex_lock(&gate->mutex);
  gate->open = 1;
  pthread_cond_broadcast(&gate->opened);
  pthread_mutex_unlock(&gate->mutex);
}

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

static void test_event(commsched_context_t* context) {
  struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
  commsched_stream_t first = new_stream(context);
  commsched_stream_t second = new_stream(context);
  commsched_event_t event;
  uint32_t complete = 7;
  int count = 0;
  EXPECT_OK(commsched_event_create(context, &event));
  EXPECT_OK(commsched_event_query(event, &complete));
  EXPECT(complete == 1); /* Never recorded. */
  EXPECT_OK(commsched_event_synchronize(event));
  EXPECT_OK(commsched_host_stream_enqueue(first, wait_at, &gate));
  EXPECT_OK(commsched_event_record(event, first));
  EXPECT_OK(commsched_event_query(event, &complete));
  EXPECT(complete == 0);
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "another stream",
               commsched_event_record(event, second));
  EXPECT_OK(commsched_stream_wait_event(second, event));
  EXPECT_OK(commsched_host_stream_enqueue(second, increment, &count));
  open_gate(&gate);
  EXPECT_OK(commsched_event_synchronize(event));
  EXPECT_OK(commsched_stream_wait_event(commsched_stream_caller(), event));
  EXPECT_OK(commsched_stream_synchronize(second));
  EXPECT(count == 1);
  EXPECT_OK(commsched_event_record(event, second)); /* Now it may move. */
  EXPECT_OK(commsched_event_record(event, second));
  EXPECT_OK(commsched_event_synchronize(event));
  EXPECT_OK(commsched_event_record(event, commsched_stream_caller()));
  EXPECT_OK(commsched_event_query(event, &complete));
  EXPECT(complete == 1);
  commsched_host_stream_destroy(first);
  commsched_host_stream_destroy(second);
  commsched_event_destroy(event);
}

static void test_event_errors(commsched_context_t* context) {
  commsched_event_t none;
  commsched_event_t event;
  commsched_stream_t bad = commsched_stream_caller();
  uint32_t complete = 7;
  memset(&none, 0, sizeof(none));
  bad.kind = 9;
  EXPECT_OK(commsched_event_create(context, &event));
  EXPECT_NULL("context", commsched_event_create(NULL, &none));
  EXPECT_NULL("out_event", commsched_event_create(context, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "not an event",
               commsched_event_record(none, commsched_stream_caller()));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "kind is 9",
               commsched_event_record(event, bad));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "not an event",
               commsched_stream_wait_event(commsched_stream_caller(), none));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "kind is 9",
               commsched_stream_wait_event(bad, event));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "not an event",
               commsched_event_query(none, &complete));
  EXPECT_NULL("out_complete", commsched_event_query(event, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "not an event",
               commsched_event_synchronize(none));
  EXPECT(complete == 7);
  commsched_event_destroy(none);
  commsched_event_destroy(event);
}

void test_stream(void) {
  commsched_world_t* world = c_new_world(1, NULL);
  commsched_context_t* context = c_new_context(world, 0);
  test_host_stream(context);
  test_stream_errors(context);
  test_event(context);
  test_event_errors(context);
  commsched_context_destroy(context);
  commsched_world_destroy(world);
}
