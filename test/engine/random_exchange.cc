#include "test/engine/random_exchange.h"

#include <algorithm>

#include "test/engine/exchange_model.h"
#include "test/engine/messages.h"

namespace commsched::engine {
namespace {

// The first of the parts that the ranks of a group have.
commsched_access_t FirstPartOf(uint32_t activation, uint64_t count,
                               int32_t ranks) {
  commsched_access_t access = On(activation, 0);
  access.region = COMMSCHED_RANGE;
  access.count = count / static_cast<uint64_t>(ranks);
  return access;
}

std::string NameOf(const char* kind, uint32_t index) {
  return kind + std::to_string(index);
}

}  // namespace

RandomExchange::RandomExchange(const RandomCase& random_case, int32_t rank)
    : case_(random_case), rank_(rank) {
  const RandomExchanges& exchanges = case_.exchanges;
  const Values zeros(exchanges.count);
  memory_.assign(exchanges.num_activations, zeros);
  expected_.assign(static_cast<size_t>(case_.ranks), memory_);
  inputs_.assign(static_cast<size_t>(case_.ranks), zeros);
  sum_ = zeros;
}

RandomExchange::~RandomExchange() { commsched_group_destroy(sp_group_); }

// ---- Registration -----------------------------------------------------------

std::string RandomExchange::Join(commsched_context_t* context,
                                 commsched_engine_desc_t* out_desc) {
  const RandomExchanges& exchanges = case_.exchanges;
  if (!exchanges.any()) return "";
  const commsched_axis_t axes[] = {{"dp", case_.ranks / exchanges.sp},
                                   {"sp", exchanges.sp}};
  commsched_mesh_t* mesh = nullptr;
  if (commsched_mesh_create(context, axes, 2, &mesh) != COMMSCHED_OK ||
      commsched_mesh_group(mesh, "sp", &sp_group_) != COMMSCHED_OK) {
    return commsched_last_error();
  }
  commsched_mesh_destroy(mesh);
  out_desc->groups = &sp_group_;
  out_desc->num_groups = 1;
  return "";
}

std::string RandomExchange::Register(commsched_model_t* model) {
  const RandomExchanges& exchanges = case_.exchanges;
  if (!exchanges.any()) return "";
  model_ = model;
  first_op_.clear();
  num_ops_ = 0;
  uint32_t id = 0;
  RETURN_MESSAGE_IF_ERROR(
      Message(commsched_model_add_group(model_, "sp", exchanges.sp, &id)));
  for (uint32_t i = 0; i < memory_.size(); ++i) {
    const std::string name = NameOf("a", i);
    commsched_activation_desc_t desc = commsched_activation_desc_init();
    desc.name = name.c_str();
    desc.count = memory_[i].size();
    desc.address = memory_[i].data();
    RETURN_MESSAGE_IF_ERROR(
        Message(commsched_model_add_activation(model_, &desc, &id)));
  }
  for (uint32_t m = 0; m < exchanges.steps.size(); ++m) {
    auto& first = first_op_.emplace_back();
    for (const bool backward : {false, true}) {
      first[backward ? 1 : 0] = num_ops_;
      const std::vector<RandomStep>& steps = exchanges.StepsOf(m, backward);
      for (uint32_t i = 0; i < steps.size(); ++i) {
        RETURN_MESSAGE_IF_ERROR(steps[i].is_collective
                                    ? AddCollective(m, backward, i)
                                    : AddOp(m, backward, i));
      }
    }
  }
  return "";
}

std::string RandomExchange::AddOp(uint32_t module, bool backward,
                                  uint32_t index) {
  const RandomStep& step = case_.exchanges.StepsOf(module, backward)[index];
  const std::string name = NameOf("op", index);
  std::vector<commsched_access_t> accesses;
  if (step.input != kNoActivation) {
    accesses.push_back(On(step.input, COMMSCHED_READ));
  }
  if (step.output != kNoActivation) {
    accesses.push_back(On(step.output, COMMSCHED_WRITE));
  }
  commsched_module_op_desc_t desc = commsched_module_op_desc_init();
  desc.name = name.c_str();
  desc.accesses = accesses.empty() ? nullptr : accesses.data();
  desc.num_accesses = static_cast<uint32_t>(accesses.size());
  desc.parameters = step.parameters.empty() ? nullptr : step.parameters.data();
  desc.num_parameters = static_cast<uint32_t>(step.parameters.size());
  desc.gradients = step.gradients.empty() ? nullptr : step.gradients.data();
  desc.num_gradients = static_cast<uint32_t>(step.gradients.size());
  desc.backward = backward;
  desc.flops = 1e4;
  ++num_ops_;
  uint32_t id = 0;
  return Message(commsched_model_add_op(model_, module, &desc, &id));
}

commsched_group_id_t RandomExchange::GroupOf(const RandomStep& step) const {
  return step.in_sp ? 1 : 0;
}

std::string RandomExchange::AddCollective(uint32_t module, bool backward,
                                          uint32_t index) {
  const RandomStep& step = case_.exchanges.StepsOf(module, backward)[index];
  const int32_t ranks = step.in_sp ? case_.exchanges.sp : case_.ranks;
  const uint64_t count = case_.exchanges.count;
  const std::string name = NameOf("exchange", index);
  commsched_module_collective_desc_t desc =
      commsched_module_collective_desc_init();
  desc.name = name.c_str();
  desc.kind = step.kind;
  desc.group = GroupOf(step);
  desc.root = ranks - 1;
  desc.backward = backward;
  desc.input = step.kind == COMMSCHED_ALL_GATHER
                   ? FirstPartOf(step.input, count, ranks)
                   : On(step.input, COMMSCHED_READ);
  desc.output = step.kind == COMMSCHED_REDUCE_SCATTER
                    ? FirstPartOf(step.output, count, ranks)
                    : On(step.output, COMMSCHED_WRITE);
  return Message(commsched_model_add_collective(model_, module, &desc));
}

// ---- What the ranks must have -----------------------------------------------

void RandomExchange::Write(const Place& place, uint32_t index) {
  const uint32_t activation = StepsOf(place)[index].output;
  for (int32_t rank = 0; rank < case_.ranks; ++rank) {
    const uint64_t where =
        case_.Hash({static_cast<uint64_t>(rank), place.module, place.backward,
                    place.step, place.micro_batch, place.evaluates, index});
    Values& values = expected_[static_cast<size_t>(rank)][activation];
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>((where >> (i % 60)) % 9) - 4;
    }
  }
  memory_[activation] = expected_[static_cast<size_t>(rank_)][activation];
}

void RandomExchange::Exchange(const RandomStep& step) {
  const int32_t size = step.in_sp ? case_.exchanges.sp : case_.ranks;
  for (int32_t first = 0; first < case_.ranks; first += size) {
    ExchangeAmong(step, first, size);
  }
}

void RandomExchange::ExchangeAmong(const RandomStep& step, int32_t first,
                                   int32_t size) {
  const uint64_t count = case_.exchanges.count;
  const uint64_t part = count / static_cast<uint64_t>(size);
  std::fill(sum_.begin(), sum_.end(), 0.0f);
  for (int32_t r = 0; r < size; ++r) {
    Values& input = inputs_[static_cast<size_t>(r)];
    input = expected_[static_cast<size_t>(first + r)][step.input];
    for (uint64_t i = 0; i < count; ++i) sum_[i] += input[i];
  }
  for (int32_t r = 0; r < size; ++r) {
    Values& output = expected_[static_cast<size_t>(first + r)][step.output];
    const uint64_t mine = static_cast<uint64_t>(r) * part;
    for (uint64_t i = 0; i < count; ++i) {
      const Values& peer = inputs_[i / part];
      if (step.kind == COMMSCHED_ALL_REDUCE) output[i] = sum_[i];
      if (step.kind == COMMSCHED_ALL_TO_ALL) output[i] = peer[mine + i % part];
      if (step.kind == COMMSCHED_ALL_GATHER) output[i] = peer[i % part];
      if (step.kind == COMMSCHED_BROADCAST) {
        output[i] = inputs_[static_cast<size_t>(size - 1)][i];
      }
      if (step.kind == COMMSCHED_REDUCE_SCATTER && i < part) {
        output[i] = sum_[mine + i];
      }
    }
  }
}

// ---- Running ----------------------------------------------------------------

const std::vector<RandomStep>& RandomExchange::StepsOf(
    const Place& place) const {
  return case_.exchanges.StepsOf(place.module, place.backward);
}

std::string RandomExchange::CheckRead(const Place& place,
                                      uint32_t index) const {
  const uint32_t activation = StepsOf(place)[index].input;
  if (memory_[activation] ==
      expected_[static_cast<size_t>(rank_)][activation]) {
    return "";
  }
  return "activation " + std::to_string(activation) + " has not what step " +
         std::to_string(index) + " of the " +
         (place.backward ? "backward" : "forward") + " of module " +
         std::to_string(place.module) + " should read in step " +
         std::to_string(place.step) + ", micro-batch " +
         std::to_string(place.micro_batch);
}

std::string RandomExchange::Run(commsched_engine_t* engine, const Place& place,
                                const Body& body) {
  if (!case_.exchanges.any()) return "";
  const std::vector<RandomStep>& steps = StepsOf(place);
  uint32_t op = 0;
  for (uint32_t i = 0; i < steps.size(); ++i) {
    const RandomStep& step = steps[i];
    if (step.is_collective) {
      Exchange(step);
      continue;
    }
    const commsched_module_op_id_t id =
        first_op_[place.module][place.backward ? 1 : 0] + op++;
    RETURN_MESSAGE_IF_ERROR(
        Message(commsched_engine_op_begin(engine, id, place.micro_batch)));
    if (step.input != kNoActivation) {
      RETURN_MESSAGE_IF_ERROR(CheckRead(place, i));
    }
    if (step.output != kNoActivation) Write(place, i);
    RETURN_MESSAGE_IF_ERROR(body(op, step));
    RETURN_MESSAGE_IF_ERROR(
        Message(commsched_engine_op_end(engine, id, place.micro_batch)));
  }
  return "";
}

}  // namespace commsched::engine
