/* Version, status, log, world and context. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "c_check.h"

static void test_version(void) {
  char expected[32];
  snprintf(expected, sizeof(expected), "%d.%d.%d", COMMSCHED_VERSION_MAJOR,
           COMMSCHED_VERSION_MINOR, COMMSCHED_VERSION_PATCH);
  EXPECT(strcmp(commsched_version(), expected) == 0);
  EXPECT(commsched_abi_version() == COMMSCHED_ABI_VERSION);
}

static void* abi_json(void* unused) {
  (void)unused;
  return (void*)commsched_abi_json();
}

static void test_abi_json(void) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  int i;
  for (i = 0; i < THREADS; ++i) {
    EXPECT(pthread_create(&threads[i], NULL, abi_json, NULL) == 0);
  }
  for (i = 0; i < THREADS; ++i) {
    void* text = NULL;
    EXPECT(pthread_join(threads[i], &text) == 0);
    EXPECT(text == commsched_abi_json());
  }
  EXPECT(strncmp(commsched_abi_json(), "{\"version\":1,", 13) == 0);
  EXPECT(strchr(commsched_abi_json(), '#') == NULL);
}

static void test_status_names(void) {
  EXPECT(strcmp(commsched_status_name(COMMSCHED_OK), "OK") == 0);
  EXPECT(strcmp(commsched_status_name(COMMSCHED_UNAUTHENTICATED),
                "UNAUTHENTICATED") == 0);
  EXPECT(strcmp(commsched_status_name(17), "UNKNOWN_CODE") == 0);
  EXPECT(strcmp(commsched_status_name(-1), "UNKNOWN_CODE") == 0);
}

static void* fresh_thread(void* unused) {
  (void)unused;
  EXPECT(strcmp(commsched_last_error(), "") == 0);
  return NULL;
}

static void test_last_error(void) {
  commsched_graph_t* graph = NULL;
  pthread_t thread;
  EXPECT_NULL("out_graph", commsched_graph_create(NULL));
  EXPECT_OK(commsched_graph_create(&graph));
  /* A call that succeeds leaves the message as it was ... */
  EXPECT(strstr(commsched_last_error(), "out_graph") != NULL);
  commsched_graph_destroy(graph);
  /* ... a library on top of this one may put it there ... */
  commsched_set_last_error("engine: no");
  EXPECT(strcmp(commsched_last_error(), "engine: no") == 0);
  commsched_set_last_error(commsched_last_error() + 8);
  EXPECT(strcmp(commsched_last_error(), "no") == 0);
  commsched_set_last_error(NULL);
  EXPECT(strcmp(commsched_last_error(), "") == 0);
  /* ... and another thread has its own. */
  EXPECT(pthread_create(&thread, NULL, fresh_thread, NULL) == 0);
  pthread_join(thread, NULL);
}

static void on_log(void* user, int32_t level, const char* message) {
  (void)level;
  (void)message;
  ++*(int*)user;
}

static void test_log(void) {
  int lines = 0;
  commsched_set_log_callback(on_log, &lines, COMMSCHED_LOG_DEBUG);
  commsched_set_log_callback(NULL, NULL, COMMSCHED_LOG_WARNING);
}

static void test_waits(void) {
  char* text = NULL;
  EXPECT_OK(commsched_waits_describe(&text));
  EXPECT(text != NULL && strcmp(text, "") == 0);
  commsched_string_free(text);
  EXPECT_NULL("out_text", commsched_waits_describe(NULL));
  EXPECT_OK(commsched_waits_print_on(SIGUSR2));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "9 is not a signal that can be",
               commsched_waits_print_on(SIGKILL));
  signal(SIGUSR1, SIG_IGN);
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "ignores signal",
               commsched_waits_print_on(SIGUSR1));
  signal(SIGUSR1, SIG_DFL);
}

void test_basics(void) {
  test_waits();
  test_version();
  test_abi_json();
  test_status_names();
  test_last_error();
  test_log();
}

static void test_world_desc(void) {
  commsched_world_desc_t desc = commsched_world_desc_init();
  commsched_world_t* world = NULL;
  desc.size = 2;
  EXPECT_NULL("desc", commsched_world_create_inproc(NULL, &world));
  EXPECT_NULL("out_world", commsched_world_create_inproc(&desc, NULL));
  desc.struct_size = 0;
  EXPECT_UNSIZED(commsched_world_create_inproc(&desc, &world));
  desc = commsched_world_desc_init();
  desc.size = 2;
  desc.abi_version = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "abi_version",
               commsched_world_create_inproc(&desc, &world));
  desc.abi_version = COMMSCHED_ABI_VERSION + 1;
  EXPECT_FAILS(COMMSCHED_FAILED_PRECONDITION, "ABI",
               commsched_world_create_inproc(&desc, &world));
  desc.abi_version = COMMSCHED_ABI_VERSION;
  desc.size = 0;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "0",
               commsched_world_create_inproc(&desc, &world));
  desc.size = 4097;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "4097",
               commsched_world_create_inproc(&desc, &world));
  desc.size = 2;
  desc.backend = "telegraph";
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "telegraph",
               commsched_world_create_inproc(&desc, &world));
  desc.backend = NULL;
  desc.backend_config = "link_bytes_per_s=-1";
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "link_bytes_per_s is '-1'",
               commsched_world_create_inproc(&desc, &world));
  desc.backend_config = "speed=9";
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "unknown key 'speed'",
               commsched_world_create_inproc(&desc, &world));
  EXPECT(world == NULL);
}

/* A caller of a later version, whose struct has one more field. */
struct later_world_desc {
  commsched_world_desc_t now;
  uint64_t later;
};

static void test_struct_growth(void) {
  struct later_world_desc later;
  commsched_world_desc_t earlier = commsched_world_desc_init();
  commsched_world_t* world = NULL;
  memset(&later, 0, sizeof(later));
  later.now = commsched_world_desc_init();
  later.now.struct_size = sizeof(later);
  later.now.size = 3;
  EXPECT_OK(commsched_world_create_inproc(&later.now, &world));
  EXPECT(commsched_world_size(world) == 3);
  commsched_world_destroy(world);
  world = NULL;
  later.later = 7;
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "does not know",
               commsched_world_create_inproc(&later.now, &world));
  /* A caller of an earlier version: what it does not have is 0. */
  earlier.size = 2;
  earlier.backend = "not read";
  earlier.backend_config = "not read either";
  earlier.struct_size = offsetof(commsched_world_desc_t, backend);
  EXPECT_OK(commsched_world_create_inproc(&earlier, &world));
  EXPECT(commsched_world_size(world) == 2);
  commsched_world_destroy(world);
}

static void test_context(void) {
  commsched_world_t* world = c_new_world(2, NULL);
  commsched_context_t* context = c_new_context(world, 1);
  commsched_context_t* other = NULL;
  EXPECT(commsched_context_rank(context) == 1);
  EXPECT(commsched_context_world_size(context) == 2);
  EXPECT_NULL("world", commsched_context_create(NULL, 0, &other));
  EXPECT_NULL("out_context", commsched_context_create(world, 0, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "rank 2",
               commsched_context_create(world, 2, &other));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "rank -1",
               commsched_context_create(world, -1, &other));
  EXPECT_FAILS(COMMSCHED_ALREADY_EXISTS, "1",
               commsched_context_create(world, 1, &other));
  EXPECT(other == NULL);
  commsched_context_destroy(context);
  context = c_new_context(world, 1);
  commsched_world_destroy(world); /* The context keeps the world. */
  EXPECT(commsched_context_world_size(context) == 2);
  commsched_context_destroy(context);
}

/* A part of one rank needs nobody else. */
static void test_split(void) {
  commsched_world_t* world = c_new_world(3, NULL);
  commsched_context_t* context = c_new_context(world, 1);
  commsched_context_t* part = NULL;
  commsched_context_t* inner = NULL;
  const int32_t twice[] = {1, 1};
  const int32_t others[] = {0, 2};
  const int32_t outside[] = {1, 3};
  const int32_t self[] = {1};
  const int32_t zero[] = {0};
  EXPECT_NULL("context", commsched_context_split(NULL, self, 1, "a", &part));
  EXPECT_NULL("name", commsched_context_split(context, self, 1, NULL, &part));
  EXPECT_NULL("out_context",
              commsched_context_split(context, self, 1, "a", NULL));
  EXPECT_NULL("members", commsched_context_split(context, NULL, 1, "a", &part));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "no members",
               commsched_context_split(context, NULL, 0, "a", &part));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "rank 1 is named twice",
               commsched_context_split(context, twice, 2, "a", &part));
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "rank 1, which calls, is not among",
               commsched_context_split(context, others, 2, "a", &part));
  EXPECT_FAILS(COMMSCHED_OUT_OF_RANGE, "rank 3 is outside the world, 0..2",
               commsched_context_split(context, outside, 2, "a", &part));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "the name has 0 bytes",
               commsched_context_split(context, self, 1, "", &part));
  EXPECT(part == NULL);
  EXPECT_OK(commsched_context_split(context, self, 1, "a", &part));
  EXPECT(commsched_context_rank(part) == 0);
  EXPECT(commsched_context_world_size(part) == 1);
  EXPECT(commsched_context_local_size(part) == 1);
  EXPECT(strcmp(commsched_context_backend(part),
                commsched_context_backend(context)) == 0);
  /* It does not need what it was split from, in any order. */
  commsched_context_destroy(context);
  commsched_world_destroy(world);
  EXPECT_OK(commsched_context_split(part, zero, 1, "b", &inner));
  commsched_context_destroy(part);
  EXPECT(commsched_context_world_size(inner) == 1);
  commsched_context_destroy(inner);
}

static void test_null_handles(void) {
  commsched_world_destroy(NULL);
  commsched_context_destroy(NULL);
  EXPECT(commsched_world_size(NULL) == 0);
  EXPECT(commsched_context_rank(NULL) == -1);
  EXPECT(commsched_context_world_size(NULL) == 0);
}

void test_world(void) {
  test_world_desc();
  test_struct_growth();
  test_context();
  test_split();
  test_null_handles();
}
