// What UCX cannot do without.
#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_RESOURCES_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_RESOURCES_H_

#include "support/outcome.h"

namespace commsched::ucx {

// RESOURCE_EXHAUSTED, with its name, if UCX would have no thread, or too few
// descriptors. UCX, from 1.13 on, ends the process where its own thread cannot
// be started, and logs lines of errors where descriptors are missing: so it is
// called only where there is enough.
Outcome CheckResources();

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_RESOURCES_H_
