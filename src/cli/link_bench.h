#ifndef COMMSCHED_SRC_CLI_LINK_BENCH_H_
#define COMMSCHED_SRC_CLI_LINK_BENCH_H_

#include "cli/bench_coll.h"
#include "commsched/commsched.h"

namespace commsched::cli {

// Times messages between pairs of ranks of the context's job, within hosts and
// between them (link_fit.h), one pair after the other while the others wait.
// Rank 0 prints what it has timed and writes the profile to
// options.profile. A level that no two ranks have keeps its default, and the
// output and the file say so. Throws std::runtime_error.
void BenchLinks(commsched_context_t* context, const BenchCollOptions& options);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_LINK_BENCH_H_
