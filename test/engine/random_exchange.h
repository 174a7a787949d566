#ifndef COMMSCHED_TEST_ENGINE_RANDOM_EXCHANGE_H_
#define COMMSCHED_TEST_ENGINE_RANDOM_EXCHANGE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "commsched/engine_ops.h"
#include "test/engine/random_case.h"

namespace commsched::engine {

// The activations of a rank, in memory, and what every rank must have in its
// own if the steps of modules run one after the other. Elements are small
// integers, so that sums have no rounding.
//
// Thread-compatible: the rank's thread.
class RandomExchange {
 public:
  RandomExchange(const RandomCase& random_case, int32_t rank);
  ~RandomExchange();
  RandomExchange(const RandomExchange&) = delete;
  RandomExchange& operator=(const RandomExchange&) = delete;

  // Joins the group in which activations are exchanged, if any are, and gives
  // it to the description of an engine. Returns what is wrong, as all do.
  std::string Join(commsched_context_t* context,
                   commsched_engine_desc_t* out_desc);
  // Adds all of it to a model that has the case's modules and parameters;
  // again, to another one.
  std::string Register(commsched_model_t* model);

  // A forward or backward of a module, and what tells its elements from those
  // of others.
  struct Place {
    uint32_t module;
    bool backward;
    uint32_t step;
    uint32_t micro_batch;
    bool evaluates;
  };
  // Runs the steps of a module of `engine`. `body` is called within each op,
  // with its
  // number among those of this forward or backward, from 1 on.
  using Body = std::function<std::string(uint32_t op, const RandomStep&)>;
  std::string Run(commsched_engine_t* engine, const Place& place,
                  const Body& body);

 private:
  std::string AddOp(uint32_t module, bool backward, uint32_t index);
  std::string AddCollective(uint32_t module, bool backward, uint32_t index);
  commsched_group_id_t GroupOf(const RandomStep& step) const;
  const std::vector<RandomStep>& StepsOf(const Place& place) const;
  void Write(const Place& place, uint32_t index);
  // Of what the ranks must have.
  void Exchange(const RandomStep& step);
  void ExchangeAmong(const RandomStep& step, int32_t first, int32_t size);
  std::string CheckRead(const Place& place, uint32_t index) const;

  using Values = std::vector<float>;

  const RandomCase& case_;
  const int32_t rank_;
  commsched_model_t* model_ = nullptr;
  commsched_group_t* sp_group_ = nullptr;
  // By module and direction.
  std::vector<std::array<commsched_module_op_id_t, 2>> first_op_;
  commsched_module_op_id_t num_ops_ = 0;
  std::vector<Values> memory_;                 // By activation.
  std::vector<std::vector<Values>> expected_;  // By rank and activation.
  std::vector<Values> inputs_;  // By rank in the group; of one collective.
  Values sum_;                  // Of these.
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_RANDOM_EXCHANGE_H_
