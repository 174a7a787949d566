/// Plans in C++17: commsched/commsched.hpp.
#ifndef COMMSCHED_PLAN_HPP_
#define COMMSCHED_PLAN_HPP_

#include <cstdint>
#include <string>
#include <vector>

#include "commsched/commsched.h"
#include "commsched/graph.hpp"
#include "commsched/result.hpp"

namespace commsched {
namespace api {

/// What will be launched, in which order, after which events. Immutable.
class Plan : public internal::Handle<commsched_plan_t, commsched_plan_destroy> {
 public:
  Plan() = default;

  static Result<Plan> Build(
      const Graph& graph,
      const commsched_plan_options_t& options = commsched_plan_options_init(),
      const commsched_cost_profile_t& profile = commsched_cost_profile_init()) {
    commsched_plan_t* plan = nullptr;
    const auto code =
        commsched_plan_build(graph.get(), &options, &profile, &plan);
    return internal::ResultOf(code, [&] { return Plan(plan); });
  }

  /// A plan per role, in that order.
  static Result<std::vector<Plan>> BuildRoles(
      const std::vector<commsched_role_desc_t>& roles,
      const commsched_plan_options_t& options = commsched_plan_options_init()) {
    std::vector<commsched_plan_t*> handles(roles.size() + 1);
    const auto code = commsched_plan_build_roles(
        roles.empty() ? nullptr : roles.data(),
        static_cast<uint32_t>(roles.size()), &options, handles.data());
    return internal::ResultOf(code, [&] {
      std::vector<Plan> plans;
      for (size_t i = 0; i < roles.size(); ++i) {
        plans.push_back(Plan(handles[i]));
      }
      return plans;
    });
  }

  Result<commsched_plan_info_t> GetInfo() const {
    commsched_plan_info_t info = commsched_plan_info_init();
    const auto code = commsched_plan_get_info(get(), &info);
    return internal::ResultOf(code, [&] { return info; });
  }
  /// Under the profile that the plan was built with.
  Result<commsched_prediction_t> Predict() const { return Predict(nullptr); }
  Result<commsched_prediction_t> Predict(
      const commsched_cost_profile_t& profile) const {
    return Predict(&profile);
  }
  Result<std::string> Explain(
      commsched_format_t format = COMMSCHED_TEXT) const {
    char* text = nullptr;
    const auto code = commsched_plan_explain(get(), format, &text);
    return internal::StringOf(code, text);
  }
  /// Describes this plan alone; commsched_plan_describe() takes several roles.
  Result<std::string> Describe(
      commsched_format_t format = COMMSCHED_TEXT) const {
    const commsched_plan_t* plan = get();
    char* text = nullptr;
    const auto code = commsched_plan_describe(&plan, 1, format, &text);
    return internal::StringOf(code, text);
  }

 private:
  friend class Recording;
  explicit Plan(commsched_plan_t* plan) : Handle(plan) {}

  Result<commsched_prediction_t> Predict(
      const commsched_cost_profile_t* profile) const {
    commsched_prediction_t prediction = commsched_prediction_init();
    const auto code = commsched_plan_predict(get(), profile, &prediction);
    return internal::ResultOf(code, [&] { return prediction; });
  }
};

}  // namespace api
}  // namespace commsched

#endif  // COMMSCHED_PLAN_HPP_
