#ifndef COMMSCHED_PLUGINS_UCX_NETWORK_SIGNALS_H_
#define COMMSCHED_PLUGINS_UCX_NETWORK_SIGNALS_H_

namespace commsched::ucx {

// UCX takes signals when it is loaded: those of crashes, and SIGHUP, upon which
// it prints its state instead of letting the process end. The process gets them
// back as they were, unless the environment says what UCX is to do with them:
// UCX_HANDLE_ERRORS, UCX_ERROR_SIGNALS or UCX_DEBUG_SIGNO. Signals that
// somebody has taken from UCX since are left alone.
void GiveSignalsBack();

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_NETWORK_SIGNALS_H_
