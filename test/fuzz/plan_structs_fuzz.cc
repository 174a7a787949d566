#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "commsched/commsched.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {
namespace {

constexpr size_t kMaxBuffers = 8;
constexpr size_t kMaxOps = 12;

// Returns whether the call was taken; whatever is refused is refused with a
// word, and is no fault of the library.
bool Taken(commsched_status_t status) {
  if (status == COMMSCHED_OK) return true;
  Require(status != COMMSCHED_INTERNAL && status != COMMSCHED_UNKNOWN);
  Require(*commsched_last_error() != '\0');
  return false;
}

uint32_t TakeSmall(Source* source) {
  return static_cast<uint32_t>(source->TakeNumber());
}

// Mostly what the caller was compiled with.
template <typename T>
void TakeStructSize(Source* source, T* desc) {
  if (source->Take<uint8_t>() < 0xf0) return;
  desc->struct_size = source->Take<uint16_t>() % (sizeof(T) + 1);
}

// The graph under construction, and what its descriptions point to.
struct Builder {
  explicit Builder(Source* source) : source(source) {
    Require(commsched_graph_create(&graph) == COMMSCHED_OK);
  }
  ~Builder() { commsched_graph_destroy(graph); }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  const char* TakeName(const char* prefix) {
    const uint8_t head = source->Take<uint8_t>();
    if (head == 255) return nullptr;
    names.push_back(head == 254
                        ? source->TakeText()
                        : absl::StrCat(prefix, head < 240 ? names.size() : 0));
    return names.back().c_str();
  }

  commsched_access_t TakeAccess() {
    commsched_access_t access = {};
    access.buffer = source->Take<uint8_t>() % (kMaxBuffers + 1);
    const uint8_t kinds = source->Take<uint8_t>();
    access.mode = kinds % 5;  // 1, 2, 3 are
    access.region = kinds / 5 % 5;
    access.group = kinds / 25 % 4;
    if (access.region == COMMSCHED_RANGE || access.region == COMMSCHED_TILE) {
      access.offset = source->TakeNumber();
      access.count = source->TakeNumber();
      access.rows = source->TakeNumber();
      access.stride = source->TakeNumber();
    }
    return access;
  }

  uint32_t TakeAfter(commsched_op_id_t* after) {
    const uint32_t n = source->Take<uint8_t>() % 8;
    if (n > 2) return 0;
    for (uint32_t i = 0; i < n; ++i) {
      after[i] = source->Take<uint8_t>() % (kMaxOps + 1);
    }
    return n;
  }

  bool AddCompute() {
    commsched_compute_desc_t desc = commsched_compute_desc_init();
    std::array<commsched_access_t, 4> accesses;
    std::array<commsched_op_id_t, 2> after;
    desc.name = TakeName("op");
    desc.num_accesses = source->Take<uint8_t>() % (accesses.size() + 1);
    for (uint32_t i = 0; i < desc.num_accesses; ++i) accesses[i] = TakeAccess();
    if (desc.num_accesses != 0) desc.accesses = accesses.data();
    desc.num_after = TakeAfter(after.data());
    if (desc.num_after != 0) desc.after = after.data();
    const uint8_t flags = source->Take<uint8_t>();
    desc.lane = flags & 4 ? TakeSmall(source) : flags >> 7;
    desc.priority = flags & 8 ? source->Take<int32_t>() : 0;
    desc.cost_ns = static_cast<int64_t>(source->TakeNumber());
    if (flags & 16) desc.flops = source->Take<double>();
    if (flags & 32) desc.bytes = source->Take<double>();
    TakeStructSize(source, &desc);
    return Taken(commsched_graph_add_compute(graph, &desc, &op));
  }

  bool AddCollective() {
    commsched_collective_desc_t desc = commsched_collective_desc_init();
    std::array<uint64_t, 16> counts;
    std::array<commsched_op_id_t, 2> after;
    desc.name = TakeName("op");
    const uint8_t kinds = source->Take<uint8_t>();
    desc.kind = kinds % 10;
    desc.reduce_op = kinds / 10 % 6;
    desc.group = kinds / 60;
    const uint8_t flags = source->Take<uint8_t>();
    desc.lossy = flags & 1;
    desc.root = flags & 2 ? source->Take<int32_t>() : 0;
    desc.peer_offset = flags & 4 ? source->Take<int32_t>() : 1;
    desc.priority = flags & 8 ? source->Take<int32_t>() : 0;
    desc.input = TakeAccess();
    desc.output = flags & 16 ? desc.input : TakeAccess();
    if (flags & 32) {
      desc.num_counts = source->Take<uint8_t>() % (counts.size() + 1);
      for (uint32_t i = 0; i < desc.num_counts; ++i) {
        counts[i] = source->TakeNumber();
      }
      desc.counts = counts.data();
    }
    desc.num_after = TakeAfter(after.data());
    if (desc.num_after != 0) desc.after = after.data();
    TakeStructSize(source, &desc);
    return Taken(commsched_graph_add_collective(graph, &desc, &op));
  }

  bool AddEdge() {
    const uint8_t ends = source->Take<uint8_t>();
    return Taken(commsched_graph_add_edge(graph, ends % 16, ends / 16,
                                          TakeSmall(source)));
  }

  bool AddBuffer() {
    commsched_buffer_desc_t desc = commsched_buffer_desc_init();
    desc.name = TakeName("buffer");
    const uint8_t kinds = source->Take<uint8_t>();
    desc.dtype = kinds % 9;
    desc.ownership = kinds / 9 % 4;
    desc.place_group = kinds / 36 % 3;
    desc.count = source->TakeNumber();
    TakeStructSize(source, &desc);
    commsched_buffer_id_t buffer;
    return Taken(commsched_graph_add_buffer(graph, &desc, &buffer));
  }

  size_t Build() {
    size_t accepted = 0;
    commsched_group_id_t group;
    const uint8_t shape = source->Take<uint8_t>();
    for (int i = 0; i < shape % 4; ++i) {
      accepted += Taken(commsched_graph_add_group(
          graph, TakeName("axis"), static_cast<int32_t>(TakeSmall(source)),
          &group));
    }
    for (size_t i = 0; i < kMaxBuffers && i < shape / 4u; ++i) {
      accepted += AddBuffer();
    }
    for (size_t i = 0; i < kMaxOps && source->size() > 0; ++i) {
      const uint8_t kind = source->Take<uint8_t>() % 8;
      accepted += kind < 4   ? AddCompute()
                  : kind < 7 ? AddCollective()
                             : AddEdge();
    }
    return accepted;
  }

  Source* const source;
  commsched_graph_t* graph = nullptr;
  std::deque<std::string> names;
  commsched_op_id_t op = 0;
};

commsched_plan_options_t TakeOptions(Source* source) {
  commsched_plan_options_t options = commsched_plan_options_init();
  const uint8_t flags = source->Take<uint8_t>();
  options.schedule = flags % 4 == 3 ? TakeSmall(source) : flags % 4 == 2;
  options.deterministic = flags >> 2 & 1;
  options.priority = flags >> 4 & 3;
  if (flags & 0x40) options.codec = "";
  options.max_launches_in_flight = TakeSmall(source);
  options.num_comm_lanes = TakeSmall(source) % 64;
  options.max_bytes_in_flight = source->TakeNumber();
  options.coalesce_bytes = source->TakeNumber();
  options.arena_bytes = source->TakeNumber();
  options.partition_bytes = source->TakeNumber();
  TakeStructSize(source, &options);
  return options;
}

commsched_cost_profile_t TakeProfile(Source* source,
                                     std::vector<int64_t>* op_costs) {
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  const uint8_t flags = source->Take<uint8_t>();
  for (double* rate : {&profile.link_bytes_per_s, &profile.copy_bytes_per_s,
                       &profile.flops_per_s, &profile.memory_bytes_per_s}) {
    if (flags & 1) *rate = source->Take<double>();
  }
  if (flags & 2) {
    profile.link_latency_ns = static_cast<int64_t>(source->TakeNumber());
    profile.launch_ns = static_cast<int64_t>(source->TakeNumber());
  }
  if (flags & 4) {
    profile.num_ranks_sharing = TakeSmall(source);
    profile.num_cores = TakeSmall(source);
  }
  if (flags & 8) {
    for (int i = flags >> 4; i >= 0; --i) {
      op_costs->push_back(static_cast<int64_t>(source->TakeNumber()));
    }
    profile.op_cost_ns = op_costs->data();
    profile.num_ops = op_costs->size();
  }
  TakeStructSize(source, &profile);
  return profile;
}

// What a caller may do with a plan.
void Use(const commsched_plan_t* plan,
         const commsched_cost_profile_t* profile) {
  commsched_prediction_t prediction = commsched_prediction_init();
  if (Taken(commsched_plan_predict(plan, profile, &prediction))) {
    Require(prediction.exposed_cap_ns + prediction.exposed_dependency_ns +
                prediction.exposed_order_ns + prediction.exposed_link_ns +
                prediction.exposed_straggler_ns ==
            prediction.exposed_ns);
  }
  for (commsched_format_t format = 0; format < 4; ++format) {
    char* text = nullptr;
    if (Taken(commsched_plan_explain(plan, format, &text))) {
      commsched_string_free(text);
    }
    if (Taken(commsched_plan_describe(&plan, 1, format, &text))) {
      commsched_string_free(text);
    }
  }
}

commsched_plan_info_t InfoOf(const commsched_plan_t* plan) {
  commsched_plan_info_t info = commsched_plan_info_init();
  Require(commsched_plan_get_info(plan, &info) == COMMSCHED_OK);
  return info;
}

}  // namespace

size_t FuzzPlanStructs(const uint8_t* data, size_t size) {
  Source source(data, size);
  const commsched_plan_options_t options = TakeOptions(&source);
  std::vector<int64_t> op_costs;
  const commsched_cost_profile_t profile = TakeProfile(&source, &op_costs);
  Builder builder(&source);
  const size_t accepted = builder.Build();
  commsched_plan_t* plan = nullptr;
  if (!Taken(commsched_plan_build(builder.graph, &options, &profile, &plan))) {
    return accepted;
  }
  commsched_plan_t* again = nullptr;
  Require(commsched_plan_build(builder.graph, &options, &profile, &again) ==
          COMMSCHED_OK);
  const commsched_plan_info_t info = InfoOf(plan);
  const commsched_plan_info_t same = InfoOf(again);
  Require(std::memcmp(&info, &same, sizeof(info)) == 0);
  Require(options.arena_bytes == 0 || info.arena_bytes <= options.arena_bytes ||
          options.struct_size < sizeof(options));
  Use(plan, &profile);
  commsched_plan_destroy(again);
  commsched_plan_destroy(plan);
  return accepted + 1;
}

}  // namespace commsched::test
