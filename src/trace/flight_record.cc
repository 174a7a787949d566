#include "trace/flight_record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

using Entry = FlightLog::Entry;

constexpr char kMagic[8] = {'c', 's', 'f', 'l', 'i', 'g', 'h', '1'};
constexpr size_t kAlign = 64;
constexpr size_t kMaxShown = 64;  // events
// Of all launches' names: more than any plan has, and what a reader allocates.
constexpr uint64_t kMaxNamesBytes = uint64_t{256} << 20;
constexpr uint64_t kRingBytes = FlightRecord::kCapacity * 4 * sizeof(uint64_t);

// The file: this, the launches' names by lines, and from ring_offset the ring.
struct Header {
  char magic[8];
  uint64_t capacity;
  uint64_t names_bytes;
  uint64_t num_launches;
  uint64_t ring_offset;
  int64_t rank;
  uint8_t fingerprint[16];
  uint64_t head;  // records ever; atomic while written
  char message[FlightRecord::kMaxMessage];
};

absl::Status Unavailable(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(
      "flight record '", path, "': ", what, ": ", std::strerror(errno)));
}

absl::Status NotARecord(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", path, "' is not a flight record: ", why));
}

const char* EventName(FlightEvent event) {
  switch (event) {
    case FlightEvent::kStepBegin:
      return "step begins";
    case FlightEvent::kDue:
      return "due up to";
    case FlightEvent::kIssue:
      return "issue";
    case FlightEvent::kStart:
      return "start";
    case FlightEvent::kComplete:
      return "complete";
    case FlightEvent::kRetire:
      return "retire";
    case FlightEvent::kFail:
      return "fail";
  }
  return "unknown";
}

// Those held in `ring`, oldest first; slots half written are left out.
std::vector<Entry> EventsOf(const std::string& ring, const Header& header) {
  std::vector<Entry> events;
  const uint64_t held = std::min(header.head, header.capacity);
  for (uint64_t p = header.head - held; p < header.head; ++p) {
    uint64_t words[4];
    std::memcpy(words, ring.data() + p % header.capacity * sizeof(words),
                sizeof(words));
    if (words[3] != p + 1) continue;
    if (words[2] > static_cast<uint64_t>(FlightEvent::kFail)) continue;
    events.push_back({static_cast<int64_t>(words[0]), words[1],
                      static_cast<FlightEvent>(words[2])});
  }
  return events;
}

std::string DescribeEvent(const Entry& event, const FlightLog& log) {
  const uint64_t n = log.launches.size();
  switch (event.event) {
    case FlightEvent::kStepBegin:
      return absl::StrCat("step ", event.number, " begins");
    case FlightEvent::kFail:
      return "the session fails";
    case FlightEvent::kDue:
      if (n == 0 || event.number == 0) return "nothing is due";
      return absl::StrCat("due up to ", log.LaunchName(event.number - 1));
    case FlightEvent::kIssue:
    case FlightEvent::kStart:
    case FlightEvent::kComplete:
    case FlightEvent::kRetire:
      break;
  }
  return absl::StrCat(EventName(event.event), " ",
                      log.LaunchName(event.number));
}

std::string Describe(const FlightLog& log) {
  const std::vector<Entry>& events = log.events;
  std::string text =
      absl::StrCat("rank ", log.rank, ", plan ", log.FingerprintText(), ", ",
                   log.num_events, " events\n");
  if (!log.failure.empty()) {
    absl::StrAppend(&text, "failure: ", log.failure, "\n");
  }
  std::set<uint64_t> in_flight;
  for (const Entry& event : events) {
    if (event.event == FlightEvent::kIssue) in_flight.insert(event.number);
    if (event.event == FlightEvent::kRetire) in_flight.erase(event.number);
  }
  for (uint64_t number : in_flight) {
    absl::StrAppend(&text, "in flight: ", log.LaunchName(number), "\n");
  }
  const size_t shown = std::min(events.size(), kMaxShown);
  for (size_t i = events.size() - shown; i < events.size(); ++i) {
    // Unsigned: the file may hold times whose difference no integer has.
    const uint64_t before_ns = static_cast<uint64_t>(events.back().time_ns) -
                               static_cast<uint64_t>(events[i].time_ns);
    const double before_s =
        static_cast<double>(static_cast<int64_t>(before_ns)) * 1e-9;
    absl::StrAppendFormat(&text, "-%.6f s  %s\n", before_s,
                          DescribeEvent(events[i], log));
  }
  return text;
}

// Fills `out`; false if the file ends before, or cannot be read.
bool ReadAt(int file, uint64_t offset, void* out, uint64_t bytes) {
  char* next = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = pread(file, next, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
  return true;
}

// kInvalidArgument unless a record with such a header can be in `file_bytes`.
absl::Status CheckHeader(const std::string& path, const Header& header,
                         uint64_t file_bytes) {
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    return NotARecord(path, "it begins otherwise");
  }
  if (header.capacity != FlightRecord::kCapacity ||
      header.names_bytes > kMaxNamesBytes ||
      header.names_bytes > file_bytes - sizeof(header) ||
      header.ring_offset > file_bytes ||
      file_bytes - header.ring_offset < kRingBytes) {
    return NotARecord(path, "its sizes do not fit");
  }
  return absl::OkStatus();
}

// What a terminal would obey is left out.
std::string Printable(std::string text) {
  for (char& c : text) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    if (is_control && c != '\n') c = '?';
  }
  return text;
}

bool IsOtherThanAFile(const std::string& path) {
  struct stat about = {};
  return lstat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode) &&
         !S_ISLNK(about.st_mode);
}

}  // namespace

absl::StatusOr<std::unique_ptr<FlightRecord>> FlightRecord::Create(
    const std::string& path, const FlightInfo& info) {
  std::string names = absl::StrJoin(info.launches, "\n");
  if (names.size() > kMaxNamesBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("flight record '", path, "': the launches' names have ",
                     names.size(), " bytes; the limit is ", kMaxNamesBytes));
  }
  // A device or a pipe of the user's is not ours to replace.
  if (IsOtherThanAFile(path)) {
    return absl::UnavailableError(absl::StrCat(
        "flight record '", path, "': it exists and is not a regular file"));
  }
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.capacity = kCapacity;
  header.names_bytes = names.size();
  header.num_launches = info.launches.size();
  header.ring_offset =
      (sizeof(Header) + names.size() + kAlign - 1) / kAlign * kAlign;
  header.rank = info.rank;
  std::memcpy(header.fingerprint, info.fingerprint.data(),
              sizeof(header.fingerprint));
  const size_t bytes = header.ring_offset + kCapacity * sizeof(Slot);
  // Not cut to nothing: who still has the one that was there mapped would be
  // killed by its next store.
  unlink(path.c_str());
  const int file =
      open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return Unavailable(path, "cannot be opened");
  // Reserved now: a full disk must not be a signal later.
  if (const int error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
      error != 0) {
    close(file);
    errno = error;
    return Unavailable(path, "cannot be made as large as it must be");
  }
  void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (map == MAP_FAILED) return Unavailable(path, "cannot be mapped");
  std::memcpy(map, &header, sizeof(header));
  std::memcpy(static_cast<char*>(map) + sizeof(header), names.data(),
              names.size());
  return std::unique_ptr<FlightRecord>(
      new FlightRecord(map, bytes, header.ring_offset));
}

FlightRecord::FlightRecord(void* map, size_t bytes, size_t ring_offset)
    : map_(map),
      bytes_(bytes),
      head_(reinterpret_cast<std::atomic<uint64_t>*>(static_cast<char*>(map) +
                                                     offsetof(Header, head))),
      ring_(reinterpret_cast<Slot*>(static_cast<char*>(map) + ring_offset)) {}

FlightRecord::~FlightRecord() { munmap(map_, bytes_); }

void FlightRecord::Fail(absl::string_view message, int64_t now_ns) {
  char* to = static_cast<char*>(map_) + offsetof(Header, message);
  const size_t size = std::min(message.size(), kMaxMessage - 1);
  std::memcpy(to, message.data(), size);
  to[size] = '\0';
  Add(FlightEvent::kFail, 0, now_ns);
}

std::string FlightLog::FingerprintText() const {
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(fingerprint.data()), fingerprint.size()});
}

// Of a plan without launches there is none.
std::string FlightLog::LaunchName(uint64_t number) const {
  const uint64_t n = launches.size();
  if (n == 0) return absl::StrCat("unknown launch ", number);
  return absl::StrCat(launches[number % n], " of step ", number / n);
}

absl::StatusOr<FlightLog> LoadFlightRecord(const std::string& path) {
  // Not to wait for the writer of a pipe.
  const int file = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return Unavailable(path, "cannot be opened");
  const absl::Cleanup close_file = [file] { close(file); };
  struct stat about = {};
  if (fstat(file, &about) != 0) return Unavailable(path, "cannot be read");
  if (!S_ISREG(about.st_mode)) {
    return NotARecord(path, "it is not a regular file");
  }
  const auto file_bytes = static_cast<uint64_t>(about.st_size);
  Header header;
  if (file_bytes < sizeof(header)) return NotARecord(path, "it is too short");
  if (!ReadAt(file, 0, &header, sizeof(header))) {
    return Unavailable(path, "cannot be read");
  }
  RETURN_IF_ERROR(CheckHeader(path, header, file_bytes));
  std::string text(header.names_bytes, '\0');
  std::string ring(kRingBytes, '\0');
  if (!ReadAt(file, sizeof(header), text.data(), text.size()) ||
      !ReadAt(file, header.ring_offset, ring.data(), ring.size())) {
    return Unavailable(path, "cannot be read");
  }
  // Counted first: the names of a forged file could take many times its bytes.
  const auto num_names =
      header.num_launches == 0
          ? uint64_t{0}
          : static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')) +
                1;
  if (num_names != header.num_launches) {
    return NotARecord(path, "it does not name all launches");
  }
  FlightLog log;
  if (num_names != 0) log.launches = absl::StrSplit(Printable(text), '\n');
  log.rank = header.rank;
  std::memcpy(log.fingerprint.data(), header.fingerprint,
              sizeof(header.fingerprint));
  log.num_events = header.head;
  log.failure = Printable(std::string(
      header.message, strnlen(header.message, sizeof(header.message))));
  log.events = EventsOf(ring, header);
  return log;
}

absl::StatusOr<std::string> ReadFlightRecord(const std::string& path) {
  ASSIGN_OR_RETURN(const FlightLog log, LoadFlightRecord(path));
  return Describe(log);
}

}  // namespace commsched
