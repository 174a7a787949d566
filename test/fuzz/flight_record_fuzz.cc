#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"
#include "trace/flight_comparison.h"
#include "trace/flight_record.h"

namespace commsched::test {
namespace {

constexpr size_t kSlotBytes = 4 * sizeof(uint64_t);
// Where the header of the file has its sizes.
constexpr size_t kCapacityAt = 8;
constexpr size_t kNamesBytesAt = 16;
constexpr size_t kRingOffsetAt = 32;
constexpr size_t kHeaderBytes = 72 + FlightRecord::kMaxMessage;

void PutWord(std::string* file, size_t at, uint64_t word) {
  std::memcpy(file->data() + at, &word, sizeof(word));
}

// The file of a whole record would be a quarter of a megabyte, so it is made of
// less: a head, names, and slots at places of the ring.
std::string MakeFile(Source* source) {
  std::string file("csfligh1", 8);
  file.resize(kHeaderBytes);
  PutWord(&file, kCapacityAt, FlightRecord::kCapacity);
  const uint64_t num_launches = source->TakeNumber();
  PutWord(&file, 24, num_launches);
  PutWord(&file, 40, source->TakeNumber());  // rank
  PutWord(&file, 64, source->TakeNumber());  // head
  const std::string message = source->TakeText();
  std::memcpy(file.data() + 72, message.data(), message.size());
  const std::string names = source->TakeText();
  PutWord(&file, kNamesBytesAt, names.size());
  const size_t ring = kHeaderBytes + names.size();
  PutWord(&file, kRingOffsetAt, ring);
  file += names;
  file.resize(ring + FlightRecord::kCapacity * kSlotBytes);
  while (source->size() > 0) {
    const uint64_t place = source->TakeNumber() % FlightRecord::kCapacity;
    const size_t at = ring + place * kSlotBytes;
    PutWord(&file, at, source->Take<uint64_t>());       // time
    PutWord(&file, at + 8, source->TakeNumber());       // number
    PutWord(&file, at + 16, source->TakeNumber() % 9);  // event
    const uint64_t round = source->TakeNumber();
    PutWord(&file, at + 24, place + 1 + round * FlightRecord::kCapacity);
  }
  return file;
}

// Reads `file` by way of a file that has no name: what it says, and what a
// comparison of it says.
absl::StatusOr<std::string> Read(const std::string& file) {
  const int handle = memfd_create("flight_record", MFD_CLOEXEC);
  Require(handle >= 0);
  Require(write(handle, file.data(), file.size()) ==
          static_cast<ssize_t>(file.size()));
  const std::string path = absl::StrCat("/proc/self/fd/", handle);
  auto text = ReadFlightRecord(path);
  const auto log = LoadFlightRecord(path);
  close(handle);
  Require(log.status() == text.status());
  if (!log.ok()) return text;
  std::vector<FlightLog> logs = {*log, *log};
  logs[1].rank = log->rank ^ 1;
  if (!log->events.empty()) logs[1].events.pop_back();
  const auto compared = FlightComparison::Make(logs);
  Require(compared.ok());
  Require(compared->Json().front() == '{');
  return *text + compared->Text();
}

}  // namespace

size_t FuzzFlightRecord(const uint8_t* data, size_t size) {
  Source source(data, size);
  const uint8_t shape = source.Take<uint8_t>();
  std::string file;
  if (shape % 4 == 0) {
    file.assign(reinterpret_cast<const char*>(source.data()), source.size());
  } else {
    // Some words of the head, and where the file ends, are anything.
    const uint64_t at = shape % 4 == 1 ? source.TakeNumber() : ~uint64_t{0};
    const uint64_t word = shape % 4 == 1 ? source.TakeNumber() : 0;
    const uint64_t cut = shape % 4 == 2 ? source.TakeNumber() : 0;
    file = MakeFile(&source);
    if (at < kHeaderBytes / 8) PutWord(&file, at * 8, word);
    if (cut < file.size()) file.resize(file.size() - cut);
  }
  const auto text = Read(file);
  if (!text.ok()) {
    Require(text.status().code() == absl::StatusCode::kInvalidArgument);
    Require(absl::StrContains(text.status().message(), "flight record"));
    return 0;
  }
  Require(absl::StrContains(*text, "rank "));
  return 1;
}

}  // namespace commsched::test
