#include "test/support/virtual_device.h"

#include <cstdio>
#include <cstdlib>

namespace commsched::test {

bool VirtualStream::ready() const {
  if (items_.empty()) return false;
  const Item& head = items_.front();
  return head.kind != Item::Kind::kWait ||
         head.event->IsComplete(head.generation);
}

void VirtualStream::RunHead() {
  const Item head = std::move(items_.front());
  items_.pop_front();
  switch (head.kind) {
    case Item::Kind::kWait:
      return;
    case Item::Kind::kRecord:
      head.event->Complete(head.generation);
      return;
    case Item::Kind::kWork:
      head.work();
      return;
  }
}

void VirtualStream::Synchronize() {
  while (ready()) RunHead();
  if (items_.empty()) return;
  std::fprintf(stderr, "VirtualStream: %zu items wait for ever\n",
               items_.size());
  std::abort();
}

}  // namespace commsched::test
