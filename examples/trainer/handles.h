#ifndef COMMSCHED_EXAMPLES_TRAINER_HANDLES_H_
#define COMMSCHED_EXAMPLES_TRAINER_HANDLES_H_

#include <memory>

#include "commsched/world.h"

namespace commsched::trainer {

// Deletes a C handle with the function that belongs to it.
template <auto Destroy>
struct HandleDelete {
  template <typename T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};
using WorldHandle =
    std::unique_ptr<commsched_world_t, HandleDelete<commsched_world_destroy>>;

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_HANDLES_H_
