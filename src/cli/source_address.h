#ifndef COMMSCHED_SRC_CLI_SOURCE_ADDRESS_H_
#define COMMSCHED_SRC_CLI_SOURCE_ADDRESS_H_

#include <string>
#include <vector>

namespace commsched::cli {

// The numeric address of this machine that all of `hosts`, names or addresses,
// see when it connects to them, which is where they can reach it. Sends
// nothing. A host that is this machine itself has no say where others are.
//
// "", with the reason in `*why`, if a host has no address or no way leads to
// it, or if hosts see different addresses.
std::string SourceAddress(const std::vector<std::string>& hosts,
                          std::string* why);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_SOURCE_ADDRESS_H_
