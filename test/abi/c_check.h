/* What a C program needs to test the C ABI: checks that count and go on. */
#ifndef COMMSCHED_TEST_ABI_C_CHECK_H_
#define COMMSCHED_TEST_ABI_C_CHECK_H_

#include "commsched/commsched.h"

/* Reports a failed check at `file`:`line`. Any thread. */
void c_check_failed(const char* file, int line, const char* what);

/* Whether `actual` is `expected`, and the last error says `part`; reports
 * otherwise. */
void c_check_status(const char* file, int line, const char* call,
                    commsched_status_t actual, commsched_status_t expected,
                    const char* part);

#define EXPECT(condition)                                             \
  do {                                                                \
    if (!(condition)) c_check_failed(__FILE__, __LINE__, #condition); \
  } while (0)

#define EXPECT_OK(call) \
  c_check_status(__FILE__, __LINE__, #call, (call), COMMSCHED_OK, "")

/* The call returns `code`, and the message names `part`. */
#define EXPECT_FAILS(code, part, call) \
  c_check_status(__FILE__, __LINE__, #call, (call), (code), (part))

/* A desc that was not made by its _init(). */
#define EXPECT_UNSIZED(call) \
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "struct_size", call)

#define EXPECT_NULL(name, call) \
  EXPECT_FAILS(COMMSCHED_INVALID_ARGUMENT, "'" name "' is NULL", call)

/* A world of `size` ranks on `backend`, and its rank 0. */
commsched_world_t* c_new_world(int32_t size, const char* backend);
commsched_context_t* c_new_context(commsched_world_t* world, int32_t rank);

enum { C_COUNT = 8 };

/* A planned step of group "dp": "backward" writes the bound f32 buffer "grad"
 * and the owned "scratch", "reduce" sums grad in place over the group, "update"
 * reads both and changes the bound "weights". All of C_COUNT elements. */
struct c_step {
  commsched_graph_t* graph;
  commsched_plan_t* plan;
  commsched_buffer_id_t grad, scratch, weights;
  commsched_op_id_t backward, reduce, update;
};
struct c_step c_new_step(int32_t group_size);
void c_destroy_step(struct c_step* step);

/* One rank's session on a step, its memory, and the parents it needs. */
struct c_rank {
  commsched_context_t* context;
  commsched_group_t* group;
  commsched_session_t* session;
  float grad[C_COUNT];
  float weights[C_COUNT];
};
/* A desc that creates a session of `step` on `rank`; points into `rank` and
 * `bindings`, of two. */
commsched_session_desc_t c_session_desc(const struct c_step* step,
                                        struct c_rank* rank,
                                        commsched_binding_t* bindings);
/* Makes context and group of all ranks, no session. */
void c_open_rank(struct c_rank* rank, commsched_world_t* world, int32_t number);
void c_close_rank(struct c_rank* rank);

/* The tests, one file each. */
void test_basics(void);
void test_world(void);
void test_group(void);
void test_agree(void);
void test_stream(void);
void test_graph(void);
void test_plan(void);
void test_session(void);
void test_session_errors(void);
void test_late(void);
void test_trace(void);
void test_recording(void);
void test_channel(void);
void test_plugin(void);

#endif /* COMMSCHED_TEST_ABI_C_CHECK_H_ */
