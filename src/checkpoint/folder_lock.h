#ifndef COMMSCHED_SRC_CHECKPOINT_FOLDER_LOCK_H_
#define COMMSCHED_SRC_CHECKPOINT_FOLDER_LOCK_H_

#include <cstdint>
#include <string>

#include "checkpoint/files.h"
#include "checkpoint/status.h"

namespace commsched::engine {

inline constexpr char kLockName[] = ".commsched-lock";

// A saver's hold on a folder: savers of one run share it, and a second run is
// refused. The kernel lets go of it when the process ends, however it ends; the
// last saver removes the lock's file, and what a killed one leaves does no
// harm. On a file system without locks nobody is refused.
//
// Advisory: it holds off savers, not readers.
//
// Thread-compatible.
class FolderLock {
 public:
  FolderLock() = default;
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  // `member` names the saver within the run. Fails, naming the run that holds
  // the folder and its process, with
  //   UNAVAILABLE     another run saves to the folder
  //   ALREADY_EXISTS  this run has such a member
  Status Take(const std::string& folder, const std::string& run,
              const std::string& member);

 private:
  Status TakeShared(const std::string& run, bool* out_done);
  Status TakeMember(const std::string& member);
  std::string Holder() const;
  bool IsCurrent() const;

  std::string folder_;
  std::string path_;
  bool held_ = false;
  Descriptor descriptor_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_FOLDER_LOCK_H_
