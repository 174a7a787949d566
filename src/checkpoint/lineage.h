#ifndef COMMSCHED_SRC_CHECKPOINT_LINEAGE_H_
#define COMMSCHED_SRC_CHECKPOINT_LINEAGE_H_

#include <set>
#include <string>

#include "checkpoint/format/checkpoint_index.h"

namespace commsched::engine {

// The saves that a state comes from: the one that was loaded, and those of its
// own savers. A saver may replace these, and nothing else, without being told
// to.
//
// Thread-compatible.
class Lineage {
 public:
  void Load(const SaveId& id) { loaded_ = id; }
  void Save(const std::string& run) { saved_.insert(run); }

  bool HasRun(const std::string& run) const {
    return (!loaded_.run.empty() && loaded_.run == run) ||
           saved_.count(run) > 0;
  }
  // A run that is resumed may have gone on elsewhere, to a later step.
  bool Has(const SaveId& id) const {
    return saved_.count(id.run) > 0 ||
           (HasRun(id.run) && loaded_.step == id.step);
  }
  // The run that began at step 0; empty if that is to come.
  std::string origin() const {
    if (!loaded_.run.empty()) return OriginOf(loaded_.run);
    return saved_.empty() ? std::string() : OriginOf(*saved_.begin());
  }

 private:
  SaveId loaded_;  // Without a run if there is none.
  std::set<std::string> saved_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_LINEAGE_H_
