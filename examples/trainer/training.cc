#include "examples/trainer/training.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/c_status.h"
#include "examples/trainer/checkpoint.h"
#include "examples/trainer/figures.h"
#include "examples/trainer/gathered_log.h"
#include "examples/trainer/job.h"
#include "examples/trainer/job_gate.h"
#include "examples/trainer/machine.h"
#include "examples/trainer/masters.h"
#include "examples/trainer/matmul.h"
#include "examples/trainer/memory_watch.h"
#include "examples/trainer/output_paths.h"
#include "examples/trainer/progress_bar.h"
#include "examples/trainer/rank.h"
#include "examples/trainer/rank_log.h"
#include "examples/trainer/rank_threads.h"
#include "examples/trainer/status_macros.h"
#include "examples/trainer/step_gate.h"
#include "examples/trainer/step_log.h"
#include "examples/trainer/units.h"
#include "examples/trainer/validations.h"

namespace commsched::trainer {
namespace {

// Where a run begins: at a checkpoint, or at step 0 without one.
struct Start {
  RunIdentity identity;
  Resumed resumed;
};

// How long ranks that show each other whether they are asked to end wait for
// one that is late, before they begin anew.
constexpr std::chrono::seconds kGateTimeout{2};

// --timeout is also how long a rank may stay behind at the end.
std::chrono::seconds StragglingLimit(const Options& options) {
  if (options.timeout_s > 0) return std::chrono::seconds(options.timeout_s);
  return std::chrono::seconds(options.link.bytes_per_s > 0 ? 600 : 60);
}

// The run: ranks, and what their threads share. Threads write to their own
// slots.
class Run {
 public:
  Run(const Options& options, const Dataset& dataset, Start start,
      const RunHooks& hooks, const Job& job)
      : options_(options),
        hooks_(hooks),
        job_(job),
        start_(std::move(start)),
        sampler_(dataset, options.seq, static_cast<uint64_t>(options.seed)),
        last_losses_(static_cast<size_t>(job.count())),
        writes_(static_cast<size_t>(job.count())),
        savers_(static_cast<size_t>(job.count())),
        gate_(start_.resumed.step, options.end_step(), hooks.end_early),
        validations_(options.ranks),
        bar_(stderr, options.steps, std::getenv("COMMSCHED_TERMINAL")) {}

  absl::StatusOr<Report> Go();

 private:
  absl::Status CreateRanks();
  absl::Status CheckMemory() const;
  absl::Status TrainRank(int64_t index);
  absl::Status TrainSteps(int64_t index, RankLog* log);
  absl::Status CheckLoss(const char* what, double loss, int64_t steps) const;
  absl::Status Evaluate(int64_t index, int64_t steps_done);
  // Whether to evaluate before the last step is over.
  bool EvaluatesAfter(int64_t step) const;
  bool SavesAfter(int64_t step) const;
  template <typename... Args>
  void Say(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (hooks_.out == nullptr) return;
    absl::FPrintF(hooks_.out, format, args...);
    std::fflush(hooks_.out);
  }
  absl::Status PrintPlan();
  void ShowProgress(int64_t step, double loss);
  void PrintValidations();
  absl::StatusOr<std::vector<RankFigures>> GatherFigures();
  absl::Status Save(RankSaver* saver);
  absl::StatusOr<Report> MakeReport();
  void FillSteps(const std::vector<RankFigures>& ranks, Report* report) const;
  absl::Status CheckOutputs() const;
  std::string TracePath(int64_t index) const;
  absl::Status LoadPlugin() const;
  absl::Status OpenLog();
  absl::Status WriteTraces();

  const Options& options_;
  const RunHooks& hooks_;
  const Job& job_;
  Start start_;  // The checkpoint: until all ranks have loaded it.
  std::atomic<int64_t> num_built_{0};
  std::atomic<int64_t> num_ready_{0};  // Ranks that nothing refused.
  const Sampler sampler_;
  // By rank, of those in this process.
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<double> last_losses_;
  std::vector<std::atomic<bool>> writes_;
  std::vector<std::unique_ptr<RankSaver>> savers_;  // Null: none.
  MemoryWatch memory_;
  std::unique_ptr<StepLog> log_;           // Null: none here.
  std::unique_ptr<GatheredLog> gathered_;  // Of processes, to it.
  StepGate gate_;
  std::unique_ptr<JobGate> job_gate_;  // Of a process, instead; else null.
  Validations validations_;
  double wall_s_ = 0;  // Of all steps, on rank 0's thread.

  bool Enters(int64_t step) {
    return job_gate_ ? job_gate_->Enter(step) : gate_.Enter(step);
  }
  int64_t End() const { return job_gate_ ? job_gate_->end() : gate_.end(); }
  bool EndedEarly() const {
    return job_gate_ ? job_gate_->ended_early() : gate_.ended_early();
  }
  int EndSignal() const {
    if (!EndedEarly()) return 0;
    return job_gate_ ? job_gate_->signal() : hooks_.end_early->load();
  }
  std::unique_ptr<JobGate> MakeJobGate();
  size_t LocalOf(int64_t index) const {
    return static_cast<size_t>(index - job_.first());
  }

  // Rank 0's thread, then the main one.
  ProgressBar bar_;
  double val_loss_ = 0;  // The last one printed.
};

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
  for (int64_t i = 0; i < job_.count(); ++i) {
    absl::StatusOr<std::unique_ptr<Rank>> rank =
        Rank::Create(options_, sampler_, job_.world(), job_.first() + i);
    if (!rank.ok()) return rank.status();
    ranks_.push_back(*std::move(rank));
    if (i == 0) TRAINER_RETURN_IF_ERROR(CheckMemory());
  }
  return absl::OkStatus();
}

// Ranks share this machine. Looked at before any of them has the memory of its
// model.
absl::Status Run::CheckMemory() const {
  const auto state_bytes = ranks_[0]->StateBytes();
  if (!state_bytes.ok()) return state_bytes.status();
  const auto activations =
      static_cast<uint64_t>(ranks_[0]->model().activation_bytes());
  const uint64_t rank = *state_bytes + activations;
  const auto limit = static_cast<uint64_t>(PhysicalBytes());
  const auto ranks =
      static_cast<uint64_t>(NumSharing(options_, ranks_[0]->context()));
  if (rank <= limit / ranks) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%d ranks take %d bytes of memory, each %d of model state and %d of "
      "activations; the machine has %d",
      ranks, ranks * rank, *state_bytes, activations, limit));
}

absl::StatusOr<Report> Run::Go() {
  TRAINER_RETURN_IF_ERROR(CheckOutputs());
  TRAINER_RETURN_IF_ERROR(LoadPlugin());
  TRAINER_RETURN_IF_ERROR(OpenLog());
  TRAINER_RETURN_IF_ERROR(CreateRanks());
  const absl::Status status = RunRanks(
      job_.count(),
      {.first = job_.first(),
       .run = [this](int64_t rank) { return TrainRank(job_.first() + rank); },
       .abort =
           [this](int64_t rank, const absl::Status& reason) {
             ranks_[static_cast<size_t>(rank)]->Abort(reason);
           },
       .on_failure =
           [this](const absl::Status& failure) {
             bar_.Erase();
             hooks_.on_failure(failure);
           },
       .writes =
           [this](int64_t rank) {
             return writes_[static_cast<size_t>(rank)].load();
           },
       .straggling = StragglingLimit(options_)});
  bar_.Clear();
  if (!status.ok()) return status;
  if (job_.has_processes()) {
    // What the others have saved is there, which takes as long as it does.
    const auto ended = Gather(ranks_[0]->context(), "ended", "");
    if (!ended.ok()) return ended.status();
  }
  PrintValidations();
  if (!options_.trace_dir.empty()) TRAINER_RETURN_IF_ERROR(WriteTraces());
  if (!options_.export_path.empty() && job_.leads()) {
    TRAINER_RETURN_IF_ERROR(ExportWeights(options_.save_dir, options_));
  }
  if (gathered_ != nullptr) gathered_->Finish();
  if (log_ != nullptr) TRAINER_RETURN_IF_ERROR(log_->Close());
  if (options_.blame) {
    const absl::StatusOr<std::string> text = ranks_[0]->Blame();
    if (!text.ok()) return text.status();
    Say("%s\n", *text);
  }
  return MakeReport();
}

absl::Status Run::TrainRank(int64_t index) {
  Rank& rank = *ranks_[LocalOf(index)];
  TRAINER_RETURN_IF_ERROR(rank.Build(start_.resumed.checkpoint.get()));
  if (hooks_.on_built) hooks_.on_built();
  // Open files keep their room on the disk when a save has removed them.
  if (num_built_.fetch_add(1) + 1 == job_.count()) {
    start_.resumed.checkpoint.reset();
  }
  std::unique_ptr<RankSaver>& saver = savers_[LocalOf(index)];
  if (!options_.save_dir.empty()) {
    memory_.BeforeSaver();
    absl::StatusOr<std::unique_ptr<RankSaver>> created = RankSaver::Create(
        options_, start_.identity, rank.engine(), &writes_[LocalOf(index)]);
    if (!created.ok()) return created.status();
    saver = *std::move(created);
    memory_.AfterSaver();
  }
  // The log of an earlier run stays as it is where this one is refused.
  if (num_ready_.fetch_add(1) + 1 == job_.count() && log_ != nullptr) {
    TRAINER_RETURN_IF_ERROR(log_->Begin(start_.resumed.step));
  }
  if (index == 0) TRAINER_RETURN_IF_ERROR(PrintPlan());
  if (!options_.log_path.empty() && job_.has_processes()) {
    gathered_ = std::make_unique<GatheredLog>(rank.context(), log_.get());
  }
  StepSink* const sink = gathered_ != nullptr
                             ? static_cast<StepSink*>(gathered_.get())
                             : log_.get();
  RankLog log(sink, rank, index, start_.resumed.step);
  const auto begin = std::chrono::steady_clock::now();
  TRAINER_RETURN_IF_ERROR(TrainSteps(index, &log));
  if (index == 0) {
    const std::chrono::duration<double> wall =
        std::chrono::steady_clock::now() - begin;
    wall_s_ = wall.count();
  }
  // A checkpoint is what an impatient caller would miss most.
  if (EndedEarly() && saver != nullptr) {
    TRAINER_RETURN_IF_ERROR(saver->Wait());
  }
  TRAINER_RETURN_IF_ERROR(Evaluate(index, End()));
  TRAINER_RETURN_IF_ERROR(log.Finish());
  return saver == nullptr ? absl::OkStatus() : saver->Wait();
}

std::unique_ptr<JobGate> Run::MakeJobGate() {
  commsched_context_t* const context = ranks_[0]->context();
  return std::make_unique<JobGate>(
      start_.resumed.step, options_.end_step(), hooks_.end_early,
      [context](const JobGate::Shown& mine)
          -> absl::StatusOr<std::vector<JobGate::Shown>> {
        const absl::StatusOr<std::vector<std::string>> shown =
            Gather(context, "gate",
                   absl::string_view(reinterpret_cast<const char*>(&mine),
                                     sizeof(mine)),
                   kGateTimeout);
        if (!shown.ok()) return shown.status();
        std::vector<JobGate::Shown> all(shown->size());
        for (size_t rank = 0; rank < all.size(); ++rank) {
          const std::string& bytes = (*shown)[rank];
          if (bytes.size() != sizeof(mine)) {
            return absl::DataLossError("a rank shows something else");
          }
          std::memcpy(&all[rank], bytes.data(), sizeof(mine));
        }
        return all;
      });
}

absl::Status Run::TrainSteps(int64_t index, RankLog* log) {
  if (job_.has_processes()) job_gate_ = MakeJobGate();
  Rank& rank = *ranks_[LocalOf(index)];
  RankSaver* const saver = savers_[LocalOf(index)].get();
  int64_t step = start_.resumed.step;
  for (; Enters(step); ++step) {
    // Of the step before, which turned out not to be the last.
    if (step > start_.resumed.step && EvaluatesAfter(step - 1)) {
      TRAINER_RETURN_IF_ERROR(Evaluate(index, step));
    }
    log->Begin();
    const absl::StatusOr<double> loss = rank.Step(step);
    if (!loss.ok()) return loss.status();
    TRAINER_RETURN_IF_ERROR(log->End(step, *loss));
    TRAINER_RETURN_IF_ERROR(CheckLoss("loss", *loss, step + 1));
    last_losses_[LocalOf(index)] = *loss;
    if (index == 0) ShowProgress(step, *loss);
    if (SavesAfter(step)) TRAINER_RETURN_IF_ERROR(Save(saver));
  }
  const bool saved = saver == nullptr || SavesAfter(step - 1);
  return saved ? absl::OkStatus() : Save(saver);
}

absl::Status Run::Save(RankSaver* saver) {
  if (saver->stalls().empty()) memory_.BeforeFirstSave();
  return saver->Save();
}

absl::Status Run::CheckLoss(const char* what, double loss,
                            int64_t steps) const {
  if (std::isfinite(loss) || options_.allow_nan) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrFormat(
      "%s after step %d is %f, which is not finite; a lower --lr or --clip may "
      "help; --allow-nan continues",
      what, steps, std::fabs(loss)));
}

absl::Status Run::Evaluate(int64_t index, int64_t steps_done) {
  Rank& rank = *ranks_[LocalOf(index)];
  const absl::StatusOr<double> loss = rank.Evaluate();
  if (!loss.ok()) return loss.status();
  TRAINER_RETURN_IF_ERROR(CheckLoss("val_loss", *loss, steps_done));
  if (!job_.has_processes()) {
    validations_.Add(index, steps_done, *loss);
    return absl::OkStatus();
  }
  // A run that ends early waits for checkpoints first, each as long as its disk
  // takes.
  const absl::StatusOr<std::vector<std::string>> all = Gather(
      rank.context(), "val_loss",
      absl::string_view(reinterpret_cast<const char*>(&*loss), sizeof(double)),
      EndedEarly() ? std::chrono::nanoseconds(0) : job_.timeout());
  if (!all.ok()) return all.status();
  for (size_t other = 0; other < all->size(); ++other) {
    double part = 0;
    if ((*all)[other].size() != sizeof(part)) {
      return absl::DataLossError("a rank shows something else than val_loss");
    }
    std::memcpy(&part, (*all)[other].data(), sizeof(part));
    validations_.Add(static_cast<int64_t>(other), steps_done, part);
  }
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
  PrintValidations();
  bar_.Update(step + 1, absl::StrFormat("loss %.3f", loss));
}

void Run::PrintValidations() {
  while (const auto validation = validations_.Take()) {
    val_loss_ = validation->loss;
    bar_.Clear();
    Say("step %d: val_loss %.4f\n", validation->steps_done, val_loss_);
  }
}

// Before the run, whose work would otherwise be lost.
absl::Status Run::CheckOutputs() const {
  const std::pair<const char*, const std::string&> folders[] = {
      {"--trace", options_.trace_dir},
      {"--save", options_.save_dir},
      {"--offload-optimizer", options_.offload_dir},
      {"--flight-record", options_.flight_dir}};
  for (const auto& [flag, path] : folders) {
    if (!path.empty()) TRAINER_RETURN_IF_ERROR(CheckFolder(flag, path));
  }
  for (int64_t i = 0; !options_.trace_dir.empty() && i < job_.count(); ++i) {
    TRAINER_RETURN_IF_ERROR(CheckFile("--trace", TracePath(job_.first() + i)));
  }
  return CheckExportPath(options_);
}

std::string Run::TracePath(int64_t index) const {
  return absl::StrFormat("%s/rank%d.json", options_.trace_dir, index);
}

absl::Status Run::LoadPlugin() const {
  if (options_.plugin.empty()) return absl::OkStatus();
  return FromCore(commsched_plugin_load(options_.plugin.c_str(),
                                        COMMSCHED_PLUGIN_REQUIRED));
}

absl::Status Run::OpenLog() {
  if (options_.log_path.empty() || !job_.leads()) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<StepLog>> log = StepLog::Create(
      options_.log_path, options_.ranks, options_.batch * options_.seq);
  if (!log.ok()) return log.status();
  log_ = *std::move(log);
  return absl::OkStatus();
}

absl::Status Run::WriteTraces() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    TRAINER_RETURN_IF_ERROR(ranks_[i]->WriteTrace(
        TracePath(job_.first() + static_cast<int64_t>(i))));
  }
  Say("traces: %s/rank*.json\n", options_.trace_dir);
  return absl::OkStatus();
}

// By rank, of all of them.
absl::StatusOr<std::vector<RankFigures>> Run::GatherFigures() {
  std::vector<RankFigures> all;
  for (size_t local = 0; local < ranks_.size(); ++local) {
    absl::StatusOr<RankFigures> figures =
        FiguresOf(*ranks_[local], last_losses_[local], savers_[local].get());
    if (!figures.ok()) return figures.status();
    figures->process_peak_bytes = memory_.PeakBytes();
    figures->save_bytes = memory_.SaveBytes();
    all.push_back(*std::move(figures));
  }
  if (!job_.has_processes()) return all;
  const absl::StatusOr<std::vector<std::string>> shown = Gather(
      ranks_[0]->context(), "figures", EncodeFigures(all[0]), job_.timeout());
  if (!shown.ok()) return shown.status();
  all.clear();
  for (const std::string& bytes : *shown) {
    absl::StatusOr<RankFigures> figures = DecodeFigures(bytes);
    if (!figures.ok()) return figures.status();
    all.push_back(*std::move(figures));
  }
  return all;
}

absl::StatusOr<Report> Run::MakeReport() {
  const absl::StatusOr<std::vector<RankFigures>> ranks = GatherFigures();
  if (!ranks.ok()) return ranks.status();
  Report report;
  report.ranks = options_.ranks;
  report.zero = options_.zero;
  report.model = options_.model;
  report.schedule = options_.serial ? "serial" : "overlap";
  report.steps = End();
  report.end_signal = EndSignal();
  report.first_step = start_.resumed.step;
  report.micro_batches = options_.micro_batches;
  report.cap_bytes = options_.cap_bytes;
  report.val_loss = val_loss_;
  for (const RankFigures& rank : *ranks) {
    report.loss += rank.last_loss / static_cast<double>(options_.ranks);
  }
  const auto info = ranks_[0]->Info();
  if (!info.ok()) return info.status();
  report.num_parameters = info->num_parameters;
  report.num_buckets = info->num_buckets;
  report.given_buckets = info->given_buckets;
  report.given_step_s = static_cast<double>(info->given_step_ns) * 1e-9;
  report.chosen_step_s = static_cast<double>(info->step_ns) * 1e-9;
  report.parameter_bytes = info->parameter_bytes;
  report.gradient_bytes = info->gradient_bytes;
  report.optimizer_bytes = info->optimizer_bytes;
  report.arena_bytes = info->arena_bytes;
  report.accumulated_bytes = info->accumulated_bytes;
  report.state_bytes = info->state_bytes;
  report.due_bytes = info->due_bytes;
  report.offloaded_bytes = info->offloaded_bytes;
  report.staging_bytes = info->staging_bytes;
  report.activation_bytes =
      static_cast<uint64_t>(ranks_[0]->model().activation_bytes());
  const auto plan = ranks_[0]->PlanInfo();
  if (!plan.ok()) return plan.status();
  report.plan_fingerprint = absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(plan->fingerprint), 16));
  const absl::StatusOr<std::string> digest = MastersSha256(ranks_, job_);
  if (!digest.ok()) return digest.status();
  report.weights_sha256 = *digest;
  const auto loss_scale = ranks_[0]->LossScale();
  if (!loss_scale.ok()) return loss_scale.status();
  report.loss_scale = loss_scale->scale;
  report.skipped_steps = loss_scale->skipped_steps;
  if (!options_.save_dir.empty()) {
    report.num_saves = static_cast<int64_t>(savers_[0]->stalls().size());
    std::vector<std::vector<RankSaver::Stall>> stalls;
    for (const RankFigures& rank : *ranks) stalls.push_back(rank.stalls);
    const RankSaver::Stall stall = SummarizeStalls(stalls);
    report.save_copy_s = stall.copy_s;
    report.save_wait_s = stall.wait_s;
  }
  report.ranks_per_process = job_.count();
  FillMemory(*ranks, &report);
  FillSteps(*ranks, &report);
  FillCopies(*ranks, static_cast<double>(End() - start_.resumed.step), &report);
  TRAINER_RETURN_IF_ERROR(
      FillBound(*ranks, options_, ranks_[0].get(), &report));
  return report;
}

void Run::FillSteps(const std::vector<RankFigures>& ranks,
                    Report* report) const {
  std::vector<std::vector<StepRecord>> records;
  for (const RankFigures& rank : ranks) {
    records.push_back(rank.steps);
    report->peak_bytes_in_flight =
        std::max(report->peak_bytes_in_flight, rank.peak_bytes_in_flight);
    report->peak_live_bytes =
        std::max(report->peak_live_bytes, rank.peak_live_bytes);
  }
  // A step before a validation or a save seems to last until that is over. The
  // trace counts the steps of this run.
  std::vector<uint64_t> excluded;
  for (const StepRecord& record : records[0]) {
    const int64_t step =
        start_.resumed.step + static_cast<int64_t>(record.step);
    if (EvaluatesAfter(step) || SavesAfter(step)) {
      excluded.push_back(record.step);
    }
  }
  report->step = Summarize(records, kWarmupSteps, excluded);
  if (report->step.steps == 0) {
    report->step.step_s =
        wall_s_ / static_cast<double>(End() - start_.resumed.step);
  }
  report->tokens_per_s =
      static_cast<double>(options_.batch * options_.seq) / report->step.step_s;
}

absl::StatusOr<Report> StartAndGo(const Options& options,
                                  const Dataset& dataset, const RunHooks& hooks,
                                  const Job& job) {
  Start start;
  if (!options.save_dir.empty() || !options.resume_dir.empty()) {
    start.identity = IdentifyRun(options, dataset);
    TRAINER_RETURN_IF_ERROR(job.TakeFromRank0(&start.identity.name));
  }
  if (!options.resume_dir.empty()) {
    absl::StatusOr<Resumed> resumed = OpenForResume(options, start.identity);
    if (!resumed.ok()) return resumed.status();
    for (const std::string& remark : resumed->remarks) {
      if (!job.leads()) break;
      absl::FPrintF(stderr, "commsched-train: %s\n", remark);
    }
    start.resumed = *std::move(resumed);
  }
  return Run(options, dataset, std::move(start), hooks, job).Go();
}

absl::StatusOr<Report> StartAndGo(const Options& options,
                                  const Dataset& dataset,
                                  const RunHooks& hooks) {
  if (hooks.job != nullptr) {
    return StartAndGo(options, dataset, hooks, *hooks.job);
  }
  const absl::StatusOr<Job> job = Job::OfThreads(options);
  if (!job.ok()) return job.status();
  return StartAndGo(options, dataset, hooks, *job);
}

}  // namespace

absl::StatusOr<Report> Train(const Options& options, const Dataset& dataset,
                             const RunHooks& hooks) {
  RunHooks tells_once = hooks;
  bool told = false;
  tells_once.on_failure = [&](const absl::Status& status) {
    if (std::exchange(told, true) || hooks.on_failure == nullptr) return;
    hooks.on_failure(status);
  };
  absl::StatusOr<Report> report = StartAndGo(options, dataset, tells_once);
  if (!report.ok()) tells_once.on_failure(report.status());
  return report;
}

}  // namespace commsched::trainer
