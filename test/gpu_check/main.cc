// Checks what only a machine with a GPU can show:
//
//   gpu_check [--json FILE] [--parts A,B] [--max-ranks N] [--quick] [--seed S]
//
// A line per check, and JSON in FILE. --parts: these only, beside "machine";
// "first", "second" and "third" stand for those of a third, so that all can be
// run in three calls. Each part runs in a process of its own,
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
// Exit codes: 0 all that was tried holds, 1 something does not, 2 usage, 77
// nothing was tried: there is no GPU, or each check was SKIPPED.
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/processes.h"

namespace commsched::gpu_check {
namespace {

using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;

// What automake and ctest take for "skipped".
constexpr int kNothingTried = 77;

constexpr const char* kThirds[] = {"first", "second", "third"};
// All parts of a third together, whatever each may take: under 8 minutes in
// all.
constexpr seconds kThirdTimeout{155};

struct Part {
  const char* name;
  int third;  // Index in kThirds.
  int timeout_s;
  void (*run)(const Options& options, Results* results);
};

void RunRules(const Options& /*options*/, Results* results) {
  for (const Result& each : CheckRules()) results->Add(each);
}

void RunMachine(const Options& options, Results* results) {
  (void)CheckMachine(options, results);
}

// What is most likely to go wrong comes first.
constexpr Part kParts[] = {
    {"machine", 0, 30, RunMachine},
    {"capture", 0, 60, CheckCapture},
    {"processes", 0, 150, CheckProcesses},
    {"lanes", 0, 130, CheckLanes},
    {"torch", 0, 130, CheckTorch},
    {"channels", 1, 100, CheckChannels},
    {"rules", 1, 60, RunRules},
    {"kernels", 1, 60, CheckKernels},
    {"collectives", 1, 60, CheckCollectives},
    {"sessions", 1, 60, CheckSessions},
    {"engine", 1, 90, nullptr},  // Of the program gpu_check_engine.
    {"costs", 2, 60, CheckCosts},
    {"overlap", 2, 60, CheckOverlap},
    {"memory", 2, 120, CheckMemory},
};

struct Arguments {
  Options options;
  std::string json, part, member;
  std::vector<std::string> parts;  // Empty: all.
  bool orphan = false;
};

bool Chooses(const Arguments& arguments, const Part& part) {
  const auto& chosen = arguments.parts;
  const auto has = [&](const char* name) {
    return std::find(chosen.begin(), chosen.end(), name) != chosen.end();
  };
  return chosen.empty() || has(part.name) || has(kThirds[part.third]);
}

bool IsPartOrThird(const std::string& name) {
  for (const Part& part : kParts) {
    if (name == part.name || name == kThirds[part.third]) return true;
  }
  return false;
}

seconds TimeoutOf(const Arguments& arguments) {
  bool has[std::size(kThirds)] = {};
  for (const Part& part : kParts) has[part.third] |= Chooses(arguments, part);
  return std::count(std::begin(has), std::end(has), true) * kThirdTimeout;
}

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
  int num_hold() const { return num_hold_; }

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

void RunPart(const Arguments& arguments, const Part& part, seconds timeout,
             Table* table) {
  const ChildEnd end =
      RunChild({.command = Pass(arguments, part), .environment = {}}, timeout);
  for (const Result& result : end.results) table->Add(part.name, result);
  const absl::Status status = StatusOf(end);
  if (!status.ok()) {
    table->Add(part.name, {absl::StrCat("the part ", part.name), status, ""});
  }
}

int RunAll(const Arguments& arguments) {
  const auto begin = SteadyClock::now();
  const auto left = [&] {
    return std::chrono::duration_cast<seconds>(begin + TimeoutOf(arguments) -
                                               SteadyClock::now());
  };
  Table table;
  // It says what there is to look at: maybe nothing.
  const Part& machine = kParts[0];
  RunPart(arguments, machine, seconds(machine.timeout_s), &table);
  const int of_machine = table.num_hold();
  bool only_machine = true;
  for (const Part& part : kParts) {
    if (&part == &machine || of_machine == 0) continue;
    if (!Chooses(arguments, part)) continue;
    only_machine = false;
    RunPart(arguments, part, std::min(seconds(part.timeout_s), left()), &table);
  }
  const double took_s =
      std::chrono::duration<double>(SteadyClock::now() - begin).count();
  table.PrintSummary(took_s);
  if (!arguments.json.empty() && !table.Write(arguments.json, took_s)) {
    std::fprintf(stderr, "gpu_check: '%s' cannot be written\n",
                 arguments.json.c_str());
    return 1;
  }
  if (table.has_failed()) return 1;
  const int tried = table.num_hold() - (only_machine ? 0 : of_machine);
  if (tried > 0) return 0;
  std::printf("gpu_check: SKIPPED: nothing was tried (exit code %d)\n",
              kNothingTried);
  return kNothingTried;
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
    } else if (name == "--parts") {
      out->parts = absl::StrSplit(value, ',');
      if (!std::all_of(out->parts.begin(), out->parts.end(), IsPartOrThird)) {
        return false;
      }
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
                 "usage: gpu_check [--json FILE] [--parts A,B] [--max-ranks N] "
                 "[--quick] [--seed S] [--part NAME]\n"
                 "parts:");
    for (const auto& part : commsched::gpu_check::kParts) {
      std::fprintf(stderr, " %s", part.name);
    }
    std::fprintf(stderr, "; or first, second, third\n");
    return 2;
  }
  if (!arguments.part.empty() || !arguments.member.empty()) {
    return commsched::gpu_check::RunHere(arguments);
  }
  return commsched::gpu_check::RunAll(arguments);
}
