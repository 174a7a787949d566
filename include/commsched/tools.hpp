/// What surrounds a run, in C++17: plugins, what the library says of itself,
/// flight records. As commsched/commsched.hpp does it.
#ifndef COMMSCHED_TOOLS_HPP_
#define COMMSCHED_TOOLS_HPP_

#include <cstdint>
#include <string>

#include "commsched/commsched.hpp"
#include "commsched/info.h"
#include "commsched/trace.h"
#include "commsched/version.h"

namespace commsched {
namespace api {

/// Loads the plugins of one file; it is an error if that cannot be done.
inline Status LoadPlugin(const std::string& name_or_path) {
  return Status::Of(
      commsched_plugin_load(name_or_path.c_str(), COMMSCHED_PLUGIN_REQUIRED));
}

/// Loads the plugins of every file on the search path. What cannot be loaded is
/// in Info().
inline Status LoadAllPlugins() {
  return Status::Of(commsched_plugin_load(nullptr, 0));
}

/// Version, backends, policies, codecs, observers, environment variables, and
/// what became of each plugin file that was tried.
inline Result<std::string> Info(commsched_format_t format = COMMSCHED_TEXT) {
  char* text = nullptr;
  const auto code = commsched_info(format, &text);
  return internal::StringOf(code, text);
}

/// "major.minor.patch" of the loaded library.
inline std::string Version() { return commsched_version(); }

/// What a session with SessionSpec::flight_path did last, as text.
inline Result<std::string> ReadFlightRecord(const std::string& path) {
  char* text = nullptr;
  const auto code = commsched_flight_record_read(path.c_str(), &text);
  return internal::StringOf(code, text);
}

}  // namespace api
}  // namespace commsched

#endif  // COMMSCHED_TOOLS_HPP_
