#include "absl/strings/string_view.h"
#include "graph/dependencies.h"
#include "graph/json.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {

size_t FuzzGraphJson(const uint8_t* data, size_t size) {
  const auto graph = GraphFromJson(
      absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!graph.ok()) {
    Require(!graph.status().message().empty());
    return 0;
  }
  const auto again = GraphFromJson(GraphToJson(*graph));
  Require(again.ok() && *again == *graph);
  const auto dependencies = InferDependencies(*graph);
  if (dependencies.ok()) {
    Require(dependencies->order.size() == graph->ops().size());
  } else {
    Require(dependencies.status().code() == absl::StatusCode::kInvalidArgument);
  }
  return 1;
}

}  // namespace commsched::test
