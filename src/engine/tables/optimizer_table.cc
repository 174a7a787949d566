#include "engine/tables/optimizer_table.h"

#include <cstring>

namespace commsched::engine {
namespace {

bool IsPlainName(const char* name) {
  constexpr char kPlain[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return name != nullptr && *name != '\0' &&
         std::strspn(name, kPlain) == std::strlen(name);
}

std::string Quoted(const char* name) {
  if (name == nullptr) return "NULL";
  // Bit by bit: g++ 12 warns of sums that begin with a literal.
  std::string text = "'";
  text += name;
  text += "'";
  return text;
}

constexpr char kPlainNames[] =
    "; it must be of letters, digits, '_', '-' and '.'";

// "engine: optimizer 'adamw' "
std::string Subject(const commsched_optimizer_table_t& table) {
  return "engine: optimizer " + Quoted(table.name) + " ";
}

Status CheckState(const commsched_optimizer_table_t& table) {
  if (table.state_values > COMMSCHED_OPTIMIZER_MAX_STATE) {
    return InvalidArgument(Subject(table) + "keeps " +
                           std::to_string(table.state_values) +
                           " values per weight; the limit is " +
                           std::to_string(COMMSCHED_OPTIMIZER_MAX_STATE));
  }
  for (uint32_t i = 0; i < table.state_values; ++i) {
    const char* const name = table.state_names[i];
    if (!IsPlainName(name)) {
      return InvalidArgument(Subject(table) + "calls state value " +
                             std::to_string(i) + " " + Quoted(name) +
                             kPlainNames);
    }
    // What parameters are called there.
    bool taken = std::strcmp(name, "value") == 0;
    for (uint32_t other = 0; other < i; ++other) {
      taken |= std::strcmp(name, table.state_names[other]) == 0;
    }
    if (!taken) continue;
    return InvalidArgument(Subject(table) + "calls state value " +
                           std::to_string(i) + " " + Quoted(name) +
                           ", which is the name of something else");
  }
  return Status();
}

commsched_optimizer_table_t TableOr(const commsched_optimizer_table_t* given) {
  return given == nullptr ? commsched_adamw(0.9f, 0.95f, 1e-8f) : *given;
}

}  // namespace

Status CheckOptimizerTable(const commsched_optimizer_table_t& table) {
  if (!IsPlainName(table.name)) {
    return InvalidArgument("engine: optimizer is called " + Quoted(table.name) +
                           kPlainNames);
  }
  const bool element_wise = table.element_wise != 0;
  if (element_wise == (table.whole_tensors != 0)) {
    return InvalidArgument(Subject(table) +
                           (element_wise ? "says both" : "says neither") +
                           " element_wise " + (element_wise ? "and" : "nor") +
                           " whole_tensors; it must say one of them");
  }
  if (table.step == nullptr)
    return InvalidArgument(Subject(table) + "has no step");
  ENGINE_RETURN_IF_ERROR(CheckState(table));
  ENGINE_RETURN_IF_ERROR(CheckFraction(table, "beta1", table.beta1));
  ENGINE_RETURN_IF_ERROR(CheckFraction(table, "beta2", table.beta2));
  if (table.check == nullptr) return Status();
  const commsched_status_t code = table.check(&table);
  if (code == COMMSCHED_OK) return Status();
  return Status(code, commsched_last_error());
}

Optimizer::Optimizer(const commsched_optimizer_table_t* given)
    : table_(TableOr(given)) {
  const auto keep = [](const char*& name, std::string* copy) {
    if (name == nullptr) return;
    *copy = name;
    name = copy->c_str();
  };
  keep(table_.name, &name_);
  for (uint32_t i = 0; i < table_.state_values; ++i) {
    keep(table_.state_names[i], &state_names_[i]);
  }
  for (size_t i = 0; i < setting_names_.size(); ++i) {
    keep(table_.settings[i].name, &setting_names_[i]);
  }
}

Status CheckFraction(const commsched_optimizer_table_t& table,
                     const char* field, float value) {
  if (value >= 0 && value < 1) return Status();
  return InvalidArgument("engine: " + std::string(field) + " of optimizer " +
                         Quoted(table.name) + " is " + std::to_string(value) +
                         "; it must be in [0, 1)");
}

const void* Behind(const void* base, commsched_dtype_t dtype, uint64_t count) {
  if (base == nullptr) return nullptr;
  const uint64_t size =
      dtype == COMMSCHED_F32 ? sizeof(float) : sizeof(uint16_t);
  return static_cast<const std::byte*>(base) + count * size;
}

}  // namespace commsched::engine
