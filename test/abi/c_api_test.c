/* The C ABI as a C99 program sees it: every function, and every way in which
 * its contract says that it fails. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int num_failures = 0;

void c_check_failed(const char* file, int line, const char* what) {
  pthread_mutex_lock(&mutex);
  ++num_failures;
  fprintf(stderr, "%s:%d: failed: %s\n", file, line, what);
  pthread_mutex_unlock(&mutex);
}

void c_check_status(const char* file, int line, const char* call,
                    commsched_status_t actual, commsched_status_t expected,
                    const char* part) {
  const char* message = actual == COMMSCHED_OK ? "" : commsched_last_error();
  char what[1024];
  if (actual == expected && strstr(message, part) != NULL) return;
  snprintf(what, sizeof(what), "%s\n  expected %s with '%s'\n  but was  %s: %s",
           call, commsched_status_name(expected), part,
           commsched_status_name(actual), message);
  c_check_failed(file, line, what);
}

commsched_world_t* c_new_world(int32_t size, const char* backend) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  commsched_world_t* world = NULL;
  desc.size = size;
  desc.backend = backend;
  EXPECT_OK(commsched_world_create_inproc(&desc, &world));
  return world;
}

commsched_context_t* c_new_context(commsched_world_t* world, int32_t rank) {
  commsched_context_t* context = NULL;
  EXPECT_OK(commsched_context_create(world, rank, &context));
  return context;
}

static void run(const char* name, void (*test)(void)) {
  const int before = num_failures;
  test();
  printf("%s: %s\n", name, num_failures == before ? "ok" : "FAILED");
}

int main(void) {
  run("basics", test_basics);
  run("world", test_world);
  run("group", test_group);
  run("agree", test_agree);
  run("stream", test_stream);
  run("graph", test_graph);
  run("plan", test_plan);
  run("session", test_session);
  run("session_errors", test_session_errors);
  run("late", test_late);
  run("trace", test_trace);
  run("recording", test_recording);
  run("channel", test_channel);
  run("plugin", test_plugin);
  return num_failures == 0 ? 0 : 1;
}
