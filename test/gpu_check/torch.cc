// Processes that import PyTorch, and have ours by its C ABI.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "test/gpu_check/child.h"
#include "test/gpu_check/gpu_check.h"
#include "test/gpu_check/launcher.h"
#include "test/gpu_check/processes.h"

namespace commsched::gpu_check {
namespace {

std::string Variable(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

// That of the environment that is active, else the search path's.
std::string FindPython() {
  const std::string environment = Variable("VIRTUAL_ENV");
  const std::string own = absl::StrCat(environment, "/bin/python3");
  if (!environment.empty() && access(own.c_str(), X_OK) == 0) return own;
  return FindProgram("python3");
}

// A folder that goes, with the one file that it may have.
class Folder {
 public:
  Folder() {
    const std::string at = Variable("TMPDIR");
    path_ = absl::StrCat(at.empty() ? "/tmp" : at, "/gpu-check-XXXXXX");
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Folder() {
    unlink(file().c_str());
    rmdir(path_.c_str());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  bool is_made() const { return !path_.empty(); }
  std::string file() const { return path_ + "/store"; }

 private:
  std::string path_;
};

}  // namespace

void CheckTorch(const Options& /*options*/, Results* results) {
  const auto launcher = Launcher::Get();
  if (!launcher.ok()) return results->Add("PyTorch", launcher.status());
  if ((*launcher)->on_stand_ins()) {
    return results->Skip("PyTorch", "the stand-ins have nothing of PyTorch's");
  }
  const std::string python = FindPython();
  const std::string member = Variable("GPU_CHECK_TORCH_MEMBER");
  if (python.empty() || member.empty()) {
    return results->Skip("PyTorch", member.empty()
                                        ? "scripts/gpu-check has not said "
                                          "where torch_member.py is"
                                        : "python3 is not on the search path");
  }
  const Folder folder;
  if (!folder.is_made()) {
    return results->Add("PyTorch", absl::InternalError("mkdtemp failed"));
  }
  std::vector<ChildEnvironment> environments = HostsOnOneDevice();
  for (ChildEnvironment& environment : environments) {
    environment.emplace_back("GPU_CHECK_STORE", folder.file());
    // Ours are loaded behind PyTorch, by their paths.
    environment.emplace_back("LD_LIBRARY_PATH",
                             Variable("GPU_CHECK_LD_LIBRARY_PATH"));
  }
  Merge(RunProcesses({python, "-B", member, Variable("GPU_CHECK_LIBRARIES")},
                     environments),
        "2 processes, 1 device: ", results);
}

}  // namespace commsched::gpu_check
