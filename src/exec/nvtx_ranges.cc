#include "exec/nvtx_ranges.h"

#ifdef COMMSCHED_HAS_NVTX
#include <nvtx3/nvToolsExt.h>
#endif

namespace commsched {

#ifdef COMMSCHED_HAS_NVTX
namespace {

// Of the process; null if no tool is attached.
nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = nvtxDomainCreateA("commsched");
  return domain;
}

void* Registered(const std::string& name) {
  return nvtxDomainRegisterStringA(Domain(), name.c_str());
}

uint64_t Begin(void* name) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = static_cast<nvtxStringHandle_t>(name);
  return nvtxDomainRangeStartEx(Domain(), &attributes);
}

void End(uint64_t range) { nvtxDomainRangeEnd(Domain(), range); }

}  // namespace

std::unique_ptr<NvtxRanges> NvtxRanges::Create(const Program& program) {
  if (Domain() == nullptr) return nullptr;
  std::unique_ptr<NvtxRanges> ranges(new NvtxRanges);
  ranges->step_name_ = Registered("step");
  ranges->graph_name_ = Registered("step (graph)");
  for (uint32_t node = 0; node < program.nodes.size(); ++node) {
    ranges->op_names_.push_back(Registered(program.OpName(node)));
  }
  for (uint32_t launch = 0; launch < program.launches.size(); ++launch) {
    ranges->launch_names_.push_back(Registered(program.LaunchName(launch)));
  }
  ranges->ops_.resize(program.nodes.size());
  return ranges;
}

#else
namespace {

uint64_t Begin(void*) { return 0; }
void End(uint64_t) {}

}  // namespace

std::unique_ptr<NvtxRanges> NvtxRanges::Create(const Program&) {
  return nullptr;
}
#endif

void NvtxRanges::StepBegun(bool is_graph) {
  step_ = Begin(is_graph ? graph_name_ : step_name_);
}

void NvtxRanges::StepEnded() { End(step_); }

void NvtxRanges::OpBegun(uint32_t node) { ops_[node] = Begin(op_names_[node]); }

void NvtxRanges::OpEnded(uint32_t node) { End(ops_[node]); }

void NvtxRanges::LaunchBegun(uint32_t launch) {
  launch_ = Begin(launch_names_[launch]);
}

void NvtxRanges::LaunchEnded() { End(launch_); }

}  // namespace commsched
