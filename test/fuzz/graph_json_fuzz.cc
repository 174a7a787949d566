#include "test/fuzz/graph_json_fuzz.h"

#include <cstdlib>

#include "absl/strings/string_view.h"
#include "graph/dependencies.h"
#include "graph/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace commsched;  // NOLINT(google-build-using-namespace)
  const auto graph = GraphFromJson(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!graph.ok()) return 0;
  const auto again = GraphFromJson(GraphToJson(*graph));
  if (!again.ok() || !(*again == *graph)) std::abort();
  const auto dependencies = InferDependencies(*graph);
  if (dependencies.ok()) {
    if (dependencies->order.size() != graph->ops().size()) std::abort();
  } else if (dependencies.status().code() !=
             absl::StatusCode::kInvalidArgument) {
    std::abort();
  }
  return 0;
}
