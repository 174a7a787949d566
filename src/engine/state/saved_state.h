#ifndef COMMSCHED_SRC_ENGINE_STATE_SAVED_STATE_H_
#define COMMSCHED_SRC_ENGINE_STATE_SAVED_STATE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/snapshot.h"
#include "checkpoint/status.h"
#include "engine/model/model.h"
#include "engine/state/state_values.h"
#include "engine/step_plan/layout.h"
#include "engine/step_plan/step_plan.h"
#include "engine/tables/optimizer_table.h"

namespace commsched::engine {

// A piece of a parameter that one rank saves, and where the rank has it. Ranks
// share the parameters out alike in every stage: rank r saves shard r of each
// bucket, also where it has all of them.
struct SavedPiece {
  uint32_t parameter = 0;
  uint64_t begin = 0;  // Elements of the parameter before it.
  uint64_t count = 0;
  uint32_t bucket = 0;
  uint64_t at = 0;  // Elements of the bucket's memory of this rank before it:
                    // of the masters as of any moment.
};

// What a checkpoint has of a rank's state: the pieces that the rank saves, and
// where it keeps what it loads. A view: what it is made of outlives it.
//
// Thread-compatible.
class SavedState {
 public:
  // `rank`: in the group.
  SavedState(const Model& model, const StepPlan& plan,
             const Optimizer& optimizer, uint32_t rank, StateValues values)
      : model_(model),
        layout_(plan.layout()),
        spec_(plan.spec()),
        optimizer_(optimizer),
        rank_(rank),
        values_(values) {}

  // Fills in all of `snapshot` that is constant, but for the slice. Its pieces
  // are those of each moment and then those of the masters.
  void Describe(Snapshot* snapshot) const;
  // The same of one rank that saves all of every parameter, or of the others,
  // which save nothing.
  void DescribeWhole(Snapshot* snapshot) const;
  // Copies the elements of these pieces to `*out`, and moves it behind them.
  Status CopyMoments(float** out);
  Status CopyMasters(float** out);

  // Copies a piece of this rank's: of `kind`, one of those above.
  Status CopyPiece(const SavedPiece& piece, const std::string& kind,
                   float* out);
  // What the optimizer keeps, in the order in which it lies in memory.
  std::vector<std::string> Moments() const;

  // The only piece of `parameter` that this rank saves. Its count is 0 if there
  // is none.
  SavedPiece PieceOf(uint32_t parameter) const;

  // Where this rank keeps what a checkpoint has.
  struct Target {
    Checkpoint::Range range;
    uint32_t bucket = 0;
    uint64_t at = 0;      // Elements before it: for values in the bucket, for
                          // a moment in this rank's part of it.
    uint64_t moment = 0;  // Which moment, if it is one.
  };
  // All targets of this rank. Fails if the checkpoint is of another model or
  // optimizer.
  Status FindTargets(const Checkpoint& checkpoint,
                     std::vector<Target>* out_targets) const;
  Status Read(const Checkpoint& checkpoint, const Target& target);

 private:
  std::vector<SavedPiece> Pieces() const;
  std::vector<SavedPiece> PiecesOf(uint32_t bucket) const;
  // The checkpoint is of this model: for each parameter the index of its
  // tensor.
  Status FindTensors(const Checkpoint& checkpoint,
                     std::vector<size_t>* out_tensors) const;
  Status CheckMoments(const Checkpoint& checkpoint) const;
  Status CheckMomentsOf(const Parameter& parameter,
                        const Checkpoint& checkpoint, size_t tensor) const;
  // Whether there is state of this kind of what lies in the bucket.
  bool HasKind(uint32_t bucket, const std::string& kind) const;
  void AddTargets(uint32_t bucket, const std::vector<size_t>& tensors,
                  std::vector<Target>* targets) const;

  const Model& model_;
  const Layout& layout_;
  const StepSpec& spec_;
  const Optimizer& optimizer_;
  const uint32_t rank_;
  StateValues values_;
};

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_ENGINE_STATE_SAVED_STATE_H_
