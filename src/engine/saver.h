#ifndef COMMSCHED_SRC_ENGINE_SAVER_H_
#define COMMSCHED_SRC_ENGINE_SAVER_H_

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint_index.h"
#include "checkpoint_part.h"
#include "engine.h"
#include "memory.h"
#include "snapshot.h"
#include "status.h"

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
// Thread-compatible: the thread of the engine.
class Saver {
 public:
  // `engine` is built and outlives the saver.
  static Status Create(Engine& engine, const std::string& folder,
                       const std::string& run, std::unique_ptr<Saver>* out);
  // Waits.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  Status Save(std::map<std::string, std::string> metadata);
  Status Wait();

 private:
  Saver(Engine& engine, std::string folder, std::string run)
      : engine_(engine), folder_(std::move(folder)), run_(std::move(run)) {}

  Status Prepare();
  Status CheckUnusedRun() const;
  std::string PathOf(const std::string& name) const {
    return folder_ + "/" + name;
  }

  // On the writing thread.
  void WriteSaves();
  Status Write();
  Status WriteGuarded() noexcept;
  Status WritePart();
  // Sets `out_complete` if the files of all ranks are there.
  Status FindParts(CheckpointIndex* index, bool* out_complete) const;
  Status WriteIndex(const CheckpointIndex& index) const;
  void RemoveOlder() const;

  // Constant after Create.
  Engine& engine_;
  const std::string folder_;
  const std::string run_;
  std::vector<SavedPiece> pieces_;
  std::vector<PartPiece> part_;  // The hashes are the writing thread's.

  // The writing thread's while `writing_`, else the caller's.
  Array<float> copy_;
  SaveId id_;
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

#endif  // COMMSCHED_SRC_ENGINE_SAVER_H_
