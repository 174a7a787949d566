#include "trace/kineto_names.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace commsched {
namespace {

// What makes a name something other than a computation at its start, in any
// version of the analysis from 0.5 to 0.6.
constexpr absl::string_view kTakenPrefixes[] = {
    "nccl", "hccl", "hip", "cuda", "runFunction", "Stream Wait Event"};

// "reduce_scatter" as "ReduceScatter".
std::string CamelCase(absl::string_view words) {
  std::string camel;
  bool upper = true;
  for (const char c : words) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      camel += upper ? absl::ascii_toupper(static_cast<unsigned char>(c)) : c;
      upper = false;
    } else {
      upper = true;
    }
  }
  return camel;
}

// The kernel that NCCL would run for a collective of c10d's name.
std::string KernelFamily(absl::string_view collective) {
  constexpr std::pair<absl::string_view, absl::string_view> kFamilies[] = {
      {"allreduce", "AllReduce"}, {"reduce_scatter", "ReduceScatter"},
      {"allgather", "AllGather"}, {"all_to_all", "SendRecv"},
      {"alltoall", "SendRecv"},   {"all_to_allv", "SendRecv"},
      {"barrier", "AllReduce"},   {"send", "SendRecv"},
      {"recv", "SendRecv"},
  };
  absl::ConsumePrefix(&collective, "_");
  absl::ConsumeSuffix(&collective, "_base");
  for (const auto& [name, family] : kFamilies) {
    if (collective == name) return std::string(family);
  }
  return CamelCase(collective);
}

// One word without brackets: a viewer shortens a kernel's name to the last
// word outside them.
std::string OneWord(absl::string_view text) {
  return absl::StrReplaceAll(text, {{" ", "_"},
                                    {"(", "_"},
                                    {")", "_"},
                                    {"<", "_"},
                                    {">", "_"},
                                    {"ProfilerStep", "profilerStep"}});
}

}  // namespace

std::string ComputeKernelName(absl::string_view name) {
  std::string safe =
      absl::StrReplaceAll(name, {{"Sync", "sync"},
                                 {"Memcpy", "memcpy"},
                                 {"Memset", "memset"},
                                 {"dma", "DMA"},
                                 {"ncclKernel", "NcclKernel"},
                                 {"ProfilerStep", "profilerStep"}});
  for (const absl::string_view prefix : kTakenPrefixes) {
    if (absl::StartsWith(safe, prefix)) return absl::StrCat("op:", safe);
  }
  return safe;
}

std::string LaunchKernelName(const RecordNames::LaunchName& launch) {
  std::string name =
      absl::StrCat("ncclDevKernel_", KernelFamily(launch.collective));
  const std::string reduction = CamelCase(launch.reduction);
  if (!reduction.empty()) absl::StrAppend(&name, "_", reduction);
  if (!launch.dtype.empty()) absl::StrAppend(&name, "_", launch.dtype);
  // The kind that leads the launch's own name has been said.
  absl::string_view own = launch.name;
  const size_t space = own.find(' ');
  if (space != absl::string_view::npos) own.remove_prefix(space + 1);
  if (!own.empty()) absl::StrAppend(&name, "_", OneWord(own));
  return absl::StrCat(name, "(commsched)");
}

}  // namespace commsched
