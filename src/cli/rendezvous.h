#ifndef COMMSCHED_SRC_CLI_RENDEZVOUS_H_
#define COMMSCHED_SRC_CLI_RENDEZVOUS_H_

#include <cstdint>
#include <string>

namespace commsched::cli {

struct RendezvousOptions {
  int ranks = 1;
  std::string address;  // "": loopback.
  uint16_t port = 0;
  std::string token_file;
  uint64_t epoch = 0;
  double silence_s = 10;
};

// Serves one job until all its ranks have come and gone, or a signal comes.
// Returns the exit code: 1 if a rank was lost.
int Rendezvous(const RendezvousOptions& options);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_RENDEZVOUS_H_
