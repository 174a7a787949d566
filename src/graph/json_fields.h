// Reading the fields of one JSON object, strictly: every error says which field
// of which object, and a field that nobody asked for is one.
#ifndef COMMSCHED_SRC_GRAPH_JSON_FIELDS_H_
#define COMMSCHED_SRC_GRAPH_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace commsched {

// Parses `text` without exceptions into memory proportional to its length.
// Refuses nesting beyond what a graph has, and an object with a key twice.
absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text);

// The fields of one object. Get functions return the default if the field is
// not there; Need functions fail. Thread-compatible.
class JsonFields {
 public:
  // `where` names the object in messages: "ops[3]". `value` must outlive this.
  static absl::StatusOr<JsonFields> Of(const nlohmann::json& value,
                                       std::string where);

  // Null if the field is not there.
  const nlohmann::json* Find(const char* name);
  absl::StatusOr<const nlohmann::json*> Need(const char* name);

  absl::StatusOr<std::string> NeedString(const char* name);
  absl::StatusOr<std::string> GetString(const char* name,
                                        absl::string_view otherwise);
  absl::StatusOr<uint64_t> NeedUnsigned(const char* name, uint64_t max);
  absl::StatusOr<uint64_t> GetUnsigned(const char* name, uint64_t max,
                                       uint64_t otherwise);
  absl::StatusOr<int64_t> GetInt(const char* name, int64_t min, int64_t max,
                                 int64_t otherwise);
  absl::StatusOr<double> GetDouble(const char* name, double otherwise);
  absl::StatusOr<bool> GetBool(const char* name, bool otherwise);
  // An empty array if the field is not there. The elements stay unchecked.
  absl::StatusOr<const nlohmann::json*> GetArray(const char* name);

  // Fails if the object has a field that was never asked for.
  absl::Status Finish() const;

  const std::string& where() const { return where_; }
  // "ops[3].lane" and the like, for the caller's own errors.
  std::string PathOf(absl::string_view name) const;
  absl::Status Invalid(absl::string_view name, absl::string_view problem) const;

 private:
  JsonFields(const nlohmann::json& value, std::string where)
      : value_(&value), where_(std::move(where)) {}

  const nlohmann::json* value_;
  std::string where_;
  std::vector<const char*> asked_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_GRAPH_JSON_FIELDS_H_
