// commsched: starts jobs of several processes, and says what the library can
// do. See commsched --help.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "cli/bench_coll.h"
#include "cli/completion.h"
#include "cli/flight.h"
#include "cli/rendezvous.h"
#include "cli/run.h"
#include "cli/standard_streams.h"
#include "commsched/commsched.h"

namespace commsched::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;
constexpr int kMaxRanks = 4096;

int Info(bool json) {
  // What is on the search path is a part of the answer.
  commsched_plugin_load(nullptr, 0);
  char* text = nullptr;
  if (commsched_info(json ? COMMSCHED_JSON : COMMSCHED_TEXT, &text) !=
      COMMSCHED_OK) {
    std::fprintf(stderr, "commsched info: %s\n", commsched_last_error());
    return kFailed;
  }
  std::printf("%s\n", text);
  commsched_string_free(text);
  return 0;
}

CLI::App* DeclareRun(CLI::App* app, RunOptions* options) {
  CLI::App* on_run = app->add_subcommand(
      "run",
      "Starts the ranks of a job, passes on what they print and the signals "
      "that come, and ends all when one fails");
  on_run->add_option("-n,--ranks", options->ranks, "How many")
      ->required()
      ->check(CLI::Range(1, kMaxRanks));
  on_run
      ->add_option("--hosts", options->hosts,
                   "Where, separated by commas: host, or host:slots; without "
                   "slots ranks are dealt out in blocks (this host)")
      ->delimiter(',');
  on_run
      ->add_option("--agent", options->agent,
                   "How to start a shell on a host; {host} is its name, "
                   "{index} its place in --hosts")
      ->capture_default_str();
  on_run->add_option("--address", options->address,
                     "Where the control server listens: a numeric address "
                     "that all hosts reach (found out; 127.0.0.1 without "
                     "--hosts)");
  on_run->add_option("--port", options->port, "Its port (one that is free)");
  on_run
      ->add_option("-x,--export", options->exports,
                   "NAME or NAME=VALUE, for the environment of all ranks; "
                   "ranks on hosts have UCX_*, COMMSCHED_* and "
                   "LD_LIBRARY_PATH from here as well")
      ->allow_extra_args(false);
  on_run
      ->add_option("--prefix", options->prefix,
                   "Put [rank] before each line of output; auto: if there "
                   "are several ranks")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->capture_default_str();
  on_run
      ->add_option("--grace", options->grace_s,
                   "Seconds for the others to end by themselves when one "
                   "has failed, and again after SIGTERM")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  on_run
      ->add_option("--silence", options->silence_s,
                   "Seconds without a sign of life after which a rank is "
                   "lost")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  on_run
      ->add_option("--epoch", options->epoch, "Counts the restarts of the job")
      ->capture_default_str();
  on_run
      ->add_option("command", options->command,
                   "Program and arguments, after --")
      ->required();
  on_run->positionals_at_end();
  on_run->footer(
      "Example: commsched run -n 4 -- commsched-train --backend ucx --zero 2\n"
      "The exit code is that of the first rank that failed, or 128 + the "
      "number of the\nsignal that killed it; 141 if nobody reads the output "
      "any more, and 1 if it cannot\nbe written.");
  return on_run;
}

CLI::App* DeclareRendezvous(CLI::App* app, RendezvousOptions* options) {
  CLI::App* on_rendezvous = app->add_subcommand(
      "rendezvous",
      "The control server of a job that another launcher starts: prints "
      "COMMSCHED_CONTROL=host:port, for its ranks' environment, and ends with "
      "them");
  on_rendezvous->add_option("-n,--ranks", options->ranks, "How many")
      ->required()
      ->check(CLI::Range(1, kMaxRanks));
  on_rendezvous->add_option("--address", options->address,
                            "Numeric address to listen on (127.0.0.1)");
  on_rendezvous->add_option("--port", options->port,
                            "Port to listen on (one that is free)");
  on_rendezvous->add_option(
      "--token-file", options->token_file,
      "File with the job's token, made if it is not there; COMMSCHED_TOKEN "
      "comes first. Addresses other than loopback need a token");
  on_rendezvous
      ->add_option("--epoch", options->epoch, "Counts the restarts of the job")
      ->capture_default_str();
  on_rendezvous
      ->add_option("--silence", options->silence_s,
                   "Seconds without a sign of life after which a "
                   "rank is lost")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  on_rendezvous->footer(
      "Example: commsched rendezvous -n 8 --address 10.0.0.1 --token-file "
      "~/.job\nThe exit code is 1 if a rank was lost, or has not joined in "
      "time after the first.");
  return on_rendezvous;
}

CLI::App* DeclareBenchColl(CLI::App* app, BenchCollOptions* options) {
  CLI::App* on_bench = app->add_subcommand("bench", "Measures");
  on_bench->require_subcommand(1);
  CLI::App* on_coll = on_bench->add_subcommand(
      "coll",
      "Times collectives among the processes of a job and checks what they "
      "give; to be started on every rank");
  on_coll->add_option("--backend", options->backend, "The library's backend")
      ->capture_default_str();
  on_coll->add_option("--config", options->config, "Of the backend");
  on_coll
      ->add_option("--collectives", options->kinds,
                   "Which, separated by commas")
      ->delimiter(',')
      ->check(CLI::IsMember({"all_reduce", "all_gather", "reduce_scatter",
                             "all_to_all", "broadcast", "reduce"}))
      ->capture_default_str();
  on_coll->add_option("-b,--min-bytes", options->min_bytes, "Smallest size")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  on_coll->add_option("-e,--max-bytes", options->max_bytes, "Largest size")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  on_coll
      ->add_option("-f,--factor", options->factor, "From one size to the next")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  on_coll->add_option("-n,--iterations", options->iterations, "Timed")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  on_coll->add_option("-w,--warmup", options->warmup, "Before those")
      ->check(CLI::Range(0, 1000000))
      ->capture_default_str();
  on_coll
      ->add_option_function<std::string>(
          "--type",
          [options](const std::string& type) {
            options->dtype = type == "bf16" ? COMMSCHED_BF16 : COMMSCHED_F32;
          },
          "Of the elements")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->default_str("f32");
  on_coll->add_flag("--deterministic", options->deterministic,
                    "Sums in the order of the tree");
  on_coll
      ->add_option_function<std::string>(
          "--progress",
          [options](const std::string& by) {
            options->by_caller = by == "caller";
          },
          "Who drives: a thread of the library, or the caller, who waits")
      ->check(CLI::IsMember({"thread", "caller"}))
      ->default_str("thread");
  on_coll->add_flag("--channel", options->by_channel,
                    "Submits each to a channel and waits for it, instead of a "
                    "step of a session");
  on_coll->add_option(
      "--profile", options->profile,
      "Times messages between ranks of a host, and of different hosts, instead "
      "of collectives, and writes the profile of links to this file, for "
      "COMMSCHED_LINK_PROFILE");
  on_coll->add_flag("--json", options->json, "JSON lines");
  on_coll->footer(
      "Sizes are those of the larger side, algbw and busbw as in nccl-tests; "
      "times are the\nranks' mean of a whole step of a session: issue, "
      "transfer, wake-up.\nExample: commsched run -n 4 --prefix off -- "
      "commsched bench coll --max-bytes 4MiB");
  return on_coll;
}

CLI::App* DeclareFlight(CLI::App* app, FlightOptions* options) {
  CLI::App* on_flight = app->add_subcommand(
      "flight",
      "Prints flight records, which a session leaves where its flight_path "
      "says, also if its process is killed, and compares ranks: where each has "
      "got to, and the first launch that is not complete on all");
  on_flight->add_option("files", options->files, "Records, one of each rank")
      ->required();
  on_flight->add_flag("--events", options->events,
                      "Then the last events of each");
  on_flight->add_flag("--json", options->json, "For machines");
  on_flight->footer(
      "Example: commsched-train --flight-record DIR ...; commsched flight "
      "DIR/rank*.flight\nThe exit code is 1 if a file cannot be read or is no "
      "flight record.");
  return on_flight;
}

CLI::App* DeclareInfo(CLI::App* app, bool* json) {
  CLI::App* on_info = app->add_subcommand(
      "info",
      "Version, backends and plugins, where they are looked for and why one "
      "cannot be used, environment variables");
  on_info->add_flag("--json", *json, "For machines");
  on_info->footer("Example: commsched info --json");
  return on_info;
}

int Main(int argc, char** argv) {
  CLI::App app{
      "Starts jobs of several processes, and says what the library "
      "can do.",
      "commsched"};
  app.set_version_flag("--version", std::string(commsched_version()));
  app.require_subcommand(1);
  RunOptions run;
  const CLI::App* const on_run = DeclareRun(&app, &run);
  RendezvousOptions rendezvous;
  const CLI::App* const on_rendezvous = DeclareRendezvous(&app, &rendezvous);
  BenchCollOptions coll;
  const CLI::App* const on_coll = DeclareBenchColl(&app, &coll);
  FlightOptions flight;
  const CLI::App* const on_flight = DeclareFlight(&app, &flight);
  bool json = false;
  const CLI::App* const on_info = DeclareInfo(&app, &json);
  app.add_subcommand("completion",
                     "Prints the completion of these commands for bash")
      ->footer("Example: source <(commsched completion)");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
  }
  if (on_run->parsed()) return Run(run);
  if (on_rendezvous->parsed()) return Rendezvous(rendezvous);
  if (on_coll->parsed()) return BenchColl(coll);
  if (on_flight->parsed()) return Flight(flight);
  if (on_info->parsed()) return Info(json);
  std::fputs(BashCompletion(app).c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace commsched::cli

int main(int argc, char** argv) {
  if (!commsched::cli::OpenStandardStreams()) return commsched::cli::kFailed;
  return commsched::cli::FinishOutput(commsched::cli::Main(argc, argv));
}
