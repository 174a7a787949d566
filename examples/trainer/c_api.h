// What the trainer adds to the C ABI: statuses, handles, texts and structs.
#ifndef COMMSCHED_EXAMPLES_TRAINER_C_API_H_
#define COMMSCHED_EXAMPLES_TRAINER_C_API_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "commsched/commsched.h"
#include "commsched/engine.h"
#include "examples/trainer/status_macros.h"

namespace commsched::trainer {

// What a call of the C ABI returned on this thread, with its message.
inline absl::Status FromC(commsched_status_t code) {
  if (code == COMMSCHED_OK) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(code),
                      commsched_last_error());
}

// Returns from the enclosing function if `call`, one of the C ABI, failed.
#define TRAINER_CALL(call) TRAINER_RETURN_IF_ERROR(FromC(call))

// Deletes a C handle with the function that belongs to it.
template <auto Destroy>
struct HandleDelete {
  template <typename T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};
template <typename T, auto Destroy>
using Handle = std::unique_ptr<T, HandleDelete<Destroy>>;
using WorldHandle = Handle<commsched_world_t, commsched_world_destroy>;

// The argument of a call that makes what `handle` keeps, such as
// std::out_ptr of C++23.
template <typename T, typename Delete>
class Out {
 public:
  explicit Out(std::unique_ptr<T, Delete>& handle) : handle_(handle) {}
  ~Out() { handle_.reset(made_); }
  Out(const Out&) = delete;
  Out& operator=(const Out&) = delete;
  operator T**() { return &made_; }

 private:
  std::unique_ptr<T, Delete>& handle_;
  T* made_ = nullptr;
};

// The text that a call with these arguments makes.
template <typename Call, typename... Arguments>
absl::StatusOr<std::string> TextOf(Call call, Arguments... arguments) {
  char* text = nullptr;
  TRAINER_CALL(call(arguments..., &text));
  std::string copy = text;
  commsched_string_free(text);
  return copy;
}

// The struct `initial` as a call on `object` fills it.
template <typename T, typename Call, typename Object>
absl::StatusOr<T> Filled(T initial, Call call, Object object) {
  TRAINER_CALL(call(object, &initial));
  return initial;
}

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_C_API_H_
