/// The control server of a job of processes, for launchers. Ranks find it by
/// themselves (commsched_world_join); who starts them may run it outside of
/// them, so that it outlives each.
#ifndef COMMSCHED_CONTROL_H_
#define COMMSCHED_CONTROL_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/status.h"
#include "commsched/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Where the ranks of one job meet. Thread-safe.
typedef struct commsched_control_server commsched_control_server_t;

typedef struct commsched_control_desc {
  uint64_t struct_size;  ///< Set by commsched_control_desc_init().
  uint32_t abi_version;  ///< Set by commsched_control_desc_init().
  int32_t size;          ///< Ranks of the job, 1..65536.
  uint64_t epoch;        ///< Ranks of another are refused.
  /// Numeric; NULL means "127.0.0.1". Any but loopback needs a token.
  const char* address;
  uint32_t port;      ///< 0: one that is free.
  uint32_t reserved;  ///< 0.
  const char* token;  ///< Up to 1024 bytes; NULL means "".
  /// After how much silence a rank is lost; 0: 10 s. At least 10 ms.
  int64_t silence_ns;
  /// (optional) A rank is lost: its process has ended without leaving, or is
  /// silent; or it has not joined in time (commsched_join_desc_t::timeout_ns):
  /// of several such, the first, with a `why` that names all. `why` is valid
  /// during the call. On the server's thread, as is the next; must not block
  /// nor destroy the server.
  void (*on_lost)(void* user, int32_t rank, const char* why);
  /// (optional) A rank has left or was lost: `present` are there now, `joined`
  /// have ever been, or were lost before they joined.
  void (*on_departed)(void* user, int32_t present, int32_t joined);
  void* user;
} commsched_control_desc_t;

static inline commsched_control_desc_t commsched_control_desc_init(void) {
  commsched_control_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  desc.abi_version = COMMSCHED_ABI_VERSION;
  return desc;
}

/// Starts a server, on a thread of its own.
///
/// Ownership: `desc` is read during the call; the callbacks and `user` must
///            stay. Release with commsched_control_server_destroy().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, a field outside its range, an address
///                                 that is not numeric, or not loopback and
///                                 without a token
///            UNAVAILABLE          the address cannot be listened on
///            RESOURCE_EXHAUSTED   the process may not open as many files as
///                                 the ranks need
///            FAILED_PRECONDITION  `abi_version` is newer than the library
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_control_server_start(const commsched_control_desc_t* desc,
                               commsched_control_server_t** out_server);

/// Returns the port that the server listens on.
///
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API uint32_t
commsched_control_server_port(const commsched_control_server_t* server);

/// Says that the process of `rank` has ended, as only who has started it can
/// know if the rank has not joined, or has left a child that keeps its
/// connection. The rank is lost if it has not left: the others fail with
/// ABORTED, those that wait for it to join at once. `on_lost` is not called.
///
/// Shape:     `what` goes on after "rank 3 is lost: ", as "process 77 exited
///            with code 1" does; copied.
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, or `rank` is not in the job
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_control_server_report_exit(
    commsched_control_server_t* server, int32_t rank, const char* what);

/// Ends the server. Ranks that are still there find it lost. Accepts NULL.
///
/// Threads:   any, once per server.
/// Blocks:    until its thread has ended.
/// Since:     0.1
COMMSCHED_API void commsched_control_server_destroy(
    commsched_control_server_t* server);

enum {
  COMMSCHED_TOKEN_SIZE = 65
};  ///< Of commsched_token_create, with the NUL.

/// Makes a token that nobody can guess: 64 hexadecimal digits.
///
/// Shape:     `out_token` has room for COMMSCHED_TOKEN_SIZE bytes.
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            INTERNAL          the system gave no random bytes
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_token_create(char* out_token);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_CONTROL_H_
