#include "examples/trainer/training.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/c_status.h"
#include "examples/trainer/checkpoint.h"
#include "examples/trainer/masters.h"
#include "examples/trainer/matmul.h"
#include "examples/trainer/progress_bar.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/rank_log.h"
#include "examples/trainer/status_macros.h"
#include "examples/trainer/step_log.h"
#include "examples/trainer/units.h"

namespace commsched::trainer {
namespace {

// A validation; every rank adds its part, and whoever sees them all may read.
struct Evaluation {
  int64_t steps_done = 0;
  std::vector<double> losses;       // By rank; equal numbers of windows.
  std::atomic<int64_t> arrived{0};  // Released after a loss is written.

  bool complete() const {
    return arrived.load(std::memory_order_acquire) ==
           static_cast<int64_t>(losses.size());
  }
  // Added in rank order, so that it is the same in every run.
  double mean() const {
    double sum = 0;
    for (double loss : losses) sum += loss;
    return sum / static_cast<double>(losses.size());
  }
};

// Where a run begins: at a checkpoint, or at step 0 without one.
struct Start {
  RunIdentity identity;
  Resumed resumed;
};

// The run: ranks, and what their threads share. Threads write to their own
// slots, except for the first failure.
class Run {
 public:
  Run(const Options& options, const Dataset& dataset, Start start,
      std::FILE* out)
      : options_(options),
        out_(out),
        start_(std::move(start)),
        sampler_(dataset, options.seq, static_cast<uint64_t>(options.seed)),
        last_losses_(static_cast<size_t>(options.ranks)),
        savers_(static_cast<size_t>(options.ranks)),
        evaluations_(CountEvaluations()),
        bar_(stderr, options.steps) {
    for (Evaluation& evaluation : evaluations_) {
      evaluation.losses.resize(static_cast<size_t>(options.ranks));
    }
  }

  absl::StatusOr<Report> Go();

 private:
  size_t CountEvaluations() const;
  absl::Status CreateRanks();
  void RunRanks();
  void RunRank(int64_t index);
  absl::Status TrainRank(int64_t index);
  absl::Status Evaluate(int64_t index, int64_t steps_done, size_t slot);
  // Whether to evaluate before the last step is over.
  bool EvaluatesAfter(int64_t step) const;
  bool SavesAfter(int64_t step) const;
  void Fail(int64_t index, const absl::Status& status);
  template <typename... Args>
  void Say(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (out_ == nullptr) return;
    absl::FPrintF(out_, format, args...);
    std::fflush(out_);
  }
  absl::Status PrintPlan();
  void ShowProgress(int64_t step, double loss);
  void PrintEvaluations();
  absl::StatusOr<Report> MakeReport();
  absl::Status FillSteps(Report* report) const;
  absl::Status FillCopies(Report* report) const;
  absl::Status FillBound(Report* report) const;
  absl::Status CreateFolders() const;
  absl::Status LoadPlugin() const;
  absl::Status OpenLog();
  absl::Status WriteTraces();

  const Options& options_;
  std::FILE* const out_;  // May be null.
  const Start start_;
  const Sampler sampler_;
  WorldHandle world_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<double> last_losses_;                 // By rank.
  std::vector<std::unique_ptr<RankSaver>> savers_;  // By rank; null: none.
  std::unique_ptr<StepLog> log_;                    // Null: none.
  std::vector<Evaluation> evaluations_;
  double wall_s_ = 0;  // Of all steps, on rank 0's thread.

  std::mutex mutex_;
  absl::Status failure_;  // Guarded by mutex_.

  // Rank 0's thread, then the main one.
  ProgressBar bar_;
  size_t printed_evaluations_ = 0;
};

size_t Run::CountEvaluations() const {
  const int64_t every = options_.eval_every;
  if (every == 0) return 1;
  return static_cast<size_t>((options_.end_step() - 1) / every -
                             start_.resumed.step / every + 1);
}

bool Run::EvaluatesAfter(int64_t step) const {
  return options_.eval_every > 0 && (step + 1) % options_.eval_every == 0 &&
         step + 1 < options_.end_step();
}

bool Run::SavesAfter(int64_t step) const {
  if (options_.save_dir.empty()) return false;
  return step + 1 == options_.end_step() ||
         (options_.save_every > 0 && (step + 1) % options_.save_every == 0);
}

absl::Status Run::CreateRanks() {
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = static_cast<int32_t>(options_.ranks);
  desc.link_bytes_per_s = options_.link.bytes_per_s;
  desc.link_latency_ns = options_.link.latency_ns;
  commsched_world_t* world = nullptr;
  const commsched_status_t code = commsched_world_create_inproc(&desc, &world);
  if (code != COMMSCHED_OK) {
    return absl::Status(static_cast<absl::StatusCode>(code),
                        commsched_last_error());
  }
  world_.reset(world);
  for (int64_t i = 0; i < options_.ranks; ++i) {
    absl::StatusOr<std::unique_ptr<Rank>> rank =
        Rank::Create(options_, sampler_, world_.get(), i);
    if (!rank.ok()) return rank.status();
    ranks_.push_back(*std::move(rank));
  }
  return absl::OkStatus();
}

absl::StatusOr<Report> Run::Go() {
  TRAINER_RETURN_IF_ERROR(CreateFolders());
  TRAINER_RETURN_IF_ERROR(LoadPlugin());
  TRAINER_RETURN_IF_ERROR(OpenLog());
  TRAINER_RETURN_IF_ERROR(CreateRanks());
  RunRanks();
  bar_.Clear();
  if (!failure_.ok()) return failure_;
  PrintEvaluations();
  if (!options_.trace_dir.empty()) TRAINER_RETURN_IF_ERROR(WriteTraces());
  if (!options_.export_path.empty()) {
    TRAINER_RETURN_IF_ERROR(ExportWeights(options_.save_dir, options_));
  }
  if (log_ != nullptr) TRAINER_RETURN_IF_ERROR(log_->Close());
  if (options_.blame) {
    const absl::StatusOr<std::string> text = ranks_[0]->Blame();
    if (!text.ok()) return text.status();
    Say("%s\n", *text);
  }
  return MakeReport();
}

// No rank begins before all have a thread: they would wait for one that does
// not come.
void Run::RunRanks() {
  std::promise<bool> may_begin;
  const std::shared_future<bool> begins = may_begin.get_future().share();
  std::vector<std::thread> threads;
  absl::Status status;
  try {
    for (int64_t i = 0; i < options_.ranks; ++i) {
      threads.emplace_back([this, i, begins] {
        if (begins.get()) RunRank(i);
      });
    }
  } catch (const std::exception& e) {
    status = absl::ResourceExhaustedError(
        absl::StrFormat("no thread for it; %d of %d ranks have one: %s",
                        threads.size(), options_.ranks, e.what()));
  }
  may_begin.set_value(status.ok());
  for (std::thread& thread : threads) thread.join();
  if (!status.ok()) Fail(static_cast<int64_t>(threads.size()), status);
}

void Run::RunRank(int64_t index) {
  absl::Status status;
  try {
    status = TrainRank(index);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& e) {
    status = absl::InternalError(e.what());
  }
  if (!status.ok()) Fail(index, status);
}

// The first failure is the run's; the others follow from the abort.
void Run::Fail(int64_t index, const absl::Status& status) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = absl::Status(
        status.code(), absl::StrFormat("rank %d: %s", index, status.message()));
  }
  ranks_[static_cast<size_t>(index)]->Abort(status);
}

absl::Status Run::TrainRank(int64_t index) {
  Rank& rank = *ranks_[static_cast<size_t>(index)];
  TRAINER_RETURN_IF_ERROR(rank.Build(start_.resumed.checkpoint.get()));
  std::unique_ptr<RankSaver>& saver = savers_[static_cast<size_t>(index)];
  if (!options_.save_dir.empty()) {
    absl::StatusOr<std::unique_ptr<RankSaver>> created =
        RankSaver::Create(options_, start_.identity, rank.engine());
    if (!created.ok()) return created.status();
    saver = *std::move(created);
  }
  if (index == 0) TRAINER_RETURN_IF_ERROR(PrintPlan());
  RankLog log(log_.get(), rank, index, start_.resumed.step);
  const auto begin = std::chrono::steady_clock::now();
  size_t slot = 0;
  for (int64_t step = start_.resumed.step; step < options_.end_step(); ++step) {
    log.Begin();
    const absl::StatusOr<double> loss = rank.Step(step);
    if (!loss.ok()) return loss.status();
    TRAINER_RETURN_IF_ERROR(log.End(step, *loss));
    last_losses_[static_cast<size_t>(index)] = *loss;
    if (index == 0) ShowProgress(step, *loss);
    if (SavesAfter(step)) TRAINER_RETURN_IF_ERROR(saver->Save());
    if (EvaluatesAfter(step)) {
      TRAINER_RETURN_IF_ERROR(Evaluate(index, step + 1, slot++));
    }
  }
  if (index == 0) {
    const std::chrono::duration<double> wall =
        std::chrono::steady_clock::now() - begin;
    wall_s_ = wall.count();
  }
  TRAINER_RETURN_IF_ERROR(Evaluate(index, options_.end_step(), slot));
  TRAINER_RETURN_IF_ERROR(log.Finish());
  return saver == nullptr ? absl::OkStatus() : saver->Wait();
}

absl::Status Run::Evaluate(int64_t index, int64_t steps_done, size_t slot) {
  const absl::StatusOr<double> loss =
      ranks_[static_cast<size_t>(index)]->Evaluate();
  if (!loss.ok()) return loss.status();
  Evaluation& evaluation = evaluations_[slot];
  evaluation.losses[static_cast<size_t>(index)] = *loss;
  if (index == 0) evaluation.steps_done = steps_done;
  evaluation.arrived.fetch_add(1, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status Run::PrintPlan() {
  const auto info = ranks_[0]->Info();
  if (!info.ok()) return info.status();
  const auto plan = ranks_[0]->PlanInfo();
  if (!plan.ok()) return plan.status();
  Say("%s: %d parameters in %d buckets; %d ranks, ZeRO-%d; %d collectives in "
      "%d launches per step\n"
      "matrix products: %s\n",
      options_.model, info->num_parameters, info->num_buckets, options_.ranks,
      options_.zero, plan->num_collectives, plan->num_launches,
      MatmulLibrary());
  if (options_.explain) {
    const absl::StatusOr<std::string> text = ranks_[0]->Explain();
    if (!text.ok()) return text.status();
    Say("%s\n", *text);
  }
  if (options_.describe) {
    const absl::StatusOr<std::string> text = ranks_[0]->Describe();
    if (!text.ok()) return text.status();
    Say("%s\n", *text);
  }
  return absl::OkStatus();
}

void Run::ShowProgress(int64_t step, double loss) {
  PrintEvaluations();
  bar_.Update(step + 1, absl::StrFormat("loss %.3f", loss));
}

void Run::PrintEvaluations() {
  while (printed_evaluations_ < evaluations_.size() &&
         evaluations_[printed_evaluations_].complete()) {
    const Evaluation& evaluation = evaluations_[printed_evaluations_++];
    bar_.Clear();
    Say("step %d: val_loss %.4f\n", evaluation.steps_done, evaluation.mean());
  }
}

// Before the run, whose work would otherwise be lost.
absl::Status Run::CreateFolders() const {
  const std::pair<const char*, std::string> folders[] = {
      {"--trace", options_.trace_dir},
      {"--save", options_.save_dir},
      {"--offload-optimizer", options_.offload_dir},
      {"--flight-record", options_.flight_dir},
      {"--export", options_.exports_folder() ? options_.export_path : ""}};
  for (const auto& [flag, path] : folders) {
    if (path.empty()) continue;
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) {
      return absl::UnavailableError(
          absl::StrFormat("%s: cannot create the folder '%s': %s", flag, path,
                          error.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status Run::LoadPlugin() const {
  if (options_.plugin.empty()) return absl::OkStatus();
  return FromCore(commsched_plugin_load(options_.plugin.c_str(),
                                        COMMSCHED_PLUGIN_REQUIRED));
}

absl::Status Run::OpenLog() {
  if (options_.log_path.empty()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<StepLog>> log =
      StepLog::Create(options_.log_path, /*append=*/start_.resumed.step > 0,
                      options_.ranks, options_.batch * options_.seq);
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  return absl::OkStatus();
}

absl::Status Run::WriteTraces() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    TRAINER_RETURN_IF_ERROR(ranks_[i]->WriteTrace(
        absl::StrFormat("%s/rank%d.json", options_.trace_dir, i)));
  }
  Say("traces: %s/rank*.json\n", options_.trace_dir);
  return absl::OkStatus();
}

absl::StatusOr<Report> Run::MakeReport() {
  Report report;
  report.ranks = options_.ranks;
  report.zero = options_.zero;
  report.model = options_.model;
  report.schedule = options_.serial ? "serial" : "overlap";
  report.steps = options_.end_step();
  report.first_step = start_.resumed.step;
  report.micro_batches = options_.micro_batches;
  report.cap_bytes = options_.cap_bytes;
  report.val_loss = evaluations_.back().mean();
  for (double loss : last_losses_) {
    report.loss += loss / static_cast<double>(options_.ranks);
  }
  const auto info = ranks_[0]->Info();
  if (!info.ok()) return info.status();
  report.num_parameters = info->num_parameters;
  report.num_buckets = info->num_buckets;
  report.parameter_bytes = info->parameter_bytes;
  report.gradient_bytes = info->gradient_bytes;
  report.optimizer_bytes = info->optimizer_bytes;
  report.arena_bytes = info->arena_bytes;
  report.accumulated_bytes = info->accumulated_bytes;
  report.state_bytes = info->state_bytes;
  report.offloaded_bytes = info->offloaded_bytes;
  report.staging_bytes = info->staging_bytes;
  report.activation_bytes =
      static_cast<uint64_t>(ranks_[0]->model().activation_bytes());
  const auto plan = ranks_[0]->PlanInfo();
  if (!plan.ok()) return plan.status();
  report.plan_fingerprint = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(plan->fingerprint), 16));
  const absl::StatusOr<std::string> digest = MastersSha256(ranks_);
  if (!digest.ok()) return digest.status();
  report.weights_sha256 = *digest;
  const auto loss_scale = ranks_[0]->LossScale();
  if (!loss_scale.ok()) return loss_scale.status();
  report.loss_scale = loss_scale->scale;
  report.skipped_steps = loss_scale->skipped_steps;
  if (!options_.save_dir.empty()) {
    report.num_saves = static_cast<int64_t>(savers_[0]->stalls().size());
    const RankSaver::Stall stall = SummarizeStalls(savers_);
    report.save_copy_s = stall.copy_s;
    report.save_wait_s = stall.wait_s;
  }
  TRAINER_RETURN_IF_ERROR(FillSteps(&report));
  TRAINER_RETURN_IF_ERROR(FillCopies(&report));
  TRAINER_RETURN_IF_ERROR(FillBound(&report));
  return report;
}

absl::Status Run::FillSteps(Report* report) const {
  std::vector<std::vector<StepRecord>> records;
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    absl::StatusOr<std::vector<StepRecord>> steps = rank->StepRecords();
    if (!steps.ok()) return steps.status();
    records.push_back(*std::move(steps));
    const absl::StatusOr<uint64_t> peak = rank->PeakBytesInFlight();
    if (!peak.ok()) return peak.status();
    report->peak_bytes_in_flight =
        std::max(report->peak_bytes_in_flight, *peak);
    report->peak_live_bytes =
        std::max(report->peak_live_bytes, rank->PeakLiveBytes());
  }
  // A step before a validation or a save seems to last until that is over. The
  // trace counts the steps of this run.
  std::vector<uint64_t> excluded;
  for (int64_t step = start_.resumed.step; step < options_.end_step(); ++step) {
    if (EvaluatesAfter(step) || SavesAfter(step)) {
      excluded.push_back(static_cast<uint64_t>(step - start_.resumed.step));
    }
  }
  report->step = Summarize(records, kWarmupSteps, excluded);
  if (report->step.steps == 0) {
    report->step.step_s = wall_s_ / static_cast<double>(options_.end_step() -
                                                        start_.resumed.step);
  }
  report->tokens_per_s =
      static_cast<double>(options_.batch * options_.seq) / report->step.step_s;
  return absl::OkStatus();
}

absl::Status Run::FillCopies(Report* report) const {
  const double steps =
      static_cast<double>(options_.end_step() - start_.resumed.step);
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    const auto info = rank->Info();
    if (!info.ok()) return info.status();
    report->copy_s = std::max(
        report->copy_s, static_cast<double>(info->copy_ns) * 1e-9 / steps);
    report->copy_exposed_s =
        std::max(report->copy_exposed_s,
                 static_cast<double>(info->copy_exposed_ns) * 1e-9 / steps);
  }
  return absl::OkStatus();
}

// The bound from measured costs: the mean over the ranks, whose plans are one.
absl::Status Run::FillBound(Report* report) const {
  std::vector<int64_t> costs;
  for (const std::unique_ptr<Rank>& rank : ranks_) {
    const absl::StatusOr<std::vector<int64_t>> mine = rank->OpCostsNs();
    if (!mine.ok()) return mine.status();
    costs.resize(mine->size());
    for (size_t op = 0; op < costs.size(); ++op) {
      costs[op] += (*mine)[op] / options_.ranks;
    }
  }
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  sched_getaffinity(0, sizeof(cpus), &cpus);
  commsched_cost_profile_t profile = commsched_cost_profile_init();
  // Without emulation the links are memory: their cost is the CPU time of the
  // copies. Of a launch, only what was measured counts.
  profile.link_bytes_per_s =
      options_.link.bytes_per_s > 0 ? options_.link.bytes_per_s : 1e18;
  profile.link_latency_ns = options_.link.latency_ns;
  profile.launch_ns = 1;
  profile.num_ranks_sharing = static_cast<uint32_t>(options_.ranks);
  profile.num_cores = static_cast<uint32_t>(
      std::clamp<int64_t>(CPU_COUNT(&cpus), 1, options_.ranks));
  profile.op_cost_ns = costs.data();
  profile.num_ops = costs.size();
  const absl::StatusOr<commsched_prediction_t> prediction =
      ranks_[0]->Predict(profile);
  if (!prediction.ok()) return prediction.status();
  report->bound.predicted_s = static_cast<double>(prediction->step_ns) * 1e-9;
  report->bound.total_s =
      static_cast<double>(prediction->lower_bound_ns) * 1e-9;
  report->bound.compute_s =
      static_cast<double>(prediction->bound_compute_ns) * 1e-9;
  report->bound.link_s = static_cast<double>(prediction->bound_link_ns) * 1e-9;
  report->bound.cycle_s =
      static_cast<double>(prediction->bound_cycle_ns) * 1e-9;
  report->bound.phases_s =
      static_cast<double>(prediction->bound_phases_ns) * 1e-9;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Report> Train(const Options& options, const Dataset& dataset,
                             std::FILE* out) {
  Start start;
  if (!options.save_dir.empty() || !options.resume_dir.empty()) {
    start.identity = IdentifyRun(options, dataset);
  }
  if (!options.resume_dir.empty()) {
    absl::StatusOr<Resumed> resumed = OpenForResume(options, start.identity);
    if (!resumed.ok()) return resumed.status();
    for (const std::string& remark : resumed->remarks) {
      absl::FPrintF(stderr, "commsched-train: %s\n", remark);
    }
    start.resumed = *std::move(resumed);
  }
  return Run(options, dataset, std::move(start), out).Go();
}

}  // namespace commsched::trainer
