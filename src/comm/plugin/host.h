// What plugins are given to call.
#ifndef COMMSCHED_SRC_COMM_PLUGIN_HOST_H_
#define COMMSCHED_SRC_COMM_PLUGIN_HOST_H_

#include <cstdint>
#include <string>

#include "commsched/plugin.h"

namespace commsched {

// The table for the plugins of one file. Lives until the process ends, as the
// plugins do that hold it.
const commsched_host_t* NewPluginHost(const std::string& origin);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_PLUGIN_HOST_H_
