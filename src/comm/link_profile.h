// Profiles of links (commsched/link_profile.h) as text, as a file and on their
// way to the ranks of a job.
#ifndef COMMSCHED_SRC_COMM_LINK_PROFILE_H_
#define COMMSCHED_SRC_COMM_LINK_PROFILE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "commsched/link_profile.h"

namespace commsched {

inline constexpr size_t kMaxLinkProfileBytes = 65536;
inline constexpr size_t kMaxLinkNoteBytes = 4096;
// Ten seconds; nothing above is a link.
inline constexpr int64_t kMaxLinkNs = 10'000'000'000;
inline constexpr double kMinLinkBytesPerS = 1;
inline constexpr double kMaxLinkBytesPerS = 1e15;

// kInvalidArgument, naming level, key, value and range.
absl::Status CheckLinkProfile(const commsched_link_profile_t& profile);

// docs/link_profile.md. Errors as of commsched_link_profile_from_json().
absl::StatusOr<commsched_link_profile_t> LinkProfileFromJson(
    absl::string_view text);
std::string LinkProfileToJson(const commsched_link_profile_t& profile,
                              absl::string_view note);

// The file `path`. Errors as of commsched_link_profile_read(), which name it.
absl::StatusOr<commsched_link_profile_t> ReadLinkProfile(
    const std::string& path);

// For Roster::links: kMaxLinksBytes at most.
std::string EncodeLinks(const commsched_link_profile_t& profile);
// None of "". kInvalidArgument for what is no profile, naming rank 0, whose it
// is.
absl::StatusOr<std::optional<commsched_link_profile_t>> DecodeLinks(
    absl::string_view bytes);

}  // namespace commsched

#endif  // COMMSCHED_SRC_COMM_LINK_PROFILE_H_
