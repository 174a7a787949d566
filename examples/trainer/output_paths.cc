#include "examples/trainer/output_paths.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_format.h"

namespace commsched::trainer {
namespace {

// By making one: permissions do not tell of a file system that is read-only.
absl::Status TryFile(absl::string_view flag, const std::string& folder) {
  std::string name = folder + "/.commsched-XXXXXX";
  const int descriptor = mkstemp(name.data());
  if (descriptor < 0) {
    return absl::UnavailableError(
        absl::StrFormat("%s: cannot make a file in the folder '%s': %s", flag,
                        folder, std::strerror(errno)));
  }
  close(descriptor);
  unlink(name.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFolder(absl::string_view flag, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return absl::UnavailableError(absl::StrFormat(
        "%s: cannot create the folder '%s': %s", flag, path, error.message()));
  }
  return TryFile(flag, path);
}

absl::Status CheckFile(absl::string_view flag, const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status =
      std::filesystem::status(path, error);
  if (std::filesystem::exists(status) &&
      !std::filesystem::is_regular_file(status)) {
    return absl::UnavailableError(absl::StrFormat(
        "%s: '%s' is there and is not a file that could be replaced", flag,
        path));
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return TryFile(flag, folder.empty() ? "." : folder);
}

absl::Status WriteWholeFile(const std::string& path, absl::string_view text) {
  const std::string unfinished = path + ".new";
  std::ofstream file(unfinished, std::ios::binary);
  file << text;
  file.close();
  if (file && std::rename(unfinished.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  std::remove(unfinished.c_str());
  return absl::UnavailableError(
      absl::StrFormat("cannot write '%s': %s", path, std::strerror(error)));
}

}  // namespace commsched::trainer
