#ifndef COMMSCHED_SRC_CHECKPOINT_SAVER_H_
#define COMMSCHED_SRC_CHECKPOINT_SAVER_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/folder_lock.h"
#include "checkpoint/format/checkpoint_index.h"
#include "checkpoint/format/checkpoint_part.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/status.h"

namespace commsched::engine {

// One rank's part in a series of checkpoints: memory for a copy of what the
// rank saves, and a thread that writes it.
//
// Ranks do not talk. Each makes its own file appear, complete and on the disk,
// and then looks for those of the others; whoever finds all of them makes the
// index appear, which is what makes them a checkpoint. The last rank to finish
// finds them all, and if several do, they make the same index. Until then the
// index is that of the checkpoint before, whose files go only after that.
//
// What goes is of this run, of the run that it went on from, and what killed
// runs have left that went on from the same one; of any other run only if the
// caller says so. Files of other slices are their savers' to remove.
//
// Thread-compatible: the thread of what it saves.
class Saver {
 public:
  struct Options {
    std::string folder;
    std::string run;              // The caller's name for it.
    const char* slice = nullptr;  // Null: that of the snapshot.
    bool overwrite = false;       // Checkpoints of other runs.
  };

  static Status Create(Snapshot snapshot, const Options& options,
                       std::unique_ptr<Saver>* out);
  // Waits.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  Status Save(std::map<std::string, std::string> metadata);
  Status Wait();

 private:
  Saver(Snapshot snapshot, const Options& options);

  Status Prepare();
  Status TakeFolder();
  Status CheckUnusedRun() const;
  Status CheckReplaced() const;
  Status CheckIndex(const std::string& name) const;
  std::string PathOf(const std::string& name) const {
    return folder_ + "/" + name;
  }

  // These run on the writing thread.
  void WriteSaves();
  Status Write();
  Status WriteGuarded() noexcept;
  Status WritePart();
  // Sets `out_complete` if the files of all ranks are there.
  Status FindParts(CheckpointIndex* index, bool* out_complete) const;
  Status WriteIndex(const CheckpointIndex& index) const;
  void RemoveOlder() const;
  bool IsOld(const SaveId& id) const;
  bool IsOldIndex(const std::string& name) const;

  // Constant after Create, but the hashes of pieces, which are the writing
  // thread's.
  Snapshot snapshot_;
  const std::string folder_;
  const std::string run_;  // SaveId::run.
  const std::string slice_;
  const bool overwrite_;
  FolderLock lock_;

  // The writing thread's while `writing_`, else the caller's.
  std::unique_ptr<float[]> copy_;
  SaveId id_;
  Lineage lineage_;
  std::map<std::string, std::string> metadata_;

  bool has_saved_ = false;  // The caller's.

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  bool writing_ = false;
  bool ending_ = false;
  Status failure_;  // The first.

  std::thread writer_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_SAVER_H_
