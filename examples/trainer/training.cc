#include "examples/trainer/training.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/c_api.h"
#include "examples/trainer/checkpoint.h"
#include "examples/trainer/figures.h"
#include "examples/trainer/job.h"
#include "examples/trainer/matmul.h"
#include "examples/trainer/memory_watch.h"
#include "examples/trainer/output_paths.h"
#include "examples/trainer/progress_bar.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/rank_threads.h"
#include "examples/trainer/step_gate.h"
#include "examples/trainer/step_log.h"
#include "examples/trainer/tally.h"
#include "examples/trainer/units.h"

namespace commsched::trainer {
namespace {

// How long ranks that show each other whether they are asked to end wait for
// one that is late, before they begin anew.
constexpr std::chrono::seconds kGateTimeout{2};

// A rank of this process, and what its thread leaves for the report.
struct LocalRank {
  int64_t index = 0;  // Among all.
  std::unique_ptr<Rank> rank;
  std::unique_ptr<RankSaver> saver;  // Null: none.
  std::atomic<bool> writes = false;  // It waits for the disk.
  RankFigures::Totals totals;
};

absl::StatusOr<commsched_plan_info_t> CorePlan(const Rank& rank) {
  return Filled(commsched_plan_info_init(), commsched_plan_get_info,
                commsched_engine_plan(rank.engine()));
}

// The run: setup, loop and report, and what the threads of ranks share.
class Run {
 public:
  Run(const Options& options, const Dataset& dataset, RunIdentity identity,
      Resumed resumed, const RunHooks& hooks, const Job& job)
      : options_(options),
        hooks_(hooks),
        job_(job),
        identity_(std::move(identity)),
        resumed_(std::move(resumed)),
        sampler_(dataset, options.seq, static_cast<uint64_t>(options.seed)),
        ranks_(static_cast<size_t>(job.count())),
        bar_(stderr, options.steps, std::getenv("COMMSCHED_TERMINAL")),
        validations_(options.ranks) {}

  absl::StatusOr<Report> Go() {
    TRAINER_RETURN_IF_ERROR(SetUp());
    TRAINER_RETURN_IF_ERROR(RunThreads());
    TRAINER_RETURN_IF_ERROR(Finish());
    return MakeReport();
  }

 private:
  // Before the ranks' threads.
  absl::Status SetUp();
  absl::Status CheckOutputs() const;
  absl::Status CheckMemory() const;
  StepSink Sink(const Rank& rank);

  // On them, each rank's on its own.
  absl::Status RunThreads();
  absl::Status TrainRank(LocalRank& local);
  absl::Status BuildRank(LocalRank& local);
  absl::Status TrainSteps(LocalRank& local, RankLog* log);
  absl::Status Save(LocalRank& local);
  absl::Status Evaluate(LocalRank& local, int64_t steps_done);
  absl::Status CheckLoss(const char* what, double loss, int64_t steps) const;
  absl::Status PrintPlan();
  void AddValidation(int64_t rank, int64_t steps_done, double loss);
  void ClearBar();

  // After them.
  absl::Status Finish();
  absl::StatusOr<std::vector<RankFigures>> Figures();
  absl::StatusOr<Report> MakeReport();
  void FillSteps(const std::vector<RankFigures>& ranks, Report* report) const;

  // Whether to evaluate before the last step is over.
  bool EvaluatesAfter(int64_t step) const {
    return options_.eval_every > 0 && (step + 1) % options_.eval_every == 0 &&
           step + 1 < options_.end_step();
  }
  bool SavesAfter(int64_t step) const {
    if (options_.save_dir.empty()) return false;
    return step + 1 == options_.end_step() ||
           (options_.save_every > 0 && (step + 1) % options_.save_every == 0);
  }
  std::string TracePath(int64_t index) const {
    return absl::StrFormat("%s/rank%d.json", options_.trace_dir, index);
  }
  template <typename... Args>
  void Say(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (hooks_.out == nullptr) return;
    absl::FPrintF(hooks_.out, format, args...);
    std::fflush(hooks_.out);
  }

  const Options& options_;
  const RunHooks& hooks_;
  const Job& job_;
  const RunIdentity identity_;
  Resumed resumed_;  // The checkpoint: until all ranks have loaded it.
  const Sampler sampler_;
  std::vector<LocalRank> ranks_;
  std::atomic<int64_t> num_built_{0};
  std::atomic<int64_t> num_ready_{0};  // Ranks that nothing refused.
  MemoryWatch memory_;
  std::unique_ptr<StepLog> log_;           // Null: none here.
  std::unique_ptr<GatheredLog> gathered_;  // Of processes, to it.
  std::unique_ptr<StepGate> gate_;         // Of threads from SetUp() on.

  // Of rank 0's thread, then of the main one.
  double wall_s_ = 0;  // Of all steps.
  std::string weights_sha256_;

  std::mutex progress_mutex_;  // Guards what follows.
  ProgressBar bar_;
  Tally<double> validations_;  // Losses, by the steps done.
  double val_loss_ = 0;        // The last one.
};

absl::Status Run::SetUp() {
  TRAINER_RETURN_IF_ERROR(CheckOutputs());
  gate_ = std::make_unique<StepGate>(resumed_.step, options_.end_step(),
                                     hooks_.end_early);
  if (!options_.plugin.empty()) {
    TRAINER_CALL(commsched_plugin_load(options_.plugin.c_str(),
                                       COMMSCHED_PLUGIN_REQUIRED));
  }
  if (!options_.log_path.empty() && job_.leads()) {
    TRAINER_ASSIGN_OR_RETURN(log_,
                             StepLog::Create(options_.log_path, options_.ranks,
                                             options_.batch * options_.seq));
  }
  for (LocalRank& local : ranks_) {
    local.index = job_.first() + (&local - ranks_.data());
    TRAINER_ASSIGN_OR_RETURN(
        local.rank,
        Rank::Create(options_, sampler_, job_.world(), local.index));
    // Before any has the memory of its model.
    if (&local == &ranks_.front()) TRAINER_RETURN_IF_ERROR(CheckMemory());
  }
  return absl::OkStatus();
}

// Before the run, whose work would otherwise be lost.
absl::Status Run::CheckOutputs() const {
  const std::pair<const char*, const std::string&> folders[] = {
      {"--trace", options_.trace_dir},
      {"--save", options_.save_dir},
      {"--offload-optimizer", options_.offload_dir},
      {"--offload-gradients", options_.offload_gradients_dir},
      {"--flight-record", options_.flight_dir}};
  for (const auto& [flag, path] : folders) {
    if (!path.empty()) TRAINER_RETURN_IF_ERROR(CheckFolder(flag, path));
  }
  for (int64_t i = 0; !options_.trace_dir.empty() && i < job_.count(); ++i) {
    TRAINER_RETURN_IF_ERROR(CheckFile("--trace", TracePath(job_.first() + i)));
  }
  return CheckExportPath(options_);
}

// Ranks share this machine.
absl::Status Run::CheckMemory() const {
  const Rank& first = *ranks_[0].rank;
  TRAINER_ASSIGN_OR_RETURN(const commsched_step_plan_info_t plan,
                           first.PlannedInfo());
  const uint64_t state_bytes = plan.parameter_bytes + plan.gradient_bytes +
                               plan.optimizer_bytes + plan.arena_bytes;
  const auto activations =
      static_cast<uint64_t>(first.model().activation_bytes());
  const uint64_t rank = state_bytes + activations;
  const auto limit = static_cast<uint64_t>(PhysicalBytes());
  const auto ranks =
      static_cast<uint64_t>(NumSharing(options_, first.context()));
  if (rank <= limit / ranks) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%d ranks take %d bytes of memory, each %d of model state and %d of "
      "activations; the machine has %d",
      ranks, ranks * rank, state_bytes, activations, limit));
}

absl::Status Run::RunThreads() {
  const auto local = [this](int64_t rank) -> LocalRank& {
    return ranks_[static_cast<size_t>(rank)];
  };
  const absl::Status status = RunRanks(
      job_.count(),
      {.first = job_.first(),
       .run = [&](int64_t rank) { return TrainRank(local(rank)); },
       .abort =
           [&](int64_t rank, const absl::Status& reason) {
             local(rank).rank->Abort(reason);
           },
       .on_failure =
           [this](const absl::Status& failure) {
             ClearBar();
             if (hooks_.on_failure) hooks_.on_failure(failure);
           },
       .writes = [&](int64_t rank) { return local(rank).writes.load(); }});
  ClearBar();
  return status;
}

absl::Status Run::TrainRank(LocalRank& local) {
  Rank& rank = *local.rank;
  TRAINER_RETURN_IF_ERROR(BuildRank(local));
  const bool is_first = local.index == 0;
  if (is_first) TRAINER_RETURN_IF_ERROR(PrintPlan());
  if (job_.has_processes()) {
    gate_ = std::make_unique<StepGate>(
        resumed_.step, options_.end_step(), hooks_.end_early,
        [&rank](const StepGate::Shown& mine) {
          return GatherValues(rank.context(), "gate", mine, kGateTimeout);
        });
  }
  RankLog log(Sink(rank), rank, local.index, resumed_.step);
  const auto begin = std::chrono::steady_clock::now();
  TRAINER_RETURN_IF_ERROR(TrainSteps(local, &log));
  if (is_first) wall_s_ = SecondsSince(begin);
  // A checkpoint is what an impatient caller would miss most.
  if (gate_->ended_early() && local.saver != nullptr) {
    TRAINER_RETURN_IF_ERROR(local.saver->Wait());
  }
  TRAINER_RETURN_IF_ERROR(Evaluate(local, gate_->end()));
  TRAINER_RETURN_IF_ERROR(log.Finish());
  local.totals.process_peak_bytes = memory_.PeakBytes();
  local.totals.save_bytes = memory_.SaveBytes();
  TRAINER_ASSIGN_OR_RETURN(std::string digest, rank.WeightsSha256());
  if (is_first) weights_sha256_ = std::move(digest);
  return local.saver == nullptr ? absl::OkStatus() : local.saver->Wait();
}

// Where `rank` tells of its steps; null: there is no log.
StepSink Run::Sink(const Rank& rank) {
  if (options_.log_path.empty()) return nullptr;
  if (job_.has_processes()) {
    gathered_ = std::make_unique<GatheredLog>(rank.context(), log_.get());
    return [this](int64_t, const StepEntry& entry) { gathered_->Add(entry); };
  }
  return [this](int64_t index, const StepEntry& entry) {
    log_->Add(index, entry);
  };
}

absl::Status Run::BuildRank(LocalRank& local) {
  TRAINER_RETURN_IF_ERROR(local.rank->Build(resumed_.checkpoint.get()));
  if (hooks_.on_built) hooks_.on_built();
  // Open files keep their room on the disk when a save has removed them.
  if (num_built_.fetch_add(1) + 1 == job_.count()) {
    resumed_.checkpoint.reset();
  }
  if (!options_.save_dir.empty()) {
    memory_.BeforeSaver();
    TRAINER_ASSIGN_OR_RETURN(
        local.saver, RankSaver::Create(options_, identity_,
                                       local.rank->engine(), &local.writes));
    memory_.AfterSaver();
  }
  // The log of an earlier run stays as it is where this one is refused.
  const bool all_ready = num_ready_.fetch_add(1) + 1 == job_.count();
  if (!all_ready || log_ == nullptr) return absl::OkStatus();
  return log_->Begin(resumed_.step);
}

absl::Status Run::TrainSteps(LocalRank& local, RankLog* log) {
  int64_t step = resumed_.step;
  for (; gate_->Enter(step); ++step) {
    // Of the step before, which turned out not to be the last.
    if (step > resumed_.step && EvaluatesAfter(step - 1)) {
      TRAINER_RETURN_IF_ERROR(Evaluate(local, step));
    }
    log->Begin();
    TRAINER_ASSIGN_OR_RETURN(const double loss, local.rank->Step(step));
    TRAINER_RETURN_IF_ERROR(log->End(step, loss));
    TRAINER_RETURN_IF_ERROR(CheckLoss("loss", loss, step + 1));
    local.totals.last_loss = loss;
    if (local.index == 0) {
      const std::lock_guard<std::mutex> lock(progress_mutex_);
      bar_.Update(step + 1, absl::StrFormat("loss %.3f", loss));
    }
    if (SavesAfter(step)) TRAINER_RETURN_IF_ERROR(Save(local));
  }
  const bool saved = local.saver == nullptr || SavesAfter(step - 1);
  return saved ? absl::OkStatus() : Save(local);
}

absl::Status Run::Save(LocalRank& local) {
  if (local.saver->stalls().empty()) memory_.BeforeFirstSave();
  return local.saver->Save();
}

absl::Status Run::CheckLoss(const char* what, double loss,
                            int64_t steps) const {
  if (std::isfinite(loss) || options_.allow_nan) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrFormat(
      "%s after step %d is %f, which is not finite; a lower --lr or --clip may "
      "help; --allow-nan continues",
      what, steps, std::fabs(loss)));
}

absl::Status Run::Evaluate(LocalRank& local, int64_t steps_done) {
  TRAINER_ASSIGN_OR_RETURN(const double loss, local.rank->Evaluate());
  TRAINER_RETURN_IF_ERROR(CheckLoss("val_loss", loss, steps_done));
  if (!job_.has_processes()) {
    AddValidation(local.index, steps_done, loss);
    return absl::OkStatus();
  }
  // A run that ends early waits for checkpoints first, each as long as its disk
  // takes.
  TRAINER_ASSIGN_OR_RETURN(
      const std::vector<double> all,
      GatherValues(
          local.rank->context(), "val_loss", loss,
          gate_->ended_early() ? std::chrono::nanoseconds(0) : job_.timeout()));
  for (size_t other = 0; other < all.size(); ++other) {
    AddValidation(static_cast<int64_t>(other), steps_done, all[other]);
  }
  return absl::OkStatus();
}

absl::Status Run::PrintPlan() {
  const Rank& rank = *ranks_[0].rank;
  TRAINER_ASSIGN_OR_RETURN(const commsched_engine_info_t info, rank.Info());
  TRAINER_ASSIGN_OR_RETURN(const commsched_plan_info_t plan, CorePlan(rank));
  Say("%s: %d parameters in %d buckets; %d ranks, ZeRO-%d; %d collectives in "
      "%d launches per step\n"
      "matrix products: %s\n",
      options_.model, info.num_parameters, info.num_buckets, options_.ranks,
      options_.zero, plan.num_collectives, plan.num_launches, MatmulLibrary());
  if (options_.explain) {
    TRAINER_ASSIGN_OR_RETURN(const std::string text, ExplainPlan(rank));
    Say("%s\n", text);
  }
  if (options_.describe) {
    TRAINER_ASSIGN_OR_RETURN(const std::string text,
                             DescribePlan(rank, options_));
    Say("%s\n", text);
  }
  return absl::OkStatus();
}

// Added up in the order of ranks, so that the sum is the same in every run.
void Run::AddValidation(int64_t rank, int64_t steps_done, double loss) {
  const std::lock_guard<std::mutex> lock(progress_mutex_);
  const std::vector<double> all = validations_.Add(rank, steps_done, loss);
  if (all.empty()) return;
  val_loss_ = std::accumulate(all.begin(), all.end(), 0.0) /
              static_cast<double>(all.size());
  bar_.Clear();
  Say("step %d: val_loss %.4f\n", steps_done, val_loss_);
}

void Run::ClearBar() {
  const std::lock_guard<std::mutex> lock(progress_mutex_);
  bar_.Clear();
}

absl::Status Run::Finish() {
  if (job_.has_processes()) {
    // What the others have saved is there, which takes as long as it does.
    TRAINER_RETURN_IF_ERROR(
        Gather(ranks_[0].rank->context(), "ended", "").status());
  }
  if (!options_.trace_dir.empty()) {
    for (const LocalRank& local : ranks_) {
      TRAINER_CALL(commsched_trace_write_kineto(
          local.rank->trace(), TracePath(local.index).c_str()));
    }
    Say("traces: %s/rank*.json\n", options_.trace_dir);
  }
  if (!options_.export_path.empty() && job_.leads()) {
    TRAINER_RETURN_IF_ERROR(ExportWeights(options_.save_dir, options_));
  }
  if (gathered_ != nullptr) gathered_->Finish();
  if (log_ != nullptr) TRAINER_RETURN_IF_ERROR(log_->Close());
  if (!options_.blame) return absl::OkStatus();
  TRAINER_ASSIGN_OR_RETURN(
      const std::string text,
      TextOf(commsched_trace_explain, ranks_[0].rank->trace(), COMMSCHED_TEXT));
  Say("%s\n", text);
  return absl::OkStatus();
}

// By rank, of all of them.
absl::StatusOr<std::vector<RankFigures>> Run::Figures() {
  std::vector<RankFigures> all;
  for (const LocalRank& local : ranks_) {
    TRAINER_ASSIGN_OR_RETURN(
        all.emplace_back(),
        FiguresOf(*local.rank, local.saver.get(), local.totals));
  }
  if (!job_.has_processes()) return all;
  return GatherFigures(ranks_[0].rank->context(), all[0], job_.timeout());
}

absl::StatusOr<Report> Run::MakeReport() {
  TRAINER_ASSIGN_OR_RETURN(const std::vector<RankFigures> ranks, Figures());
  const Rank& rank = *ranks_[0].rank;
  Report report;
  report.options = options_;
  report.steps = gate_->end();
  report.end_signal = gate_->signal();
  report.first_step = resumed_.step;
  report.val_loss = val_loss_;
  report.ranks_per_process = job_.count();
  report.weights_sha256 = weights_sha256_;
  TRAINER_ASSIGN_OR_RETURN(report.engine, rank.Info());
  report.activation_bytes =
      static_cast<uint64_t>(rank.model().activation_bytes());
  TRAINER_ASSIGN_OR_RETURN(const commsched_plan_info_t plan, CorePlan(rank));
  report.plan_fingerprint = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(plan.fingerprint), 16));
  TRAINER_ASSIGN_OR_RETURN(
      const commsched_engine_loss_scale_info_t loss_scale,
      Filled(commsched_engine_loss_scale_info_init(),
             commsched_engine_get_loss_scale, rank.engine()));
  report.loss_scale = loss_scale.scale;
  report.skipped_steps = loss_scale.skipped_steps;
  FillFigures(ranks, gate_->end() - resumed_.step, &report);
  FillSteps(ranks, &report);
  TRAINER_RETURN_IF_ERROR(FillBound(ranks, options_, rank, &report));
  return report;
}

void Run::FillSteps(const std::vector<RankFigures>& ranks,
                    Report* report) const {
  std::vector<std::vector<StepRecord>> records;
  for (const RankFigures& rank : ranks) records.push_back(rank.steps);
  // A step before a validation or a save seems to last until that is over. The
  // trace counts the steps of this run.
  std::vector<uint64_t> excluded;
  for (const StepRecord& record : records[0]) {
    const int64_t step =
        resumed_.step + static_cast<int64_t>(record.metrics.step);
    if (EvaluatesAfter(step) || SavesAfter(step)) {
      excluded.push_back(record.metrics.step);
    }
  }
  report->step = Summarize(records, kWarmupSteps, excluded);
  if (report->step.steps == 0) {
    report->step.step_s =
        wall_s_ / static_cast<double>(gate_->end() - resumed_.step);
  }
  report->tokens_per_s =
      static_cast<double>(options_.batch * options_.seq) / report->step.step_s;
}

}  // namespace

absl::StatusOr<Report> Train(const Options& options, const Dataset& dataset,
                             const RunHooks& hooks) {
  std::optional<Job> threads;
  if (hooks.job == nullptr) {
    TRAINER_ASSIGN_OR_RETURN(threads, Job::OfThreads(options));
  }
  const Job& job = hooks.job != nullptr ? *hooks.job : *threads;
  RunIdentity identity;
  Resumed resumed;  // From step 0, unless there is a checkpoint.
  if (!options.save_dir.empty() || !options.resume_dir.empty()) {
    identity = IdentifyRun(options, dataset);
    TRAINER_RETURN_IF_ERROR(job.TakeFromRank0(&identity.name));
  }
  if (!options.resume_dir.empty()) {
    TRAINER_ASSIGN_OR_RETURN(resumed, OpenForResume(options, identity));
    for (const std::string& remark : resumed.remarks) {
      if (!job.leads()) break;
      absl::FPrintF(stderr, "commsched-train: %s\n", remark);
    }
  }
  return Run(options, dataset, std::move(identity), std::move(resumed), hooks,
             job)
      .Go();
}

}  // namespace commsched::trainer
