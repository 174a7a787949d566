#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "capi/boundary.h"
#include "capi/convert.h"
#include "graph/collective_shape.h"

namespace commsched {
namespace {

// `ours` and the public enumerator `theirs` are one number.
template <typename Enum>
constexpr bool Same(Enum ours, uint32_t theirs) {
  return static_cast<uint32_t>(ours) == theirs;
}

static_assert(Same(DType::kF32, COMMSCHED_F32));
static_assert(Same(DType::kF64, COMMSCHED_F64));
static_assert(Same(DType::kF16, COMMSCHED_F16));
static_assert(Same(DType::kBF16, COMMSCHED_BF16));
static_assert(Same(DType::kI8, COMMSCHED_I8));
static_assert(Same(DType::kI32, COMMSCHED_I32));
static_assert(Same(DType::kI64, COMMSCHED_I64));
static_assert(Same(DType::kU8, COMMSCHED_U8));
static_assert(Same(DType::kI16, COMMSCHED_I16));
static_assert(Same(DType::kU16, COMMSCHED_U16));
static_assert(Same(DType::kU32, COMMSCHED_U32));
static_assert(Same(DType::kU64, COMMSCHED_U64));
static_assert(Same(DType::kF8E4M3, COMMSCHED_F8_E4M3));
static_assert(Same(DType::kF8E5M2, COMMSCHED_F8_E5M2));
static_assert(Same(DType::kC64, COMMSCHED_C64));
static_assert(Same(DType::kC128, COMMSCHED_C128));
static_assert(Same(DType::kBool, COMMSCHED_BOOL));
static_assert(Same(ReduceOp::kSum, COMMSCHED_SUM));
static_assert(Same(ReduceOp::kAvg, COMMSCHED_AVG));
static_assert(Same(ReduceOp::kMin, COMMSCHED_MIN));
static_assert(Same(ReduceOp::kMax, COMMSCHED_MAX));
static_assert(Same(ReduceOp::kProd, COMMSCHED_PROD));
static_assert(Same(ReduceOp::kBand, COMMSCHED_BAND));
static_assert(Same(ReduceOp::kBor, COMMSCHED_BOR));
static_assert(Same(ReduceOp::kBxor, COMMSCHED_BXOR));
static_assert(Same(ReduceOp::kPremulSum, COMMSCHED_PREMUL_SUM));
static_assert(Same(CollectiveKind::kAllReduce, COMMSCHED_ALL_REDUCE));
static_assert(Same(CollectiveKind::kReduceScatter, COMMSCHED_REDUCE_SCATTER));
static_assert(Same(CollectiveKind::kAllGather, COMMSCHED_ALL_GATHER));
static_assert(Same(CollectiveKind::kAllToAll, COMMSCHED_ALL_TO_ALL));
static_assert(Same(CollectiveKind::kBroadcast, COMMSCHED_BROADCAST));
static_assert(Same(CollectiveKind::kReduce, COMMSCHED_REDUCE));
static_assert(Same(CollectiveKind::kBarrier, COMMSCHED_BARRIER));
static_assert(Same(CollectiveKind::kSend, COMMSCHED_SEND));
static_assert(Same(CollectiveKind::kRecv, COMMSCHED_RECV));
static_assert(Same(Ownership::kOwned, COMMSCHED_OWNED));
static_assert(Same(Ownership::kBound, COMMSCHED_BOUND));
static_assert(Same(Ownership::kLateBound, COMMSCHED_LATE_BOUND));
static_assert(Same(RegionKind::kWhole, COMMSCHED_WHOLE));
static_assert(Same(RegionKind::kRange, COMMSCHED_RANGE));
static_assert(Same(RegionKind::kShard, COMMSCHED_SHARD));
static_assert(Same(RegionKind::kTile, COMMSCHED_TILE));
static_assert(Same(AccessMode::kRead, COMMSCHED_READ));
static_assert(Same(AccessMode::kWrite, COMMSCHED_WRITE));
static_assert(Same(AccessMode::kReadWrite, COMMSCHED_READ_WRITE));

template <typename Enum>
absl::StatusOr<Enum> ToEnum(absl::string_view field, uint32_t value, Enum first,
                            Enum last) {
  const auto low = static_cast<uint32_t>(first);
  const auto high = static_cast<uint32_t>(last);
  if (value < low || value > high) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", value, ", outside ", low, "..", high));
  }
  return static_cast<Enum>(value);
}

absl::StatusOr<Region> ToRegion(const commsched_access_t& access) {
  Region region;
  ASSIGN_OR_RETURN(region.kind, ToEnum("access.region", access.region,
                                       RegionKind::kWhole, RegionKind::kTile));
  if (region.kind == RegionKind::kShard) region.group = GroupId(access.group);
  const bool tile = region.kind == RegionKind::kTile;
  if (tile || region.kind == RegionKind::kRange) {
    region.offset = access.offset;
    region.count = access.count;
  }
  if (tile) {
    region.rows = access.rows;
    region.stride = access.stride;
  }
  return region;
}

absl::StatusOr<Access> ToAccess(const commsched_access_t& access) {
  Access result;
  result.buffer = BufferId(access.buffer);
  ASSIGN_OR_RETURN(result.mode,
                   ToEnum("access.mode", access.mode, AccessMode::kRead,
                          AccessMode::kReadWrite));
  ASSIGN_OR_RETURN(result.region, ToRegion(access));
  return result;
}

// One side of a collective, which says the mode.
absl::StatusOr<Access> ToSide(const commsched_access_t& access,
                              AccessMode mode) {
  Access result;
  result.buffer = BufferId(access.buffer);
  result.mode = mode;
  ASSIGN_OR_RETURN(result.region, ToRegion(access));
  return result;
}

absl::StatusOr<CollectiveSpec> ToCollectiveSpec(
    const commsched_collective_desc_t& desc) {
  CollectiveSpec spec;
  ASSIGN_OR_RETURN(spec.kind,
                   ToEnum("collective.kind", desc.kind,
                          CollectiveKind::kAllReduce, CollectiveKind::kRecv));
  if (IsReducing(spec.kind)) {
    ASSIGN_OR_RETURN(spec.reduce_op,
                     ToEnum("collective.reduce_op", desc.reduce_op,
                            ReduceOp::kSum, ReduceOp::kPremulSum));
  }
  spec.group = GroupId(desc.group);
  spec.root = desc.root;
  if (IsPointToPoint(spec.kind)) spec.peer_offset = desc.peer_offset;
  ASSIGN_OR_RETURN(spec.lossy, ToFlag("collective.lossy", desc.lossy));
  if (HasInput(spec.kind)) {
    ASSIGN_OR_RETURN(spec.input, ToSide(desc.input, AccessMode::kRead));
  }
  if (HasOutput(spec.kind)) {
    ASSIGN_OR_RETURN(spec.output, ToSide(desc.output, AccessMode::kWrite));
  }
  spec.counts.assign(desc.counts, desc.counts + desc.num_counts);
  return spec;
}

}  // namespace

absl::StatusOr<bool> ToFlag(absl::string_view field, uint32_t value) {
  if (value > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " is ", value, ", not 0 or 1"));
  }
  return value == 1;
}

std::vector<OpId> ToOpIds(const commsched_op_id_t* ids, uint32_t count) {
  std::vector<OpId> result;
  result.reserve(count);
  for (uint32_t i = 0; i < count; ++i) result.push_back(OpId(ids[i]));
  return result;
}

absl::StatusOr<Buffer> ToBuffer(const commsched_buffer_desc_t& desc) {
  RETURN_IF_ERROR(RequireNonNull({{"buffer.name", desc.name}}));
  Buffer buffer;
  buffer.name = desc.name;
  ASSIGN_OR_RETURN(buffer.dtype, ToEnum("buffer.dtype", desc.dtype, DType::kF32,
                                        DType::kBool));
  ASSIGN_OR_RETURN(buffer.ownership,
                   ToEnum("buffer.ownership", desc.ownership, Ownership::kOwned,
                          Ownership::kLateBound));
  buffer.count = desc.count;
  buffer.place_group = desc.place_group;
  return buffer;
}

absl::StatusOr<Op> ToComputeOp(const commsched_compute_desc_t& desc) {
  RETURN_IF_ERROR(RequireNonNull({{"compute.name", desc.name}}));
  RETURN_IF_ERROR(RequireArrayField("compute.accesses", desc.accesses,
                                    "compute.num_accesses", desc.num_accesses));
  RETURN_IF_ERROR(RequireArrayField("compute.after", desc.after,
                                    "compute.num_after", desc.num_after));
  Op op;
  op.name = desc.name;
  op.kind = OpKind::kCompute;
  op.priority = desc.priority;
  op.accesses.reserve(desc.num_accesses);
  for (uint32_t i = 0; i < desc.num_accesses; ++i) {
    ASSIGN_OR_RETURN(Access access, ToAccess(desc.accesses[i]));
    op.accesses.push_back(access);
  }
  op.after = ToOpIds(desc.after, desc.num_after);
  op.compute = {.lane = desc.lane,
                .cost_ns = desc.cost_ns,
                .flops = desc.flops,
                .bytes = desc.bytes};
  return op;
}

absl::StatusOr<Op> ToCollectiveOp(const commsched_collective_desc_t& desc) {
  RETURN_IF_ERROR(RequireNonNull({{"collective.name", desc.name}}));
  RETURN_IF_ERROR(RequireArrayField("collective.counts", desc.counts,
                                    "collective.num_counts", desc.num_counts));
  RETURN_IF_ERROR(RequireArrayField("collective.after", desc.after,
                                    "collective.num_after", desc.num_after));
  Op op;
  op.name = desc.name;
  op.kind = OpKind::kCollective;
  op.priority = desc.priority;
  op.after = ToOpIds(desc.after, desc.num_after);
  ASSIGN_OR_RETURN(op.collective, ToCollectiveSpec(desc));
  return op;
}

}  // namespace commsched
