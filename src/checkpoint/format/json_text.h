// JSON from outside, read strictly: every error says which field of what.
#ifndef COMMSCHED_SRC_CHECKPOINT_FORMAT_JSON_TEXT_H_
#define COMMSCHED_SRC_CHECKPOINT_FORMAT_JSON_TEXT_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/status.h"

namespace commsched::engine {

// Parses `text`, which `what` names in messages, without exceptions and into
// memory proportional to its length. Refuses an object with a key twice and
// nesting deeper than anything that the engine reads.
Status ParseJson(const std::string& what, const std::string& text,
                 nlohmann::json* out);

// Whether JSON can carry `text`.
bool IsUtf8(const std::string& text);

// `value` must be an object with exactly these fields.
Status CheckFields(const std::string& what, const nlohmann::json& value,
                   const std::vector<const char*>& fields);

// Fields of an object that has passed CheckFields.
Status GetString(const std::string& what, const nlohmann::json& object,
                 const char* field, std::string* out);
Status GetUnsigned(const std::string& what, const nlohmann::json& object,
                   const char* field, uint64_t most, uint64_t* out);
Status GetArray(const std::string& what, const nlohmann::json& object,
                const char* field, const nlohmann::json** out);
// A list of integers that are 0 or more.
Status GetCounts(const std::string& what, const nlohmann::json& object,
                 const char* field, std::vector<uint64_t>* out);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_FORMAT_JSON_TEXT_H_
