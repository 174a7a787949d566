#include "test/engine/pass_lists.h"

namespace commsched::engine {
namespace {

void AddAll(commsched_pass_kind_t kind, uint32_t micro_batch, PassList* list) {
  const bool reversed = kind != COMMSCHED_FORWARD && kind != COMMSCHED_NO_GRAD;
  for (uint32_t i = 0; i < kListModules; ++i) {
    list->push_back(
        {kind, reversed ? kListModules - 1 - i : i, micro_batch, 0});
  }
}

}  // namespace

PassList AsByDefault() {
  PassList list;
  for (uint32_t mb = 0; mb < kListWindow; ++mb) {
    AddAll(COMMSCHED_FORWARD, mb, &list);
    AddAll(COMMSCHED_BACKWARD, mb, &list);
  }
  return list;
}

PassList GPipe() {
  PassList list;
  for (uint32_t mb = 0; mb < kListWindow; ++mb) {
    AddAll(COMMSCHED_FORWARD, mb, &list);
  }
  for (uint32_t mb = 0; mb < kListWindow; ++mb) {
    AddAll(COMMSCHED_BACKWARD, mb, &list);
  }
  return list;
}

PassList OneForwardOneBackward() {
  PassList list;
  AddAll(COMMSCHED_FORWARD, 0, &list);
  for (uint32_t mb = 1; mb < kListWindow; ++mb) {
    AddAll(COMMSCHED_FORWARD, mb, &list);
    AddAll(COMMSCHED_BACKWARD, mb - 1, &list);
  }
  AddAll(COMMSCHED_BACKWARD, kListWindow - 1, &list);
  return list;
}

PassList ZeroBubble() {
  PassList list;
  for (uint32_t mb = 0; mb < kListWindow; ++mb) {
    AddAll(COMMSCHED_FORWARD, mb, &list);
    AddAll(COMMSCHED_BACKWARD_INPUT, mb, &list);
    if (mb > 0) AddAll(COMMSCHED_BACKWARD_WEIGHT, mb - 1, &list);
  }
  AddAll(COMMSCHED_BACKWARD_WEIGHT, kListWindow - 1, &list);
  return list;
}

PassList CachedGradients() {
  PassList list;
  for (uint32_t mb = 0; mb < kListWindow; ++mb) {
    AddAll(COMMSCHED_NO_GRAD, mb, &list);
  }
  for (const commsched_pass_t& pass : AsByDefault()) list.push_back(pass);
  return list;
}

PassList ModuleByModule() {
  PassList list;
  for (uint32_t mb = 0; mb < kListWindow; ++mb) {
    AddAll(COMMSCHED_FORWARD, mb, &list);
  }
  for (uint32_t m = kListModules; m-- > 0;) {
    for (uint32_t mb = 0; mb < kListWindow; ++mb) {
      list.push_back({COMMSCHED_BACKWARD, m, mb, 0});
    }
  }
  return list;
}

PassList Recomputing() {
  PassList list;
  for (uint32_t mb = 0; mb < kListWindow; ++mb) {
    AddAll(COMMSCHED_FORWARD, mb, &list);
    for (uint32_t m = kListModules; m-- > 0;) {
      if (m > 0) list.push_back({COMMSCHED_RECOMPUTE, m, mb, 0});
      list.push_back({COMMSCHED_BACKWARD, m, mb, 0});
    }
  }
  return list;
}

}  // namespace commsched::engine
