#include "comm/registry.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "comm/inproc_backend.h"
#include "comm/null_backend.h"

namespace commsched {

absl::StatusOr<const commsched_backend_t*> FindBackend(absl::string_view name) {
  for (const commsched_backend_t* table : {InprocTable(), NullTable()}) {
    if (name == table->name) return table;
  }
  return absl::NotFoundError(absl::StrCat("no backend is called '", name,
                                          "'; there are 'inproc' and 'null'"));
}

}  // namespace commsched
