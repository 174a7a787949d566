#include "test/plugin/ucx_sends.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <utility>

namespace commsched {
namespace {

std::atomic<const UcxSendWatcher::OnSend*> g_on_send{nullptr};

}  // namespace
}  // namespace commsched

namespace {

template <typename Function>
Function* OfUcx(const char* name) {
  static void* const ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function*>(dlsym(ucp, name));
}

}  // namespace

extern "C" {

// With UCX's handles as plain addresses: its headers are the plugin's.
__attribute__((visibility("default"))) void* ucp_tag_send_nbx(
    void* endpoint, const void* data, size_t bytes, uint64_t tag,
    const void* param) {
  static auto* const send =
      OfUcx<decltype(ucp_tag_send_nbx)>("ucp_tag_send_nbx");
  if (const auto* const on_send = commsched::g_on_send.load()) {
    (*on_send)({endpoint, tag, bytes});
  }
  return send(endpoint, data, bytes, tag, param);
}

}  // extern "C"

namespace commsched {

void UcxSend::SendFirst(const void* data, size_t size) const {
  static auto* const send =
      OfUcx<decltype(ucp_tag_send_nbx)>("ucp_tag_send_nbx");
  static auto* const free_request = OfUcx<void(void*)>("ucp_request_free");
  const std::array<uint64_t, 64> no_param = {};
  void* const request = send(endpoint, data, size, tag, no_param.data());
  if (request != nullptr) free_request(request);
}

UcxSendWatcher::UcxSendWatcher(OnSend on_send)
    : on_send_(std::move(on_send)), before_(g_on_send.exchange(&on_send_)) {}

UcxSendWatcher::~UcxSendWatcher() { g_on_send = before_; }

}  // namespace commsched
