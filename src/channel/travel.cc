#include "channel/travel.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "comm/launch_check.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

struct Form {
  DType dtype;
  ReduceOp op;
  uint64_t factor;
};

// As what `dtype` is moved.
Form MovedAs(DType dtype) {
  if (IsComputed(dtype)) return {dtype, ReduceOp::kSum, 1};
  return {DType::kU8, ReduceOp::kSum, DTypeSize(dtype)};
}

// Sums and products of unsigned integers have the bits of those of signed ones.
std::optional<Form> WrappedAs(DType as, ReduceOp op) {
  const bool wraps = op == ReduceOp::kSum || op == ReduceOp::kProd;
  if (!wraps && !IsBitwise(op)) return std::nullopt;
  return Form{as, op, 1};
}

// What is linear in real and imaginary part.
std::optional<Form> PairsOf(DType as, ReduceOp op) {
  if (op != ReduceOp::kSum && op != ReduceOp::kAvg &&
      op != ReduceOp::kPremulSum) {
    return std::nullopt;
  }
  return Form{as, op, 2};
}

// Not by the bits: 1 and 2 are both true, and have none in common.
std::optional<Form> TruthAs(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBor:
      return Form{DType::kU8, ReduceOp::kMax, 1};
    case ReduceOp::kProd:
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return Form{DType::kU8, ReduceOp::kMin, 1};
    case ReduceOp::kAvg:
    case ReduceOp::kBxor:
    case ReduceOp::kPremulSum:
      break;
  }
  return std::nullopt;
}

// As what `dtype` is reduced by `op`; none: it is not.
std::optional<Form> ReducedAs(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::kI16:
    case DType::kU16:
      if (!IsBitwise(op)) return std::nullopt;
      return Form{DType::kU8, op, DTypeSize(dtype)};
    case DType::kU32:
      return WrappedAs(DType::kI32, op);
    case DType::kU64:
      return WrappedAs(DType::kI64, op);
    case DType::kC64:
      return PairsOf(DType::kF32, op);
    case DType::kC128:
      return PairsOf(DType::kF64, op);
    case DType::kBool:
      return TruthAs(op);
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return std::nullopt;
    case DType::kF32:
    case DType::kF64:
    case DType::kF16:
    case DType::kBF16:
    case DType::kI8:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      break;
  }
  if (!IsReducible(dtype, op)) return std::nullopt;
  return Form{dtype, op, 1};
}

// The names of the first `count` values of which `takes` is true.
template <typename Takes, typename NameOf>
std::string NamesOf(int count, const Takes& takes, const NameOf& name_of) {
  std::string names;
  for (int i = 0; i < count; ++i) {
    if (!takes(i)) continue;
    absl::StrAppend(&names, names.empty() ? "" : ", ", name_of(i));
  }
  return names;
}

std::string ReductionNames(const auto& takes) {
  return NamesOf(kNumReduceOps, takes, [](int op) {
    return ReduceOpName(static_cast<ReduceOp>(op));
  });
}

absl::Status NotReduced(DType dtype, ReduceOp op) {
  const std::string others = ReductionNames([&](int other) {
    return ReducedAs(dtype, static_cast<ReduceOp>(other)).has_value();
  });
  return absl::InvalidArgumentError(absl::StrCat(
      "dtype ", DTypeName(dtype), " is not reduced by ", ReduceOpName(op),
      others.empty() ? "; it only travels" : ", but by ", others));
}

// What a table's masks stand for.
bool Takes(uint32_t mask, uint32_t if_zero, uint32_t bit) {
  return ((mask == 0 ? if_zero : mask) >> bit & 1) != 0;
}

absl::Status Lacks(const commsched_backend_t& backend, absl::string_view what,
                   absl::string_view takes) {
  return absl::UnimplementedError(absl::StrCat(
      "backend '", backend.name, "' does not ", what, "; it takes ", takes));
}

// What is sent is asked for by tags, which is looked at where tags are.
absl::Status CheckKind(const commsched_backend_t& backend,
                       commsched_collective_t kind) {
  const auto takes = [&](auto k) {
    return Takes(backend.kinds, UINT32_MAX, static_cast<uint32_t>(k));
  };
  if (kind >= COMMSCHED_SEND || takes(kind)) return absl::OkStatus();
  return Lacks(backend, absl::StrCat("do ", CollectiveName(kind)),
               NamesOf(COMMSCHED_SEND, takes, [](int k) {
                 return CollectiveName(static_cast<uint32_t>(k));
               }));
}

absl::Status CheckForm(const commsched_backend_t& backend, const Form& form,
                       bool is_reduced) {
  const auto moves = [&](auto dtype) {
    return Takes(backend.dtypes, UINT32_MAX, static_cast<uint32_t>(dtype));
  };
  if (!moves(form.dtype)) {
    return Lacks(backend, absl::StrCat("move ", DTypeName(form.dtype)),
                 NamesOf(kNumComputedDTypes, moves, [](int dtype) {
                   return DTypeName(static_cast<DType>(dtype));
                 }));
  }
  const auto reduces = [&](auto op) {
    return Takes(backend.reductions, COMMSCHED_BACKEND_BASIC_REDUCTIONS,
                 static_cast<uint32_t>(op));
  };
  if (!is_reduced || reduces(form.op)) return absl::OkStatus();
  return Lacks(backend, absl::StrCat("reduce by ", ReduceOpName(form.op)),
               ReductionNames(reduces));
}

}  // namespace

absl::StatusOr<Travel> TravelOf(const commsched_backend_t& backend,
                                commsched_collective_t kind,
                                commsched_dtype_t dtype,
                                commsched_reduce_op_t reduce_op,
                                uint64_t count) {
  RETURN_IF_ERROR(CheckKind(backend, kind));
  if (kind == COMMSCHED_BARRIER) return Travel{};
  ASSIGN_OR_RETURN(const DType type, DTypeFromInt(dtype));
  const bool is_reduced = kind <= COMMSCHED_RECV && IsReducing(KindOf(kind));
  Form form = MovedAs(type);
  if (is_reduced) {
    ASSIGN_OR_RETURN(const ReduceOp op, ReduceOpFromInt(reduce_op));
    const std::optional<Form> reduced = ReducedAs(type, op);
    if (!reduced.has_value()) return NotReduced(type, op);
    form = *reduced;
  }
  RETURN_IF_ERROR(CheckForm(backend, form, is_reduced));
  constexpr uint64_t kMaxBytes = INT64_MAX;
  if (count > kMaxBytes / DTypeSize(type)) {
    return absl::InvalidArgumentError(
        absl::StrCat(count, " elements of ", DTypeName(type), ", ",
                     DTypeSize(type), " bytes each, exceed 2^63-1 bytes"));
  }
  return Travel{static_cast<commsched_dtype_t>(form.dtype),
                static_cast<commsched_reduce_op_t>(form.op), form.factor,
                count * form.factor};
}

}  // namespace commsched
