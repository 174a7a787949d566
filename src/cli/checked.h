// The C ABI for commands that end at the first failure.
#ifndef COMMSCHED_SRC_CLI_CHECKED_H_
#define COMMSCHED_SRC_CLI_CHECKED_H_

#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "commsched/commsched.h"

namespace commsched::cli {

inline void Check(commsched_status_t status, const char* what) {
  if (status == COMMSCHED_OK) return;
  throw std::runtime_error(std::string(what) + ": " +
                           commsched_status_name(status) + ": " +
                           commsched_last_error());
}

template <auto Destroy>
struct Delete {
  template <typename T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};
template <typename T, auto Destroy>
using Handle = std::unique_ptr<T, Delete<Destroy>>;

using Session = Handle<commsched_session_t, commsched_session_destroy>;

// One step, on the calling thread, of a session with one compute op, to the end
// of what follows from it.
inline void RunStep(commsched_session_t* session, commsched_op_id_t op) {
  const commsched_stream_t here = commsched_stream_caller();
  Check(commsched_session_step_begin(session), "step_begin");
  Check(commsched_session_before(session, op, here), "before");
  Check(commsched_session_after(session, op, here), "after");
  Check(commsched_session_step_end(session), "step_end");
  Check(commsched_session_drain(session), "drain");
}

// What each rank gives, in their order; waits for all.
template <typename T>
std::vector<T> Gather(commsched_context_t* context, const char* name,
                      const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all;
  commsched_gather_desc_t desc = commsched_gather_desc_init();
  desc.name = name;
  desc.data = &mine;
  desc.bytes = sizeof(mine);
  desc.user = &all;
  desc.take = [](void* user, int32_t, const void* data, uint64_t bytes) {
    T one;
    std::memcpy(&one, data, std::min<uint64_t>(bytes, sizeof(one)));
    static_cast<std::vector<T>*>(user)->push_back(one);
  };
  Check(commsched_context_gather(context, &desc), name);
  return all;
}

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_CHECKED_H_
