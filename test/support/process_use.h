// What the process has of the system.
#ifndef COMMSCHED_TEST_SUPPORT_PROCESS_USE_H_
#define COMMSCHED_TEST_SUPPORT_PROCESS_USE_H_

#include <cstddef>
#include <filesystem>
#include <ostream>

namespace commsched::test {

// Its threads and open descriptors, counted when this is made.
struct ProcessUse {
  size_t threads = Entries("/proc/self/task");
  size_t descriptors = Entries("/proc/self/fd");

  bool operator==(const ProcessUse&) const = default;

 private:
  static size_t Entries(const char* folder) {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      (void)entry;
      ++count;
    }
    return count;
  }
};

inline std::ostream& operator<<(std::ostream& out, const ProcessUse& use) {
  return out << use.threads << " threads, " << use.descriptors
             << " descriptors";
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SUPPORT_PROCESS_USE_H_
