// Late bindings, as callers give them.
#ifndef COMMSCHED_SRC_CAPI_LATE_BINDINGS_H_
#define COMMSCHED_SRC_CAPI_LATE_BINDINGS_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "commsched/session.h"
#include "exec/late_bindings.h"

namespace commsched {

// More of them in one call take an allocation.
constexpr size_t kInlineBindings = 8;
using GivenBindings = absl::InlinedVector<LateBinding, kInlineBindings>;

// kInvalidArgument, naming the field, for a missing array.
inline absl::StatusOr<GivenBindings> ReadLateBindings(
    const commsched_late_binding_t* bindings, uint32_t num_bindings) {
  RETURN_IF_ERROR(RequireArray("bindings", bindings, num_bindings));
  GivenBindings late;
  for (uint32_t i = 0; i < num_bindings; ++i) {
    const commsched_late_binding_t& given = bindings[i];
    if ((given.counts == nullptr) != (given.num_counts == 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bindings[", i, "].counts is ",
          given.counts == nullptr ? "NULL, not an array of " : "given, with ",
          given.num_counts, " counts: set both counts and num_counts or none"));
    }
    late.push_back({.buffer = BufferId(given.buffer),
                    .address = given.address,
                    .count = given.count,
                    .counts = {given.counts, given.num_counts}});
  }
  return late;
}

}  // namespace commsched

#endif  // COMMSCHED_SRC_CAPI_LATE_BINDINGS_H_
