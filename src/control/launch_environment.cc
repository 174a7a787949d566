#include "control/launch_environment.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "control/messages.h"
#include "xxhash.h"

namespace commsched {
namespace {

constexpr int64_t kMaxRanks = 65536;
constexpr int64_t kMaxPort = 65535;

// The variables of a launcher; nullptr: it has none such.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* job;
};

// Whoever is started by several, as torchrun under srun, has the variables of
// all: the innermost comes first.
constexpr Launcher kLaunchers[] = {
    {"commsched run", "COMMSCHED_RANK", "COMMSCHED_WORLD_SIZE",
     "COMMSCHED_LOCAL_RANK", "COMMSCHED_LOCAL_WORLD_SIZE", nullptr},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "TORCHELASTIC_RUN_ID"},
    {"mpirun of Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE",
     "PMIX_NAMESPACE"},
    {"mpirun of MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
     "MPI_LOCALNRANKS", nullptr},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
     "SLURM_JOB_ID"},
};

// Reads variables of the environment. Thread-compatible.
class Reader {
 public:
  explicit Reader(const Env::Lookup& lookup) : lookup_(lookup) {}

  // "" if it is not set, or `name` is nullptr.
  std::string Text(const char* name) const {
    const char* text = name == nullptr ? nullptr : lookup_(name);
    return text == nullptr ? "" : text;
  }

  bool Has(const char* name) const { return !Text(name).empty(); }

  // `otherwise` if it is not set.
  absl::StatusOr<int64_t> Integer(const char* name, int64_t min, int64_t max,
                                  int64_t otherwise) const {
    const std::string text = Text(name);
    if (text.empty()) return otherwise;
    int64_t value = 0;
    if (!absl::SimpleAtoi(text, &value) || value < min || value > max) {
      return absl::InvalidArgumentError(
          absl::StrCat("environment variable ", name, " is '", text,
                       "', not an integer in ", min, "..", max));
    }
    return value;
  }

 private:
  const Env::Lookup& lookup_;
};

const Launcher* FindLauncher(const Reader& reader) {
  for (const Launcher& launcher : kLaunchers) {
    if (reader.Has(launcher.rank) && reader.Has(launcher.size)) {
      return &launcher;
    }
  }
  return nullptr;
}

absl::Status ReadRanks(const Reader& reader, const Launcher& launcher,
                       LaunchEnvironment* out) {
  out->launcher = launcher.name;
  ASSIGN_OR_RETURN(const int64_t size,
                   reader.Integer(launcher.size, 1, kMaxRanks, 1));
  ASSIGN_OR_RETURN(const int64_t rank,
                   reader.Integer(launcher.rank, 0, size - 1, 0));
  // Who does not say is alone on its host.
  int64_t otherwise = 1;
  if (launcher.local_size == nullptr) {
    ASSIGN_OR_RETURN(const int64_t node,
                     reader.Integer("SLURM_NODEID", 0, kMaxRanks, 0));
    otherwise = SlurmTasksOfNode(reader.Text("SLURM_STEP_TASKS_PER_NODE"),
                                 static_cast<int>(node));
    if (otherwise < 1 || otherwise > size) otherwise = 1;
  }
  ASSIGN_OR_RETURN(const int64_t local_size,
                   reader.Integer(launcher.local_size, 1, size, otherwise));
  ASSIGN_OR_RETURN(const int64_t local_rank,
                   reader.Integer(launcher.local_rank, 0, local_size - 1, 0));
  out->rank = static_cast<int>(rank);
  out->size = static_cast<int>(size);
  out->local_rank = static_cast<int>(local_rank);
  out->local_size = static_cast<int>(local_size);
  return absl::OkStatus();
}

bool IsLoopbackName(absl::string_view host) {
  return host == "localhost" || host == "::1" || host.substr(0, 4) == "127.";
}

// Two runs of torchrun are called "none" unless told otherwise, and steps of
// one Slurm job run at once; without torchrun MASTER_PORT is all there is.
void ReadJob(const Reader& reader, const Launcher& launcher,
             LaunchEnvironment* out) {
  out->rank_variable = launcher.rank;
  std::string stated;
  const auto add = [&](const char* what, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&stated, ", ", what, " ", value);
  };
  add("id", reader.Text(launcher.job));
  add("step", reader.Text("SLURM_STEP_ID"));
  // Ranks on other hosts may call the one of rank 0 by another name.
  if (out->server_host.empty()) {
    const std::string host = reader.Text("MASTER_ADDR");
    add("address", IsLoopbackName(host) ? "localhost" : host);
  }
  add("port", reader.Text("MASTER_PORT"));
  add("control port", reader.Text("COMMSCHED_PORT"));
  if (stated.empty()) return;
  stated.insert(0, launcher.name);
  if (stated.size() > kMaxJobBytes) {
    const uint64_t hash = XXH3_64bits(stated.data(), stated.size());
    stated.resize(kMaxJobBytes - 20);
    absl::StrAppend(&stated, "... ", absl::Hex(hash, absl::kZeroPad16));
  }
  out->job = stated;
}

// Where rank 0 serves ranks on several hosts.
absl::Status ReadMaster(const Reader& reader, LaunchEnvironment* out) {
  std::string host = reader.Text("MASTER_ADDR");
  ASSIGN_OR_RETURN(const int64_t master_port,
                   reader.Integer("MASTER_PORT", 1, kMaxPort - 1, 0));
  int64_t port = master_port == 0 ? 0 : master_port + 1;
  if (out->launcher == "srun") {
    if (host.empty()) host = FirstSlurmHost(reader.Text("SLURM_STEP_NODELIST"));
    ASSIGN_OR_RETURN(const int64_t job,
                     reader.Integer("SLURM_JOB_ID", 0, INT64_MAX, 0));
    if (port == 0) port = 20000 + job % 20000;
  }
  ASSIGN_OR_RETURN(port, reader.Integer("COMMSCHED_PORT", 1, kMaxPort, port));
  if (host.empty() || port == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", out->rank, " of ", out->size, ", started by ", out->launcher,
        ", has ranks on other hosts: set MASTER_ADDR and MASTER_PORT, where "
        "rank 0 is to listen, or COMMSCHED_CONTROL to the host:port of a "
        "'commsched rendezvous'"));
  }
  out->server_host = host;
  out->server_port = static_cast<uint16_t>(port);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(
    const Env::Lookup& lookup) {
  const Reader reader(lookup);
  LaunchEnvironment result;
  result.token = reader.Text("COMMSCHED_TOKEN");
  result.token_file = reader.Text("COMMSCHED_TOKEN_FILE");
  result.host_id = reader.Text("COMMSCHED_HOST_ID");
  if (result.host_id.size() > kMaxHostIdBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "environment variable COMMSCHED_HOST_ID has ", result.host_id.size(),
        " characters, not at most ", kMaxHostIdBytes));
  }
  ASSIGN_OR_RETURN(
      const int64_t restarts,
      reader.Integer("TORCHELASTIC_RESTART_COUNT", 0, INT64_MAX, 0));
  ASSIGN_OR_RETURN(const int64_t epoch,
                   reader.Integer("COMMSCHED_EPOCH", 0, INT64_MAX, restarts));
  result.epoch = static_cast<uint64_t>(epoch);
  const Launcher* launcher = FindLauncher(reader);
  if (launcher == nullptr) return result;
  RETURN_IF_ERROR(ReadRanks(reader, *launcher, &result));
  const std::string control = reader.Text("COMMSCHED_CONTROL");
  if (!control.empty()) {
    RETURN_IF_ERROR(
        SetControl("environment variable COMMSCHED_CONTROL", control, &result));
  } else if (result.local_size < result.size) {
    RETURN_IF_ERROR(ReadMaster(reader, &result));
  }
  ReadJob(reader, *launcher, &result);
  return result;
}

absl::Status SetControl(absl::string_view what, absl::string_view text,
                        LaunchEnvironment* out) {
  // The last colon: IPv6 addresses have others.
  const size_t colon = text.rfind(':');
  int64_t port = 0;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &port) || port < 1 ||
      port > kMaxPort) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " is '", text, "', not host:port with a port in 1..", kMaxPort));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  out->server_host.assign(host.data(), host.size());
  out->server_port = static_cast<uint16_t>(port);
  out->rank_0_serves = false;
  return absl::OkStatus();
}

std::string FirstSlurmHost(absl::string_view list) {
  const size_t end = list.find_first_of("[,");
  std::string host(list.substr(0, end));
  if (end == absl::string_view::npos || list[end] == ',') return host;
  const absl::string_view numbers = list.substr(end + 1);
  absl::StrAppend(&host, numbers.substr(0, numbers.find_first_of("-,]")));
  return host;
}

int SlurmTasksOfNode(absl::string_view list, int index) {
  for (const absl::string_view entry : absl::StrSplit(list, ',')) {
    const size_t open = entry.find("(x");
    int tasks = 0;
    int nodes = 1;
    if (!absl::SimpleAtoi(entry.substr(0, open), &tasks)) return 0;
    if (open != absl::string_view::npos &&
        !absl::SimpleAtoi(entry.substr(open + 2, entry.size() - open - 3),
                          &nodes)) {
      return 0;
    }
    if (index < nodes) return tasks;
    index -= nodes;
  }
  return 0;
}

}  // namespace commsched
