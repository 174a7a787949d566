// What a rank does for a launch.
#ifndef COMMSCHED_PLUGINS_UCX_COLLECTIVES_H_
#define COMMSCHED_PLUGINS_UCX_COLLECTIVES_H_

#include <cstdint>

#include "commsched/plugin.h"
#include "layout.h"
#include "operation.h"

namespace commsched::ucx {

// The bytes of scratch that Build() needs. Few, whatever the launch has: what
// has been summed up makes room for what comes next. Uses room of `operation`.
uint64_t ScratchBytes(const commsched_launch_t& launch, const Layout& layout,
                      int rank, uint64_t chunk_bytes, Operation* operation);

// Writes what rank `rank` of a group does for `launch`, in chunks of at most
// `chunk_bytes`, into `operation`, which has scratch for it. Nothing is posted;
// a rank's own data is copied where it belongs. Ways are those of routes.h.
//
//   all-gather       every rank owns its part, which goes to all
//   all-to-all       every rank sends each other rank its part
//   reduce-scatter   every rank owns its part, whose inputs come from all
//   all-reduce       hosts own shares, cut among their ranks: a chunk goes to
//                    all once it is summed up
//   reduce           the same; chunks go to the root
//   broadcast        hosts without the root own shares, cut among their ranks:
//                    each gets its part from the root and hands it on
//
// Small members are sent to all who want them directly: of an all-reduce every
// rank sends all, and sums up all. Sums are those of the tree, whose bits do
// not depend on sizes, layout or arrival. Sends and receives (kind SEND) have
// no steps.
void Build(const commsched_launch_t& launch, const Layout& layout, int rank,
           uint64_t chunk_bytes, Operation* operation);

// Makes `largest` hold, of everything, at least as much as Build() writes for
// `launch`. Its memory is not looked at.
void Measure(const commsched_launch_t& launch, const Layout& layout, int rank,
             uint64_t chunk_bytes, Operation* largest);

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_COLLECTIVES_H_
