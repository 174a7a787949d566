#ifndef COMMSCHED_SRC_ENGINE_ENGINE_H_
#define COMMSCHED_SRC_ENGINE_ENGINE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "build_graph.h"
#include "commsched/engine.h"
#include "layout.h"
#include "memory.h"
#include "status.h"

namespace commsched::engine {

// One rank's training state and its step, behind include/commsched/engine.h,
// which states the contract of each call.
//
// After Build a step allocates nothing and takes no lock of its own.
//
// Thread-compatible: one thread per rank.
class Engine {
 public:
  // `desc` has passed CheckDesc.
  explicit Engine(const commsched_engine_desc_t& desc);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  static Status CheckDesc(const commsched_engine_desc_t& desc);

  // Registration.
  Status AddModule(const char* name, double forward_flops,
                   double backward_flops, uint32_t* out_module);
  Status AddParameter(uint32_t module, const char* name, const uint64_t* dims,
                      uint32_t num_dims, uint32_t* out_parameter);
  Status UseParameter(uint32_t module, uint32_t parameter);
  Status Prepare();
  Status Build();

  // The step.
  Status StepBegin();
  Status ModuleBegin(bool backward, uint32_t module, uint32_t micro_batch);
  Status ModuleEnd(bool backward, uint32_t module, uint32_t micro_batch);
  Status OptimizerStep(float lr);
  Status StepEnd();
  Status Drain();

  // Between steps.
  Status SetParameter(uint32_t parameter, const float* values, uint64_t count);
  Status GetParameter(uint32_t parameter, float* out_values, uint64_t count);
  Status ParameterAddress(uint32_t parameter, const float** out_values,
                          float** out_gradient);
  Status GradientNorm(double* out_norm) const;
  Status GetInfo(commsched_engine_info_t* out_info) const;
  Status OpCosts(int64_t* out_ns, uint64_t num_ops) const;

  commsched_plan_t* plan() const { return plan_.get(); }
  commsched_session_t* session() const { return session_.get(); }

 private:
  // Where in the order of calls the caller is.
  enum class Phase : uint8_t {
    kRegistering,
    kPrepared,
    kBetweenSteps,
    kBetweenModules,  // In a step; module_ops[cursor_] is next, if any.
    kInModule,        // Begun module_ops[cursor_].
    kStepped,         // After optimizer_step.
  };

  // Memory of one bucket; what the stage does not need is empty.
  struct BucketMemory {
    Array<float> parameters;  // The fp32 master values.
    Array<float> gradients;   // Stages 0 and 1.
    Array<float> shard;       // Stage 2: reduced gradients.
    Array<float> state;       // m, then v.

    // Set by Bind.
    float* all_gradients = nullptr;       // Every element.
    const float* my_gradients = nullptr;  // Reduced, of this rank's shard.
    float* my_parameters = nullptr;       // Of this rank's shard.
    std::vector<Segment> segments;        // Of this rank's shard.
  };

  struct PlanDelete {
    void operator()(commsched_plan_t* p) const { commsched_plan_destroy(p); }
  };
  struct SessionDelete {
    void operator()(commsched_session_t* s) const {
      commsched_session_destroy(s);
    }
  };

  // build.cc
  Status CheckRegistering() const;
  Status CheckParameterId(uint32_t parameter) const;
  Status CheckMemory() const;
  Status Allocate();
  Status MakePlan();
  Status CreateSession();
  Status Bind();
  std::vector<commsched_binding_t> Bindings() const;

  // step.cc
  bool built() const { return phase_ > Phase::kPrepared; }
  std::string ExpectedCall() const;
  Status SessionFailure() const;
  Status OutOfOrder(const std::string& call) const;
  std::string ModuleCall(bool backward, const char* which, uint32_t module,
                         uint32_t micro_batch) const;
  bool IsNext(bool backward, uint32_t module, uint32_t micro_batch) const;
  Status CheckVersions(const ModuleOp& op) const;
  Status Before(commsched_op_id_t op);
  Status After(commsched_op_id_t op);
  template <typename Body>
  Status Run(commsched_op_id_t op, Body&& body);
  // If the session has failed and left `buffer`, that of `bucket` and `kind`,
  // with contents that nobody may use: its failure, naming the buffer.
  Status RefusePoisoned(const std::string& call, const char* kind,
                        uint32_t bucket, commsched_buffer_id_t buffer) const;
  // The same for all buffers that AdamW reads or writes.
  Status RefusePoisonedBuckets(const std::string& call) const;
  Status StepBuckets(float lr);
  Status ComputeNorm();
  void Squares(uint32_t bucket);
  void AdamW(uint32_t bucket, commsched_adamw_args_t args) const;
  double AddAllSums() const;
  double ParameterSum(uint32_t parameter, const double* sums) const;
  double LocalTotal() const;
  void SetFactor(double squared_norm);
  Status CheckDrained(const char* call) const;
  Status CheckValues(const char* call, uint32_t parameter,
                     uint64_t count) const;
  float* ParameterValues(uint32_t parameter) const;

  // Constant after construction.
  const commsched_engine_desc_t desc_;
  const commsched_engine_kernels_t kernels_;
  const commsched_plan_options_t plan_options_;
  const commsched_cost_profile_t profile_;
  const StepSpec spec_;
  const uint32_t group_rank_;

  // Constant after Build.
  std::vector<Module> modules_;
  std::vector<Parameter> parameters_;
  std::unordered_set<std::string> module_names_;
  std::unordered_set<std::string> parameter_names_;
  Layout layout_;
  StepGraph graph_;
  uint64_t num_ops_ = 0;
  std::vector<BucketMemory> memory_;
  Array<double> local_sums_;
  Array<double> all_sums_;
  Array<double> total_;
  Array<double> factor_;
  std::unique_ptr<commsched_plan_t, PlanDelete> plan_;
  // Last, so that it is destroyed before the memory it is bound to.
  std::unique_ptr<commsched_session_t, SessionDelete> session_;

  // The step.
  Phase phase_ = Phase::kRegistering;
  bool drained_ = true;
  uint64_t cursor_ = 0;       // In graph_.module_ops.
  uint64_t steps_begun_ = 0;  // Counts the current one.
  uint64_t steps_done_ = 0;
  bool has_norm_ = false;
  double norm_ = 0;

  // Measurement; by op id, empty unless asked for.
  std::vector<int64_t> op_cost_ns_;
  int64_t op_begin_ns_ = 0;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_ENGINE_H_
