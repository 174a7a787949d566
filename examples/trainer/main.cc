// commsched-train: the reference trainer. See commsched-train --help.

#include <cstdio>

#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "examples/trainer/checkpoint.h"
#include "examples/trainer/data.h"
#include "examples/trainer/options.h"
#include "examples/trainer/report.h"
#include "examples/trainer/training.h"

namespace commsched::trainer {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

int Fail(const absl::Status& status) {
  absl::FPrintF(stderr, "commsched-train: %s\n", status.ToString());
  return kFailed;
}

int Main(int argc, char** argv) {
  Options options;
  switch (ParseOptions(argc, argv, &options)) {
    case ParseOutcome::kHelp:
      return kDone;
    case ParseOutcome::kUsage:
      return kWrongUsage;
    case ParseOutcome::kRun:
      break;
  }
  if (options.only_exports()) {
    const absl::Status status = ExportWeights(options.resume_dir, options);
    return status.ok() ? kDone : Fail(status);
  }
  const absl::StatusOr<Dataset> dataset =
      LoadDataset(options.data, options.seq);
  if (!dataset.ok()) return Fail(dataset.status());
  const absl::StatusOr<Report> report = Train(options, *dataset, stdout);
  if (!report.ok()) return Fail(report.status());
  absl::PrintF("loss %.4f, val_loss %.4f nats/byte; %.0f tokens/s\n\n%s",
               report->loss, report->val_loss, report->tokens_per_s,
               FormatTable(*report));
  if (options.json) absl::PrintF("%s\n", FormatJson(*report));
  return kDone;
}

}  // namespace
}  // namespace commsched::trainer

int main(int argc, char** argv) { return commsched::trainer::Main(argc, argv); }
