#include "commsched/version.h"

#include "absl/strings/string_view.h"

namespace {

constexpr absl::string_view kBuildVersion = COMMSCHED_VERSION_STRING;

// One digit each is enough until 0.10; this then has to learn to count.
static_assert(kBuildVersion.size() == 5 &&
                  kBuildVersion[0] == '0' + COMMSCHED_VERSION_MAJOR &&
                  kBuildVersion[2] == '0' + COMMSCHED_VERSION_MINOR &&
                  kBuildVersion[4] == '0' + COMMSCHED_VERSION_PATCH,
              "commsched/version.h and project(VERSION) disagree");

}  // namespace

const char* commsched_version(void) { return COMMSCHED_VERSION_STRING; }

uint32_t commsched_abi_version(void) { return COMMSCHED_ABI_VERSION; }
