#include "test/nvtx/nvtx_tool.h"

#include <nvtx3/nvToolsExt.h>

#include <deque>
#include <mutex>
#include <utility>

namespace commsched::test {
namespace {

struct Tool {
  std::mutex mu;
  // Handles are addresses of these.
  std::deque<std::string> domains, names;
  std::vector<ToolRange> ranges;
  uint64_t first = 1;  // The id of ranges[0].
  uint64_t num_marks = 0;
  uint64_t num_names = 0;
};

Tool& TheTool() {
  static auto* const tool = new Tool;
  return *tool;
}

nvtxDomainHandle_t NVTX_API CreateDomain(const char* name) {
  Tool& tool = TheTool();
  const std::lock_guard<std::mutex> lock(tool.mu);
  return reinterpret_cast<nvtxDomainHandle_t>(&tool.domains.emplace_back(name));
}

nvtxStringHandle_t NVTX_API RegisterString(nvtxDomainHandle_t,
                                           const char* string) {
  Tool& tool = TheTool();
  const std::lock_guard<std::mutex> lock(tool.mu);
  ++tool.num_names;
  return reinterpret_cast<nvtxStringHandle_t>(&tool.names.emplace_back(string));
}

nvtxRangeId_t NVTX_API StartRange(nvtxDomainHandle_t domain,
                                  const nvtxEventAttributes_t* attributes) {
  Tool& tool = TheTool();
  const std::lock_guard<std::mutex> lock(tool.mu);
  ToolRange range;
  range.domain = *reinterpret_cast<const std::string*>(domain);
  if (attributes->messageType == NVTX_MESSAGE_TYPE_REGISTERED) {
    range.name =
        *reinterpret_cast<const std::string*>(attributes->message.registered);
  }
  range.begin = ++tool.num_marks;
  tool.ranges.push_back(std::move(range));
  return tool.first + tool.ranges.size() - 1;
}

void NVTX_API EndRange(nvtxDomainHandle_t, nvtxRangeId_t id) {
  Tool& tool = TheTool();
  const std::lock_guard<std::mutex> lock(tool.mu);
  tool.ranges.at(id - tool.first).end = ++tool.num_marks;
}

template <typename Function>
void Attach(NvtxFunctionTable table, int id, Function function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

std::vector<ToolRange> TakeToolRanges() {
  Tool& tool = TheTool();
  const std::lock_guard<std::mutex> lock(tool.mu);
  tool.first += tool.ranges.size();
  return std::exchange(tool.ranges, {});
}

uint64_t TakeToolNames() {
  Tool& tool = TheTool();
  const std::lock_guard<std::mutex> lock(tool.mu);
  return std::exchange(tool.num_names, 0);
}

}  // namespace commsched::test

// What NVTX looks for in the library that NVTX_INJECTION64_PATH names.
extern "C" int NVTX_API
InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  namespace test = commsched::test;
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(
      get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(
                                  NVTX_CB_MODULE_CORE2, &table, &size) == 0) {
    return 0;
  }
  test::Attach(table, NVTX_CBID_CORE2_DomainCreateA, &test::CreateDomain);
  test::Attach(table, NVTX_CBID_CORE2_DomainRegisterStringA,
               &test::RegisterString);
  test::Attach(table, NVTX_CBID_CORE2_DomainRangeStartEx, &test::StartRange);
  test::Attach(table, NVTX_CBID_CORE2_DomainRangeEnd, &test::EndRange);
  return 1;
}
