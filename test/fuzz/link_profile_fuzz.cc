#include <string>

#include "absl/strings/string_view.h"
#include "comm/link_profile.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {

size_t FuzzLinkProfile(const uint8_t* data, size_t size) {
  const absl::string_view text(reinterpret_cast<const char*>(data), size);
  const auto sent = DecodeLinks(text);
  if (sent.ok() && sent->has_value()) {
    Require(CheckLinkProfile(**sent).ok() && EncodeLinks(**sent) == text);
  }
  const auto profile = LinkProfileFromJson(text);
  if (!profile.ok()) {
    Require(!profile.status().message().empty());
    return 0;
  }
  Require(CheckLinkProfile(*profile).ok());
  const auto again = LinkProfileFromJson(LinkProfileToJson(*profile, "again"));
  Require(again.ok() && EncodeLinks(*again) == EncodeLinks(*profile));
  return 1;
}

}  // namespace commsched::test
