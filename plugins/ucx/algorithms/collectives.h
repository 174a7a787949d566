// What a rank does for a launch.
#ifndef COMMSCHED_PLUGINS_UCX_ALGORITHMS_COLLECTIVES_H_
#define COMMSCHED_PLUGINS_UCX_ALGORITHMS_COLLECTIVES_H_

#include <cstdint>
#include <vector>

#include "commsched/plugin.h"
#include "ucx/algorithms/algorithm.h"
#include "ucx/algorithms/operation.h"

namespace commsched::ucx {

// The bytes of scratch that Build() needs. Few, whatever the launch has: what
// has been summed up makes room for what comes next. Uses room of `operation`.
uint64_t ScratchBytes(const Algorithm& algorithm, const LaunchTask& task,
                      Operation* operation);

// Writes what a rank does for a launch, which `algorithm` fits, into
// `operation`, which has scratch for it. Nothing is posted; a rank's own data
// is copied where it belongs. Sums are those of the tree, whose bits do not
// depend on algorithms, sizes, layout or arrival. Sends and receives (kind
// SEND) have no steps.
void Build(const Algorithm& algorithm, const LaunchTask& task,
           Operation* operation);

// What Build() writes, where there is neither scratch nor a launch's memory
// (LaunchTask::measures).
void BuildNowhere(const Algorithm& algorithm, const LaunchTask& task,
                  Operation* operation);

// Makes `largest` hold, of everything, at least as much as Build() writes for
// this launch, or for one with smaller counts, which may take another
// algorithm. Its memory is not looked at. Returns the scratch that it needs
// with any algorithm that fits it.
uint64_t Measure(const LaunchTask& task, Operation* largest);

// Marks, in `peers` by rank of the group, those with whom the rank exchanges
// messages in this launch, or in one with smaller counts by the same algorithm.
// Returns the bytes of all messages of this one.
uint64_t MarkPeersOf(const Algorithm& algorithm, const LaunchTask& task,
                     std::vector<bool>* peers);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_ALGORITHMS_COLLECTIVES_H_
