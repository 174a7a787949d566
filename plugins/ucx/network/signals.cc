#include "ucx/network/signals.h"

#include <dlfcn.h>
#include <signal.h>
#include <ucs/debug/debug.h>

#include <cstdlib>
#include <initializer_list>

namespace commsched::ucx {
namespace {

// Where the library lies that `address` is in; null: nowhere.
const void* LibraryOf(const void* address) {
  Dl_info info = {};
  return dladdr(address, &info) == 0 ? nullptr : info.dli_fbase;
}

}  // namespace

void GiveSignalsBack() {
  for (const char* const variable :
       {"UCX_HANDLE_ERRORS", "UCX_ERROR_SIGNALS", "UCX_DEBUG_SIGNO"}) {
    if (getenv(variable) != nullptr) return;
  }
  const void* const ucs =
      LibraryOf(reinterpret_cast<const void*>(&ucs_debug_disable_signal));
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action = {};
    if (ucs == nullptr || sigaction(signal, nullptr, &action) != 0) continue;
    // The handler, whichever of the two it is: they share their place.
    const void* const handler =
        reinterpret_cast<const void*>(action.sa_handler);
    if (LibraryOf(handler) == ucs) ucs_debug_disable_signal(signal);
  }
}

}  // namespace commsched::ucx
