#include "cli/source_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace commsched::cli {
namespace {

struct Source {
  std::string address;  // "": none; then
  std::string why;
  bool is_loopback = false;
};

Source Numeric(const sockaddr_storage& storage) {
  Source source;
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    sockaddr_in address;
    std::memcpy(&address, &storage, sizeof(address));
    inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    source.is_loopback = ntohl(address.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  } else {
    sockaddr_in6 address;
    std::memcpy(&address, &storage, sizeof(address));
    inet_ntop(AF_INET6, &address.sin6_addr, text, sizeof(text));
    source.is_loopback = IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) != 0;
  }
  source.address = text;
  return source;
}

// A datagram socket that is connected has only looked the way up.
Source SourceTowards(const addrinfo& there) {
  Source source;
  sockaddr_storage here = {};
  socklen_t size = sizeof(here);
  const int fd = socket(there.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, there.ai_addr, there.ai_addrlen) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&here), &size) != 0) {
    source.why = std::strerror(errno);
  } else {
    source = Numeric(here);
  }
  if (fd >= 0) close(fd);
  return source;
}

Source SourceFor(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  // Any port: nothing is sent.
  const int error = getaddrinfo(host.c_str(), "9", &hints, &list);
  Source source;
  if (error != 0) {
    source.why = gai_strerror(error);
    return source;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(
      list, &freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    source = SourceTowards(*at);
    if (!source.address.empty()) break;
  }
  return source;
}

}  // namespace

std::string SourceAddress(const std::vector<std::string>& hosts,
                          std::string* why) {
  Source chosen;
  std::string chosen_for;
  for (const std::string& host : hosts) {
    Source source = SourceFor(host);
    if (source.address.empty()) {
      *why = "host '" + host + "' cannot be reached: " + source.why;
      return "";
    }
    if (chosen.address.empty() || chosen.is_loopback) {
      chosen = std::move(source);
      chosen_for = host;
    } else if (!source.is_loopback && source.address != chosen.address) {
      *why = "host '" + chosen_for + "' reaches this machine at " +
             chosen.address + ", host '" + host + "' at " + source.address;
      return "";
    }
  }
  return chosen.address;
}

}  // namespace commsched::cli
