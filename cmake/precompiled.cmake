# Precompiled headers: one for the rooms and one for the test binaries, each
# compiled once per build folder. They hold only what others wrote, so no change
# of this tree invalidates them and a forgotten include of our own still shows.
# The standard and Abseil includes that they hide are looked for by the preset
# thread-safety, which compiles all without, file by file: scripts/test --all.
set(COMMSCHED_PRECOMPILED_ROOM
    <algorithm> <atomic> <chrono> <cmath> <condition_variable> <cstddef>
    <cstdint> <cstring> <functional> <limits> <map> <memory> <mutex> <numeric>
    <set> <string> <thread> <tuple> <utility> <vector>
    <absl/container/btree_map.h> <absl/container/flat_hash_map.h>
    <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>
    <absl/strings/str_format.h> <absl/strings/str_join.h>
    <absl/strings/string_view.h> <absl/types/optional.h> <absl/types/span.h>)
set(COMMSCHED_PRECOMPILED_TEST ${COMMSCHED_PRECOMPILED_ROOM}
    <fstream> <random> <sstream> <gmock/gmock.h> <gtest/gtest.h>)

# commsched_precompile(KIND lib...): target commsched_precompiled_KIND, compiled
# with the flags that `lib...` bring. KIND is room or test.
function(commsched_precompile kind)
  set(target commsched_precompiled_${kind})
  string(TOUPPER ${kind} suffix)
  set(source ${PROJECT_BINARY_DIR}/precompiled_${kind}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "// Carries the header.\n")
  add_library(${target} OBJECT ${source})
  target_link_libraries(${target} PRIVATE ${ARGN})
  target_precompile_headers(${target} PRIVATE
                            ${COMMSCHED_PRECOMPILED_${suffix}})
endfunction()

function(commsched_compile_as_room target)
  target_precompile_headers(${target} REUSE_FROM commsched_precompiled_room)
endfunction()
