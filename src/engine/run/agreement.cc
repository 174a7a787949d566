#include "engine/run/agreement.h"

#include <xxhash.h>

#include <charconv>
#include <concepts>
#include <utility>
#include <vector>

#include "engine/model/registration.h"
#include "engine/run/session_watch.h"

namespace commsched::engine {
namespace {

constexpr char kCreation[] = "engine create";
constexpr char kCreationOfParts[] = "engine create, norm_group";
constexpr char kEvaluation[] = "engine create, evaluation";

// Facts, and how the core takes them.
class Facts {
 public:
  void Add(std::string subject, std::string value) {
    facts_.emplace_back(std::move(subject), std::move(value));
  }
  void Add(std::string subject, uint64_t value) {
    Add(std::move(subject), std::to_string(value));
  }
  // The shortest text that gives these bits.
  template <std::floating_point Real>
  void Add(std::string subject, Real value) {
    char text[32];
    const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
    Add(std::move(subject), std::string(text, end));
  }

  // Call it after the last Add().
  void Close() {
    for (const auto& [subject, value] : facts_) {
      closed_.push_back({subject.c_str(), value.c_str()});
    }
  }

  // Closed. Fails as commsched_context_agree() does, with its message, and
  // throws nothing before.
  Status Agree(commsched_context_t* context, commsched_agree_desc_t desc,
               uint64_t* out_number) const {
    desc.facts = closed_.data();
    desc.num_facts = closed_.size();
    const commsched_status_t code =
        commsched_context_agree(context, &desc, out_number);
    if (code == COMMSCHED_OK) return Status();
    return Status(code, commsched_last_error());
  }

 private:
  std::vector<std::pair<std::string, std::string>> facts_;
  std::vector<commsched_fact_t> closed_;
};

std::string OnOrOff(bool on) { return on ? "on" : "off"; }

// What ranks that hold other parts of a model update with alike, too: they
// decide together whether a step counts, and what it is clipped to.
void AddUpdateSettings(const commsched_step_plan_options_t& options,
                       const commsched_engine_desc_t& desc, Facts* facts) {
  facts->Add("weight_decay", desc.weight_decay);
  facts->Add("clip_norm", desc.clip_norm);
  facts->Add("loss_scale", desc.loss_scale);
  facts->Add("loss_scale_window", uint64_t{desc.loss_scale_window});
  facts->Add("clips", uint64_t{options.clips});
  facts->Add("check_finite", uint64_t{options.check_finite});
  facts->Add("norm", uint64_t{options.norm});
  facts->Add("option_sets", uint64_t{options.option_sets});
  facts->Add("max_skipped_steps", uint64_t{desc.max_skipped_steps});
}

// What of the options and of the description, their defaults put in, has a say
// in the results or in what the ranks send. A new field of that kind gets a
// line here.
void AddSettings(const commsched_step_plan_options_t& options,
                 const commsched_engine_desc_t& desc,
                 const Optimizer& optimizer, Facts* facts) {
  facts->Add("zero_stage", uint64_t{options.zero_stage});
  facts->Add("gradient_ready", uint64_t{options.gradient_ready});
  facts->Add("absent_gradients", uint64_t{options.absent_gradients});
  facts->Add("cancel_all", uint64_t{options.cancel_all});
  facts->Add("uneven_evaluations", uint64_t{options.uneven_evaluations});
  facts->Add("micro_batches", uint64_t{options.micro_batches});
  facts->Add("parameter_dtype", NameOfDType(options.parameter_dtype));
  facts->Add("reduce_dtype", NameOfDType(options.reduce_dtype));
  facts->Add("optimizer", optimizer.name());
  facts->Add("beta1", optimizer.table().beta1);
  facts->Add("beta2", optimizer.table().beta2);
  for (const commsched_optimizer_setting_t& each : optimizer.table().settings) {
    if (each.name != nullptr) facts->Add(each.name, each.value);
  }
  AddUpdateSettings(options, desc, facts);
  facts->Add("gradient_divisor", options.gradient_divisor);
  facts->Add("bucket_bytes", options.bucket_bytes);
  facts->Add("bucket_merge",
             OnOrOff(options.bucket_merge == COMMSCHED_BUCKET_MERGE_ON));
  facts->Add("edge_bucket_bytes", options.edge_bucket_bytes);
  facts->Add("persist_below", options.persist_below);
  facts->Add("accumulate_bytes", options.accumulate_bytes);
}

void AddPasses(const Model& model, Facts* facts) {
  for (size_t i = 0; i < model.passes().size(); ++i) {
    const Pass& pass = model.passes()[i];
    facts->Add("pass " + std::to_string(i),
               TextOf(pass, model.modules()[pass.module].name));
  }
}

std::string HexOf(uint64_t value) {
  char text[17];
  const auto end = std::to_chars(text, text + sizeof(text), value, 16).ptr;
  return "0x" + std::string(text, end);
}

std::string ChecksumOf(const void* data, uint64_t bytes) {
  return HexOf(XXH3_64bits(data, bytes));
}

// The checksum of masters that are kept beside a copy, and of moments. Ranks
// compare it in stage 0, in which each has all of them.
Status ChecksumOfState(const StepPlan& plan, const RankState& state,
                       uint32_t bucket, const Segment& segment,
                       uint64_t* out_checksum) {
  const StepSpec& spec = plan.spec();
  const BucketMemory& memory = state.bucket(bucket);
  uint64_t checksum = 0;
  std::vector<std::byte> scratch;
  const auto add = [&](const float* values) {
    const uint64_t bytes = segment.count * sizeof(float);
    const void* on_host = nullptr;
    ENGINE_RETURN_IF_ERROR(
        state.OnHost(values + segment.in_shard, bytes, &scratch, &on_host));
    checksum = XXH3_64bits_withSeed(on_host, bytes, checksum);
    return Status();
  };
  if (spec.has_masters(plan.layout().buckets[bucket])) {
    ENGINE_RETURN_IF_ERROR(add(memory.my_masters));
  }
  for (uint64_t moment = 0; moment < spec.moments; ++moment) {
    ENGINE_RETURN_IF_ERROR(
        add(memory.my_state + plan.MomentBegin(bucket, moment)));
  }
  *out_checksum = checksum;
  return Status();
}

// "the checksum of parameter 3 'wte'"
std::string ChecksumSubject(const char* of, const Model& model,
                            uint32_t parameter) {
  return std::string("the checksum of ") + of + " " +
         std::to_string(parameter) + " '" + model.parameters()[parameter].name +
         "'";
}

Status AddBucket(const Agreement::Values& values, uint32_t bucket,
                 Facts* facts) {
  const StepSpec& spec = values.plan->spec();
  const Layout& layout = values.plan->layout();
  const Model& model = *values.model;
  const BucketMemory& memory = values.state->bucket(bucket);
  const uint64_t element = SizeOf(layout.buckets[bucket].dtype);
  std::vector<std::byte> scratch;
  for (uint32_t p : layout.buckets[bucket].parameters) {
    const uint64_t bytes = model.parameters()[p].count * element;
    const void* on_host = nullptr;
    ENGINE_RETURN_IF_ERROR(values.state->OnHost(
        memory.all_parameters + layout.slots[p].offset * element, bytes,
        &scratch, &on_host));
    facts->Add(ChecksumSubject("parameter", model, p),
               ChecksumOf(on_host, bytes));
  }
  // What lies in a pool may fail to be read, on one rank alone.
  if (spec.zero_stage > 0 || spec.offloads || layout.buckets[bucket].frozen) {
    return Status();
  }
  for (const Segment& segment : memory.segments) {
    uint64_t checksum = 0;
    ENGINE_RETURN_IF_ERROR(ChecksumOfState(*values.plan, *values.state, bucket,
                                           segment, &checksum));
    facts->Add(ChecksumSubject("the optimizer's state of parameter", model,
                               segment.parameter),
               HexOf(checksum));
  }
  return Status();
}

}  // namespace

void DeclineToCreate(commsched_context_t* context, const Status& why) {
  commsched_agree_desc_t desc = commsched_agree_desc_init();
  desc.name = kCreation;
  commsched_context_decline(context, &desc, why.code(), why.message().c_str());
}

Status Agreement::KeepContext() {
  commsched_context_t* context = nullptr;
  ENGINE_RETURN_IF_ERROR(
      Status::FromCall(commsched_context_duplicate(desc_.context, &context),
                       "keeping the context"));
  context_.reset(context);
  commsched_group_t* group = nullptr;
  ENGINE_RETURN_IF_ERROR(Status::FromCall(
      commsched_group_duplicate(desc_.group, &group), "keeping the group"));
  group_.reset(group);
  return Status();
}

Status Agreement::OnCreation(const StepOptions& options,
                             const Optimizer& optimizer, const Model& model) {
  Facts facts;
  Facts of_parts;
  Status ready = Caught([&] {
    AddUpdateSettings(options.given(), desc_, &of_parts);
    of_parts.Add("cancel_all or absent_gradients",
                 OnOrOff(options.spec().has_flags()));
    of_parts.Close();
    AddSettings(options.given(), desc_, optimizer, &facts);
    facts.Add("plan.deterministic", OnOrOff(options.spec().deterministic));
    facts.Add("record_order", OnOrOff(desc_.record_order != 0));
    for (RegisteredFact& each : CommonFacts(model)) {
      facts.Add(std::move(each.subject), std::move(each.value));
    }
    AddPasses(model, &facts);
    facts.Close();
    return Status();
  });
  if (!ready.ok()) {
    DeclineToCreate(context_.get(), ready);
    return ready;
  }
  commsched_agree_desc_t desc = commsched_agree_desc_init();
  desc.name = kCreation;
  desc.compare = group_.get();
  desc.timeout_ns = desc_.launch_timeout_ns;
  uint64_t number = 0;
  ENGINE_RETURN_IF_ERROR(facts.Agree(context_.get(), desc, &number));
  values_name_ = "step_begin of engine " + std::to_string(number);
  // All of the world come again. Those without a norm_group have compared
  // this with the same ranks.
  desc.name = kCreationOfParts;
  if (desc_.norm_group != nullptr) desc.compare = desc_.norm_group;
  return of_parts.Agree(context_.get(), desc, nullptr);
}

Status Agreement::OnEvaluation(const Status& ready) {
  commsched_agree_desc_t desc = commsched_agree_desc_init();
  desc.name = kEvaluation;
  desc.timeout_ns = desc_.launch_timeout_ns;
  if (ready.ok()) return Facts().Agree(context_.get(), desc, nullptr);
  commsched_context_decline(context_.get(), &desc, ready.code(),
                            ready.message().c_str());
  return ready;
}

commsched_agree_desc_t Agreement::ComparisonOfValues() const {
  commsched_agree_desc_t desc = commsched_agree_desc_init();
  desc.name = values_name_.c_str();
  desc.meet = group_.get();
  desc.timeout_ns = desc_.launch_timeout_ns;
  return desc;
}

Status Agreement::OnValues(const Values& values,
                           const std::function<Status()>& failure) {
  const StepSpec& spec = values.plan->spec();
  if (spec.world == 1) {
    unchecked_ = false;
    return Status();
  }
  Facts facts;
  facts.Add("the number of steps done", values.steps);
  if (spec.scales_loss) {
    facts.Add("the loss scale", static_cast<float>(values.loss_scale->scale));
    facts.Add("the steps since the loss scale changed",
              static_cast<uint64_t>(values.loss_scale->good_steps));
  }
  for (uint32_t b = 0; b < values.state->buckets().size(); ++b) {
    if (values.plan->gathers(b)) continue;
    ENGINE_RETURN_IF_ERROR(AddBucket(values, b, &facts));
  }
  facts.Close();
  const commsched_agree_desc_t desc = ComparisonOfValues();
  SessionWatch watch(failure);
  const Status watched = watch.Start(context_.get(), desc);
  if (!watched.ok()) {
    commsched_context_decline(context_.get(), &desc, watched.code(),
                              watched.message().c_str());
    return watched;
  }
  ENGINE_RETURN_IF_ERROR(facts.Agree(context_.get(), desc, nullptr));
  unchecked_ = false;
  return Status();
}

void Agreement::DeclineValues(const char* reason) {
  if (!unchecked_ || values_name_.empty()) return;
  const commsched_agree_desc_t desc = ComparisonOfValues();
  commsched_context_decline(context_.get(), &desc, COMMSCHED_ABORTED, reason);
}

}  // namespace commsched::engine
