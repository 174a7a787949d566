/// The profile of links: what messages cost within a host and between hosts.
///
/// `commsched bench coll --profile FILE` measures one; the join of a job gives
/// that of rank 0 to all ranks, and every backend (COMMSCHED_LINK_PROFILE,
/// commsched_join_desc_t::link_profile). The file: docs/link_profile.md.
#ifndef COMMSCHED_LINK_PROFILE_H_
#define COMMSCHED_LINK_PROFILE_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/// One level of links. Never grows.
typedef struct commsched_link_level {
  /// One way, of a small message between two ranks that wait for each other.
  int64_t latency_ns;
  /// In one direction, while as much goes in the other: of a rank, within a
  /// host; of a host's link, which its ranks share, between hosts.
  double bytes_per_s;
  /// The processor's time for a message, at one end.
  int64_t message_ns;
} commsched_link_level_t;

typedef struct commsched_link_profile {
  uint64_t struct_size;            ///< Set by commsched_link_profile_init().
  commsched_link_level_t host;     ///< Within a host.
  commsched_link_level_t network;  ///< Between hosts.
} commsched_link_profile_t;

/// Returns the profile that holds where none was measured: memory that several
/// ranks of a host copy through, and 10 Gbit/s between hosts.
static inline commsched_link_profile_t commsched_link_profile_init(void) {
  commsched_link_profile_t profile;
  memset(&profile, 0, sizeof(profile));
  profile.struct_size = sizeof(profile);
  profile.host.latency_ns = 2000;
  profile.host.bytes_per_s = 4e9;
  profile.host.message_ns = 1000;
  profile.network.latency_ns = 50000;
  profile.network.bytes_per_s = 1.25e9;
  profile.network.message_ns = 5000;
  return profile;
}

/// Reads a profile from JSON, format "commsched-links/1". A level, or a key of
/// one, that is not there has its default.
///
/// Shape:     `json` holds `length` bytes, 65536 at most; no NUL is needed.
///            `out_profile` is made by commsched_link_profile_init().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT    NULL, not JSON, another format, a key that is
///                                unknown or there twice, a value outside its
///                                range: the message has key, value and range
///            RESOURCE_EXHAUSTED  more than 65536 bytes
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_link_profile_from_json(
    const char* json, uint64_t length, commsched_link_profile_t* out_profile);

/// Writes `profile` as JSON. `note`, which is for people (how it was measured),
/// becomes the value of the key "note"; NULL: none.
///
/// Ownership: release `*out_json` with commsched_string_free().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, a value outside its range, a note of more
///                              than 4096 bytes or that is not UTF-8
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_link_profile_to_json(
    const commsched_link_profile_t* profile, const char* note, char** out_json);

/// Reads a profile from the file `path`.
///
/// Threads:   any.
/// Blocks:    while the file is read.
/// Errors:    as commsched_link_profile_from_json(), naming the file, and
///            NOT_FOUND    there is no such file
///            UNAVAILABLE  it cannot be read: why
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_link_profile_read(
    const char* path, commsched_link_profile_t* out_profile);

/// Writes a profile to the file `path`, which is replaced as a whole.
///
/// Threads:   any.
/// Blocks:    while the file is written.
/// Errors:    as commsched_link_profile_to_json(), and
///            UNAVAILABLE  it cannot be written: why
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_link_profile_write(const commsched_link_profile_t* profile,
                             const char* note, const char* path);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_LINK_PROFILE_H_
