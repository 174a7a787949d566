#ifndef COMMSCHED_TEST_CHECKPOINT_TEMPORARY_FOLDER_H_
#define COMMSCHED_TEST_CHECKPOINT_TEMPORARY_FOLDER_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/folder_lock.h"

namespace commsched::engine {

// A folder that is empty at first and goes with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_((std::filesystem::temp_directory_path() / "commsched-XXXXXX")
                  .string()) {
    if (mkdtemp(path_.data()) == nullptr) {
      std::perror("mkdtemp");
      std::abort();
    }
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  // Sorted; without the lock that savers have there.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      const std::string name = entry.path().filename().string();
      if (name != kLockName) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_CHECKPOINT_TEMPORARY_FOLDER_H_
