#include "graph/json_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "graph/graph.h"

namespace commsched {
namespace {

using nlohmann::json;

// A graph nests five deep: ops, op, accesses or counts, access, value.
constexpr size_t kMaxDepth = 16;
// No list of a graph may be longer: ops, and n x n counts of 4096 ranks.
constexpr size_t kMaxElements = Graph::kMaxOps;

// Builds the value as the parser goes, and stops it at the first thing that no
// graph contains: memory is never taken for text that will be refused anyway.
class Builder final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override {
    return Add(value);
  }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool binary(json::binary_t&) override { return Fail("binary data"); }
  bool start_object(size_t) override { return Open(json::object()); }
  bool end_object() override { return Close(); }
  bool start_array(size_t) override { return Open(json::array()); }
  bool end_array() override { return Close(); }

  bool key(std::string& name) override {
    const auto [field, is_new] =
        open_.back()->get_ref<json::object_t&>().emplace(name, nullptr);
    if (!is_new) return Fail(absl::StrCat("field '", name, "' appears twice"));
    field_ = &field->second;
    if (open_.size() == 1) section_ = name;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const json::exception& error) override {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("not JSON at byte ", position, ": ", error.what()));
    return false;
  }

  absl::StatusOr<json> Take() && {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  bool Fail(absl::string_view problem) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("JSON, near '", section_, "': ", problem));
    return false;
  }

  // Puts the value where the parser stands; null, with the error noted, if it
  // has no place.
  json* Place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (!open_.back()->is_array()) {
      *field_ = std::move(value);
      return field_;
    }
    auto& array = open_.back()->get_ref<json::array_t&>();
    if (array.size() == kMaxElements) {
      status_ = absl::ResourceExhaustedError(
          absl::StrCat("JSON: a list in '", section_, "' has more than ",
                       kMaxElements, " elements"));
      return nullptr;
    }
    array.push_back(std::move(value));
    return &array.back();
  }

  bool Add(json value) { return Place(std::move(value)) != nullptr; }

  bool Open(json value) {
    if (open_.size() == kMaxDepth) {
      return Fail(absl::StrCat("nested more than ", kMaxDepth, " deep"));
    }
    json* const place = Place(std::move(value));
    if (place == nullptr) return false;
    open_.push_back(place);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  json root_;
  // Outermost first. Stays valid: a list grows only while it is the innermost.
  std::vector<json*> open_;
  json* field_ = nullptr;  // the value of the key that was read last
  std::string section_;    // the outermost key, for messages
  absl::Status status_;
};

}  // namespace

absl::StatusOr<json> ParseJson(absl::string_view text) {
  Builder builder;
  json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).Take();
}

absl::StatusOr<JsonFields> JsonFields::Of(const json& value,
                                          std::string where) {
  if (value.is_object()) return JsonFields(value, std::move(where));
  return absl::InvalidArgumentError(
      absl::StrCat(where, " is ", value.type_name(), ", not an object"));
}

std::string JsonFields::PathOf(absl::string_view name) const {
  return where_.empty() ? std::string(name) : absl::StrCat(where_, ".", name);
}

absl::Status JsonFields::Invalid(absl::string_view name,
                                 absl::string_view problem) const {
  return absl::InvalidArgumentError(absl::StrCat(PathOf(name), " ", problem));
}

const json* JsonFields::Find(const char* name) {
  asked_.push_back(name);
  const auto found = value_->find(name);
  return found == value_->end() ? nullptr : &*found;
}

absl::StatusOr<const json*> JsonFields::Need(const char* name) {
  const json* const field = Find(name);
  if (field == nullptr) return Invalid(name, "is missing");
  return field;
}

absl::StatusOr<std::string> JsonFields::NeedString(const char* name) {
  ASSIGN_OR_RETURN(const json* const field, Need(name));
  if (!field->is_string()) return Invalid(name, "is not a string");
  return field->get_ref<const std::string&>();
}

absl::StatusOr<std::string> JsonFields::GetString(const char* name,
                                                  absl::string_view otherwise) {
  if (!value_->contains(name)) {
    asked_.push_back(name);
    return std::string(otherwise);
  }
  return NeedString(name);
}

absl::StatusOr<uint64_t> JsonFields::NeedUnsigned(const char* name,
                                                  uint64_t max) {
  ASSIGN_OR_RETURN(const json* const field, Need(name));
  if (!field->is_number_unsigned() || field->get<uint64_t>() > max) {
    return Invalid(name, absl::StrCat("is not an integer in 0..", max));
  }
  return field->get<uint64_t>();
}

absl::StatusOr<uint64_t> JsonFields::GetUnsigned(const char* name, uint64_t max,
                                                 uint64_t otherwise) {
  if (!value_->contains(name)) {
    asked_.push_back(name);
    return otherwise;
  }
  return NeedUnsigned(name, max);
}

absl::StatusOr<int64_t> JsonFields::GetInt(const char* name, int64_t min,
                                           int64_t max, int64_t otherwise) {
  const json* const field = Find(name);
  if (field == nullptr) return otherwise;
  // A number above 2^63-1 is unsigned and would turn negative.
  const bool fits = field->is_number_integer() &&
                    !(field->is_number_unsigned() &&
                      field->get<uint64_t>() > static_cast<uint64_t>(max)) &&
                    field->get<int64_t>() >= min &&
                    field->get<int64_t>() <= max;
  if (fits) return field->get<int64_t>();
  return Invalid(name, absl::StrCat("is not an integer in ", min, "..", max));
}

absl::StatusOr<double> JsonFields::GetDouble(const char* name,
                                             double otherwise) {
  const json* const field = Find(name);
  if (field == nullptr) return otherwise;
  if (!field->is_number()) return Invalid(name, "is not a number");
  return field->get<double>();
}

absl::StatusOr<bool> JsonFields::GetBool(const char* name, bool otherwise) {
  const json* const field = Find(name);
  if (field == nullptr) return otherwise;
  if (!field->is_boolean()) return Invalid(name, "is not true or false");
  return field->get<bool>();
}

absl::StatusOr<const json*> JsonFields::GetArray(const char* name) {
  static const json& none = *new json(json::array());
  const json* const field = Find(name);
  if (field == nullptr) return &none;
  if (!field->is_array()) return Invalid(name, "is not a list");
  return field;
}

absl::Status JsonFields::Finish() const {
  for (const auto& [name, value] : value_->get_ref<const json::object_t&>()) {
    if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) {
      return Invalid(name, "is not a known field here");
    }
  }
  return absl::OkStatus();
}

}  // namespace commsched
