// What plugins are given to call.
#ifndef COMMSCHED_SRC_COMM_PLUGIN_HOST_H_
#define COMMSCHED_SRC_COMM_PLUGIN_HOST_H_

#include <cstdint>
#include <string>

#include "commsched/plugin.h"

namespace commsched {

// Where the intervals go that plugins trace on a thread.
struct PluginTraceSink {
  void (*add)(void* context, const char* name, int64_t begin_ns,
              int64_t end_ns) = nullptr;
  void* context = nullptr;
};

// Replaces the calling thread's sink; {} drops what is traced. Whoever sets one
// takes it back before its context goes.
void SetPluginTraceSink(PluginTraceSink sink);

// The table for the plugins of one file. Lives until the process ends, as the
// plugins do that hold it.
const commsched_host_t* NewPluginHost(const std::string& origin);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_PLUGIN_HOST_H_
