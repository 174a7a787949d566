// commsched-train: the reference trainer. See commsched-train --help.

#include <signal.h>

#include <cstdio>
#include <new>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "commsched/waits.h"
#include "examples/trainer/checkpoint.h"
#include "examples/trainer/data.h"
#include "examples/trainer/interruption.h"
#include "examples/trainer/job.h"
#include "examples/trainer/options.h"
#include "examples/trainer/report.h"
#include "examples/trainer/standard_streams.h"
#include "examples/trainer/status_macros.h"
#include "examples/trainer/training.h"

namespace commsched::trainer {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kSignalled = 128;  // And the signal's number, as shells count.

int Fail(const absl::Status& status) {
  absl::FPrintF(stderr, "commsched-train: %s\n", status.ToString());
  return kFailed;
}

// Writes the weights of a checkpoint, without training.
int Export(const Options& options) {
  const absl::Status status = ExportWeights(options.resume_dir, options);
  return status.ok() ? kDone : Fail(status);
}

// Of ranks that are processes rank 0 speaks for all.
void Print(const Report& report, const Options& options) {
  absl::PrintF("loss %.4f, val_loss %.4f nats/byte; %.0f tokens/s\n\n%s",
               report.loss, report.val_loss, report.tokens_per_s,
               FormatTable(report));
  if (options.json) absl::PrintF("%s\n", FormatJson(report));
}

int Main(int argc, char** argv) {
  // SIGQUIT says what the ranks wait for. Without a thread it does not.
  commsched_waits_print_on(SIGQUIT);
  Options options;
  std::optional<Job> job;
  const auto join = [&job](const Options& given) -> absl::StatusOr<int64_t> {
    TRAINER_ASSIGN_OR_RETURN(job, Job::OfProcesses(given));
    return job->size();
  };
  switch (ParseOptions(argc, argv, &options, join)) {
    case ParseOutcome::kHelp:
      return kDone;
    case ParseOutcome::kUsage:
      return kWrongUsage;
    case ParseOutcome::kFailed:
      return kFailed;
    case ParseOutcome::kRun:
      break;
  }
  if (options.only_exports()) return Export(options);
  const absl::StatusOr<Dataset> dataset =
      LoadDataset(options.data, options.seq);
  if (!dataset.ok()) return Fail(dataset.status());

  const bool leads = !job || job->leads();
  const Interruption interruption;
  bool told = false;
  const absl::StatusOr<Report> report =
      Train(options, *dataset,
            {.out = leads ? stdout : nullptr,
             .job = job ? &*job : nullptr,
             .on_failure =
                 [&told](const absl::Status& failure) {
                   told = true;
                   Fail(failure);
                 },
             .on_built = &Interruption::Defer,
             .end_early = &interruption.signal()});
  if (!report.ok()) return told ? kFailed : Fail(report.status());

  if (leads) Print(*report, options);
  return report->end_signal != 0 ? kSignalled + report->end_signal : kDone;
}

int Guarded(int argc, char** argv) {
  try {
    return Main(argc, argv);
  } catch (const std::bad_alloc&) {
    return Fail(absl::ResourceExhaustedError("out of memory"));
  }
}

}  // namespace
}  // namespace commsched::trainer

int main(int argc, char** argv) {
  if (!commsched::OpenStandardStreams()) return commsched::trainer::kFailed;
  return commsched::FinishOutput("commsched-train",
                                 commsched::trainer::Guarded(argc, argv));
}
