#include "spec.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

namespace commsched::fault {
namespace {

// Where `separator` ends the item that begins at `begin`.
size_t EndOf(const std::string& text, size_t begin, char separator) {
  return std::min(text.find(separator, begin), text.size());
}

// "key=value"; without a '=' all of it is the key.
std::pair<std::string, std::string> Split(const std::string& item) {
  const size_t equals = item.find('=');
  if (equals == std::string::npos) return {item, ""};
  return {item.substr(0, equals), item.substr(equals + 1)};
}

bool ReadNumber(const std::string& key, const std::string& value, uint64_t most,
                uint64_t* out, std::string* error) {
  char* end = nullptr;
  const bool digits = !value.empty() && value.size() <= 18 && value[0] >= '0' &&
                      value[0] <= '9';
  const uint64_t number = digits ? strtoull(value.c_str(), &end, 10) : 0;
  if (!digits || *end != '\0' || number > most) {
    *error = key;
    *error += " is '";
    *error += value;
    *error += "', not an integer in 0..";
    *error += std::to_string(most);
    return false;
  }
  *out = number;
  return true;
}

// Whether `key` comes for the first time.
bool AddKey(const std::string& key, std::set<std::string>* keys,
            std::string* error) {
  if (keys->insert(key).second) return true;
  *error = "configuration: ";
  *error += key;
  *error += " is given twice; give it once";
  return false;
}

bool ReadKind(const std::string& name, Fault::Kind* kind) {
  constexpr std::pair<const char*, Fault::Kind> kKinds[] = {
      {"delay", Fault::Kind::kDelay},
      {"late", Fault::Kind::kLate},
      {"hang", Fault::Kind::kHang},
      {"fail_launch", Fault::Kind::kFailLaunch},
      {"fail_poll", Fault::Kind::kFailPoll},
  };
  for (const auto& [known, value] : kKinds) {
    if (name != known) continue;
    *kind = value;
    return true;
  }
  return false;
}

bool ReadFault(const std::string& text, Fault* fault, std::string* error) {
  size_t begin = EndOf(text, 0, ',');
  if (!ReadKind(text.substr(0, begin), &fault->kind)) {
    *error = "fault '";
    *error += text;
    *error += "' begins with none of delay, late, hang, fail_launch, fail_poll";
    return false;
  }
  std::set<std::string> keys;
  while (begin < text.size()) {
    const size_t end = EndOf(text, ++begin, ',');
    const auto [key, value] = Split(text.substr(begin, end - begin));
    begin = end;
    if (!AddKey(key, &keys, error)) return false;
    uint64_t number = 0;
    if (key == "axis") {
      fault->axis = value;
    } else if (key == "rank") {
      if (!ReadNumber(key, value, 1 << 20, &number, error)) return false;
      fault->rank = static_cast<int64_t>(number);
    } else if (key == "launch") {
      if (!ReadNumber(key, value, INT64_MAX, &number, error)) return false;
      fault->launch = static_cast<int64_t>(number);
    } else if (key == "per_million") {
      if (!ReadNumber(key, value, 1'000'000, &fault->per_million, error)) {
        return false;
      }
    } else if (key == "us") {
      if (!ReadNumber(key, value, 3'600'000'000, &number, error)) return false;
      fault->delay_ns = static_cast<int64_t>(number) * 1000;
    } else {
      *error = "fault '";
      *error += text;
      *error += "': '";
      *error += key;
      *error += "' is none of rank, axis, launch, per_million, us";
      return false;
    }
  }
  return true;
}

uint64_t Mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace

bool ReadSpec(const std::string& text, Spec* spec, std::string* error) {
  std::set<std::string> keys;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = EndOf(text, begin, ';');
    const bool is_rest = text.compare(begin, 13, "inner_config=") == 0;
    if (is_rest) end = text.size();
    const auto [key, value] = Split(text.substr(begin, end - begin));
    begin = end + 1;
    if (key != "fault" && !AddKey(key, &keys, error)) return false;
    if (key == "inner_config") {
      spec->inner_config = value;
    } else if (key == "inner") {
      spec->inner = value;
    } else if (key == "seed") {
      if (!ReadNumber(key, value, INT64_MAX, &spec->seed, error)) return false;
    } else if (key == "fault") {
      if (!ReadFault(value, &spec->faults.emplace_back(), error)) return false;
    } else {
      *error = "configuration: '";
      *error += key;
      *error += "' is none of inner, seed, fault, inner_config";
      return false;
    }
  }
  return true;
}

const Fault* Match(const Spec& spec, int world_rank, const std::string& axis,
                   uint64_t number) {
  uint64_t hash = Mix(spec.seed);
  for (const char c : axis) hash = Mix(hash + static_cast<unsigned char>(c));
  hash = Mix(Mix(hash + static_cast<uint64_t>(world_rank)) + number);
  for (const Fault& fault : spec.faults) {
    hash = Mix(hash);
    if (fault.rank >= 0 && fault.rank != world_rank) continue;
    if (!fault.axis.empty() && fault.axis != axis) continue;
    if (fault.launch >= 0 && static_cast<uint64_t>(fault.launch) != number) {
      continue;
    }
    if (hash % 1'000'000 < fault.per_million) return &fault;
  }
  return nullptr;
}

}  // namespace commsched::fault
