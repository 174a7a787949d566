/* Plugins by name and path, and what the library says about itself. */
#include <string.h>

#include "c_check.h"

static void test_load(void) {
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "flags is 2",
               commsched_plugin_load("bf16", 2));
  EXPECT_OK(commsched_plugin_load("bf16", COMMSCHED_PLUGIN_REQUIRED));
  EXPECT_OK(commsched_plugin_load("bf16", COMMSCHED_PLUGIN_REQUIRED));
  EXPECT_OK(commsched_plugin_load("no_such_plugin", 0));
  EXPECT_FAILS(
      COMMSCHED_NOT_FOUND, "commsched/plugins/commsched_no_such_plugin.so",
      commsched_plugin_load("no_such_plugin", COMMSCHED_PLUGIN_REQUIRED));
  EXPECT_FAILS(
      COMMSCHED_NOT_FOUND, "./no_such_file.so",
      commsched_plugin_load("./no_such_file.so", COMMSCHED_PLUGIN_REQUIRED));
  EXPECT_OK(commsched_plugin_load(NULL, COMMSCHED_PLUGIN_REQUIRED));
}

static void test_info(void) {
  char* text = NULL;
  EXPECT_NULL("out_text", commsched_info(COMMSCHED_TEXT, NULL));
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "format is 2",
               commsched_info(COMMSCHED_DOT, &text));
  EXPECT_OK(commsched_info(COMMSCHED_TEXT, &text));
  EXPECT(strstr(text, "inproc") != NULL);
  EXPECT(strstr(text, "bf16 1 (") != NULL);
  EXPECT(strstr(text, "commsched_no_such_plugin.so: not found") != NULL);
  EXPECT(strstr(text, "COMMSCHED_PLUGIN_PATH=''") != NULL);
  commsched_string_free(text);
  EXPECT_OK(commsched_info(COMMSCHED_JSON, &text));
  EXPECT(strstr(text, "\"commsched-info/1\"") != NULL);
  commsched_string_free(text);
}

static void test_names(void) {
  commsched_world_desc_t world = commsched_world_desc_init();
  commsched_plan_options_t options = commsched_plan_options_init();
  commsched_world_t* none = NULL;
  commsched_plan_t* plan = NULL;
  struct c_step step = c_new_step(1);
  world.size = 1;
  world.backend = "no_such_backend";
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "there are: 'inproc', 'null'",
               commsched_world_create_inproc(&world, &none));
  world.backend = "null";
  world.backend_config = "fast=1";
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "takes no configuration",
               commsched_world_create_inproc(&world, &none));
  options.policy = "no_such_policy";
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "no policy is called 'no_such_policy'",
               commsched_plan_build(step.graph, &options, NULL, &plan));
  options.policy = NULL;
  options.codec = "no_such_codec";
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "'bf16'",
               commsched_plan_build(step.graph, &options, NULL, &plan));
  options.codec = "int8";
  EXPECT_OK(commsched_plan_build(step.graph, &options, NULL, &plan));
  commsched_plan_destroy(plan);
  c_destroy_step(&step);
}

/* One rank, so that nothing travels and nothing is encoded. */
static void test_session_names(void) {
  commsched_world_t* world = c_new_world(1, NULL);
  struct c_step step = c_new_step(1);
  struct c_rank rank;
  commsched_binding_t bindings[2];
  commsched_session_desc_t desc;
  commsched_codec_error_t error = commsched_codec_error_init();
  c_open_rank(&rank, world, 0);
  desc = c_session_desc(&step, &rank, bindings);
  desc.observers = "no_such_observer";
  EXPECT_FAILS(COMMSCHED_NOT_FOUND, "no observer is called 'no_such_observer'",
               commsched_session_create(&desc, &rank.session));
  desc.observers = ",";
  EXPECT_OK(commsched_session_create(&desc, &rank.session));
  EXPECT_NULL("session",
              commsched_session_codec_error(NULL, step.reduce, &error));
  EXPECT_NULL("out_error",
              commsched_session_codec_error(rank.session, step.reduce, NULL));
  EXPECT_FAILS(
      COMMSCHED_NOT_FOUND, "'reduce' does not travel through a codec",
      commsched_session_codec_error(rank.session, step.reduce, &error));
  commsched_session_destroy(rank.session);
  rank.session = NULL;
  c_close_rank(&rank);
  c_destroy_step(&step);
  commsched_world_destroy(world);
}

void test_plugin(void) {
  test_load();
  test_info();
  test_names();
  test_session_names();
}
