// Checks what only a machine with a GPU can show:
//
//   gpu_check [--json FILE] [--max-ranks N] [--quick] [--seed S]
//
// A line per check, and JSON in FILE. Each part runs in a process of its own,
// so that what hangs or crashes is a line like any other. On the stand-ins of
// test/fakes, which COMMSCHED_CUDART_LIB and COMMSCHED_NCCL_LIB name, it runs
// as well, with --quick, and its times say nothing.
//
//   gpu_check --part NAME [...]   one part, in this process
//   gpu_check --member TASK [...] one process of a job
//
// Those end with the thread that started them, but with --orphan: a tool that
// runs this program may start it by a thread of no duration.
//
// Exit codes: 0 all hold, 1 one does not or there is no GPU, 2 usage.
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/processes.h"

namespace commsched::gpu_check {
namespace {

using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

// All parts together, whatever each may take.
constexpr seconds kTotal{460};

struct Part {
  const char* name;
  int timeout_s;
  void (*run)(const Options& options, Results* results);
};

void RunRules(const Options& /*options*/, Results* results) {
  for (const Result& each : CheckRules()) results->Add(each);
}

void RunMachine(const Options& options, Results* results) {
  (void)CheckMachine(options, results);
}

constexpr Part kParts[] = {
    {"machine", 30, RunMachine},
    {"rules", 60, RunRules},
    {"kernels", 60, CheckKernels},
    {"collectives", 60, CheckCollectives},
    {"sessions", 60, CheckSessions},
    {"engine", 90, nullptr},  // Of the program gpu_check_engine.
    {"costs", 60, CheckCosts},
    {"overlap", 60, CheckOverlap},
    {"capture", 60, CheckCapture},
    {"processes", 150, CheckProcesses},
    {"memory", 170, CheckMemory},
};

struct Arguments {
  Options options;
  std::string json, part, member;
  bool orphan = false;
};

// What a child is given.
std::vector<std::string> Pass(const Arguments& arguments, const Part& part) {
  std::string program = OwnPath();
  if (part.run == nullptr) program += "_engine";
  std::vector<std::string> command = {program,
                                      "--part",
                                      part.name,
                                      "--max-ranks",
                                      absl::StrCat(arguments.options.max_ranks),
                                      "--seed",
                                      absl::StrCat(arguments.options.seed)};
  if (arguments.options.quick) command.emplace_back("--quick");
  return command;
}

// The table and its figures, as parts end.
class Table {
 public:
  void Add(const std::string& part, const Result& result) {
    std::string outcome = "ok";
    if (!result.skipped.empty()) {
      ++num_skipped_;
      outcome = absl::StrCat("SKIPPED: ", result.skipped);
    } else if (!result.status.ok()) {
      ++num_failed_;
      outcome =
          absl::StrCat("FAILED: ", absl::string_view(result.status.message()));
    } else {
      ++num_hold_;
    }
    std::printf("%-12s %-58s %s%s%s\n", part.c_str(), result.check.c_str(),
                outcome.c_str(), result.figures.empty() ? "" : "  ",
                result.figures.c_str());
    std::fflush(stdout);
    auto row = nlohmann::ordered_json::parse(ToLine(result));
    row["part"] = part;
    rows_.push_back(std::move(row));
  }

  void PrintSummary(double took_s) const {
    std::printf("gpu_check: %d hold, %d failed, %d SKIPPED; %.0f s\n",
                num_hold_, num_failed_, num_skipped_, took_s);
  }

  bool Write(const std::string& file, double took_s) const {
    const nlohmann::ordered_json json = {{"hold", num_hold_},
                                         {"failed", num_failed_},
                                         {"skipped", num_skipped_},
                                         {"seconds", took_s},
                                         {"rows", rows_}};
    std::ofstream out(file);
    out << json.dump(2) << "\n";
    out.close();
    return out.good();
  }

  bool has_failed() const { return num_failed_ != 0; }

 private:
  int num_hold_ = 0, num_failed_ = 0, num_skipped_ = 0;
  nlohmann::ordered_json rows_ = nlohmann::ordered_json::array();
};

// A part that ends early has failed, whatever it has found before.
absl::Status StatusOf(const ChildEnd& end) {
  if (!end.status.ok()) return end.status;
  if (end.exit_code > 1) {
    return absl::InternalError(absl::StrCat("exit code ", end.exit_code));
  }
  if (end.results.empty()) return absl::InternalError("it has found nothing");
  return absl::OkStatus();
}

int RunAll(const Arguments& arguments) {
  const auto begin = SteadyClock::now();
  Table table;
  for (const Part& part : kParts) {
    const auto left = std::chrono::duration_cast<seconds>(begin + kTotal -
                                                          SteadyClock::now());
    const seconds timeout = std::min(seconds(part.timeout_s), left);
    const ChildEnd end = RunChild(
        {.command = Pass(arguments, part), .environment = {}}, timeout);
    for (const Result& result : end.results) table.Add(part.name, result);
    const absl::Status status = StatusOf(end);
    if (!status.ok()) {
      table.Add(part.name, {absl::StrCat("the part ", part.name), status, ""});
    }
    // Without a device there is nothing else to look at.
    if (&part == &kParts[0] && table.has_failed() &&
        (end.results.size() <= 1 || !status.ok())) {
      break;
    }
  }
  const double took_s =
      std::chrono::duration<double>(SteadyClock::now() - begin).count();
  table.PrintSummary(took_s);
  if (!arguments.json.empty() && !table.Write(arguments.json, took_s)) {
    std::fprintf(stderr, "gpu_check: '%s' cannot be written\n",
                 arguments.json.c_str());
    return 1;
  }
  return table.has_failed() ? 1 : 0;
}

// As a child of RunAll() or of a part, with which it ends; or by hand.
int RunHere(const Arguments& arguments) {
  if (!arguments.orphan) prctl(PR_SET_PDEATHSIG, SIGKILL);
  Results results(kResultsFile);
  if (!arguments.member.empty()) {
    RunMember(arguments.member, arguments.options, &results);
    return results.all_hold() ? 0 : 1;
  }
  for (const Part& part : kParts) {
    if (part.name != arguments.part || part.run == nullptr) continue;
    part.run(arguments.options, &results);
    return results.all_hold() ? 0 : 1;
  }
  std::fprintf(stderr, "gpu_check: there is no part '%s'\n",
               arguments.part.c_str());
  return 2;
}

bool Parse(int argc, char** argv, Arguments* out) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick" || name == "--orphan") {
      (name == "--quick" ? out->options.quick : out->orphan) = true;
      continue;
    }
    if (i + 1 == argc) return false;
    const std::string value = argv[++i];
    if (name == "--json") {
      out->json = value;
    } else if (name == "--part") {
      out->part = value;
    } else if (name == "--member") {
      out->member = value;
    } else if (name == "--max-ranks") {
      if (!absl::SimpleAtoi(value, &out->options.max_ranks)) return false;
      if (out->options.max_ranks < 1) return false;
    } else if (name == "--seed") {
      if (!absl::SimpleAtoi(value, &out->options.seed)) return false;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace commsched::gpu_check

int main(int argc, char** argv) {
  commsched::gpu_check::Arguments arguments;
  if (!commsched::gpu_check::Parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: gpu_check [--json FILE] [--max-ranks N] [--quick] "
                 "[--seed S] [--part NAME]\n");
    return 2;
  }
  if (!arguments.part.empty() || !arguments.member.empty()) {
    return commsched::gpu_check::RunHere(arguments);
  }
  return commsched::gpu_check::RunAll(arguments);
}
