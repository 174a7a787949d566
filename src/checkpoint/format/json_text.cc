#include "checkpoint/format/json_text.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace commsched::engine {
namespace {

using nlohmann::json;

// An index nests four deep: files, file, or tensors, tensor, shape.
constexpr size_t kMaxDepth = 8;

// Builds the value as the parser goes, and stops it at the first thing that is
// refused anyway.
class JsonBuilder final : public nlohmann::json_sax<json> {
 public:
  explicit JsonBuilder(const std::string& what) : what_(what) {}

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
    if (!is_new) return Fail("'" + name + "' appears twice");
    field_ = &field->second;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const json::exception&) override {
    return Fail("not JSON at byte " + std::to_string(position));
  }

  Status Take(json* out) {
    if (status_.ok()) *out = std::move(root_);
    return status_;
  }

 private:
  bool Fail(const std::string& problem) {
    status_ = InvalidArgument(what_ + ": " + problem);
    return false;
  }

  json* Place(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      auto& array = open_.back()->get_ref<json::array_t&>();
      array.push_back(std::move(value));
      return &array.back();
    }
    *field_ = std::move(value);
    return field_;
  }

  bool Add(json value) {
    Place(std::move(value));
    return true;
  }

  bool Open(json value) {
    if (open_.size() == kMaxDepth) {
      return Fail("nested deeper than " + std::to_string(kMaxDepth));
    }
    open_.push_back(Place(std::move(value)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const std::string& what_;
  Status status_;
  json root_;
  std::vector<json*> open_;  // From the root in.
  json* field_ = nullptr;    // Of the innermost object.
};

Status Wrong(const std::string& what, const char* field,
             const std::string& problem) {
  return InvalidArgument(what + ": '" + field + "' " + problem);
}

}  // namespace

Status ParseJson(const std::string& what, const std::string& text, json* out) {
  JsonBuilder builder(what);
  // What it returns is in the builder's status, too.
  json::sax_parse(text, &builder);
  return builder.Take(out);
}

bool IsUtf8(const std::string& text) {
  try {
    json(text).dump();
  } catch (const json::exception&) {
    return false;
  }
  return true;
}

Status CheckFields(const std::string& what, const json& value,
                   const std::vector<const char*>& fields) {
  if (!value.is_object()) return InvalidArgument(what + " is not an object");
  for (const char* field : fields) {
    if (!value.contains(field)) return Wrong(what, field, "is missing");
  }
  for (const auto& [key, unused] : value.items()) {
    const std::string& name = key;
    if (std::none_of(fields.begin(), fields.end(),
                     [&](const char* field) { return name == field; })) {
      return Wrong(what, name.c_str(), "is not known");
    }
  }
  return Status();
}

Status GetString(const std::string& what, const json& object, const char* field,
                 std::string* out) {
  const json& value = object.at(field);
  if (!value.is_string()) return Wrong(what, field, "is not a text");
  *out = value.get_ref<const std::string&>();
  return Status();
}

Status GetUnsigned(const std::string& what, const json& object,
                   const char* field, uint64_t most, uint64_t* out) {
  const json& value = object.at(field);
  if (!value.is_number_unsigned()) {
    return Wrong(what, field, "is not an integer of 0 or more");
  }
  const uint64_t number = value.get<uint64_t>();
  if (number > most) {
    return Wrong(what, field,
                 "is " + std::to_string(number) + "; it must be at most " +
                     std::to_string(most));
  }
  *out = number;
  return Status();
}

Status GetArray(const std::string& what, const json& object, const char* field,
                const json** out) {
  const json& value = object.at(field);
  if (!value.is_array()) return Wrong(what, field, "is not a list");
  *out = &value;
  return Status();
}

Status GetCounts(const std::string& what, const json& object, const char* field,
                 std::vector<uint64_t>* out) {
  const json* list = nullptr;
  ENGINE_RETURN_IF_ERROR(GetArray(what, object, field, &list));
  std::vector<uint64_t> counts;
  for (const json& value : *list) {
    if (!value.is_number_unsigned()) {
      return Wrong(what, field, "is not a list of integers of 0 or more");
    }
    counts.push_back(value.get<uint64_t>());
  }
  *out = std::move(counts);
  return Status();
}

}  // namespace commsched::engine
