#include "cli/flight.h"

#include <cstdint>
#include <cstdio>

#include "commsched/commsched.h"

namespace commsched::cli {
namespace {

constexpr int kNotRead = 1;

int SayWhyNot() {
  std::fprintf(stderr, "commsched flight: %s\n", commsched_last_error());
  return kNotRead;
}

}  // namespace

int Flight(const FlightOptions& options) {
  std::vector<const char*> paths;
  for (const std::string& file : options.files) paths.push_back(file.c_str());
  char* text = nullptr;
  if (commsched_flight_records_compare(
          paths.data(), static_cast<uint32_t>(paths.size()),
          options.json ? COMMSCHED_JSON : COMMSCHED_TEXT,
          &text) != COMMSCHED_OK) {
    return SayWhyNot();
  }
  std::string shown = text;
  commsched_string_free(text);
  if (options.json) shown += "\n";
  for (const char* path : paths) {
    if (!options.events || options.json) break;
    if (commsched_flight_record_read(path, &text) != COMMSCHED_OK) {
      return SayWhyNot();
    }
    shown += std::string("\n") + path + ": " + text;
    commsched_string_free(text);
  }
  const bool written =
      std::fputs(shown.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  if (!written) std::perror("commsched flight: cannot write");
  return written ? 0 : kNotRead;
}

}  // namespace commsched::cli
