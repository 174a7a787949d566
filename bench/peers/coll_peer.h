// What the drivers of other libraries' collectives share: the sizes, values,
// and JSON lines of `commsched bench coll`, so that the figures can be
// compared.
#ifndef COMMSCHED_BENCH_PEERS_COLL_PEER_H_
#define COMMSCHED_BENCH_PEERS_COLL_PEER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/coll_case.h"

namespace commsched::bench {

// One library. One thread.
class CollPeer {
 public:
  virtual ~CollPeer() = default;
  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The next runs are of `one`, summing. It stays until the next call.
  virtual void Prepare(cli::CollCase* one) = 0;
  virtual void Run() = 0;
  virtual void Barrier() = 0;
  // The sum and the largest over all ranks, on all ranks.
  virtual double Sum(double mine) = 0;
  virtual double Max(double mine) = 0;
};

// The sum of bf16 elements as PyTorch makes it: in f32, rounded to the nearest,
// ties to even, after each addition. `sum` may be `a` or `b`.
void AddBf16(uint16_t* sum, const uint16_t* a, const uint16_t* b,
             uint64_t count);

// Reads --min-bytes, --max-bytes, --factor, --iterations, --warmup, --type and
// --collectives as `commsched bench coll` does, runs, and prints on rank 0 a
// JSON line per size. Returns the exit code: 1 if a value is wrong, 2 for
// arguments that are not understood.
int RunCollPeer(CollPeer* peer, const std::vector<std::string>& arguments);

}  // namespace commsched::bench

#endif  // COMMSCHED_BENCH_PEERS_COLL_PEER_H_
