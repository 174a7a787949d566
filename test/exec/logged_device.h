// A device whose streams write down what is enqueued, and whose events are
// complete when the test says so.
#ifndef COMMSCHED_TEST_EXEC_LOGGED_DEVICE_H_
#define COMMSCHED_TEST_EXEC_LOGGED_DEVICE_H_

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/device.h"

namespace commsched::test {

class LoggedEvent final : public Event {
 public:
  bool IsComplete(uint64_t generation) const override {
    return poisoned_ || complete_ >= generation;
  }
  // There is nobody else who could complete it.
  void Synchronize(uint64_t generation) override {
    if (!IsComplete(generation)) std::abort();
  }
  void AddListener(Parker*) override {}
  void Poison() override { poisoned_ = true; }
  void Complete(uint64_t generation) override {
    complete_ = std::max(complete_, generation);
  }

  std::string name = "event";

 private:
  uint64_t complete_ = 0;
  bool poisoned_ = false;
};

class LoggedStream final : public Stream {
 public:
  LoggedStream(std::string name, std::vector<std::string>* log)
      : name_(std::move(name)), log_(*log) {}

  void Wait(Event* event, uint64_t generation) override {
    Add("waits for", event, generation);
  }
  void Record(Event* event, uint64_t generation) override {
    Add("records", event, generation);
  }
  void Copy(const RowCopy& copy) override {
    log_.push_back(
        absl::StrCat(name_, " copies ", copy.row_bytes * copy.rows, " bytes"));
  }
  void Synchronize() override {}
  bool is_caller() const override { return false; }
  bool is_device() const override { return true; }

 private:
  void Add(const char* verb, Event* event, uint64_t generation) {
    log_.push_back(absl::StrCat(name_, " ", verb, " ",
                                static_cast<LoggedEvent*>(event)->name, "@",
                                generation));
  }

  const std::string name_;
  std::vector<std::string>& log_;
};

// One thread. Its memory is the host's.
class LoggedDevice final : public Device {
 public:
  commsched_device_kind_t kind() const override {
    return COMMSCHED_DEVICE_HOST;
  }
  int ordinal() const override { return 0; }
  std::string name() const override { return "the test's device"; }
  absl::StatusOr<std::unique_ptr<Event>> CreateEvent(uint32_t depth) override {
    depths.push_back(depth);
    return std::make_unique<LoggedEvent>();
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateSideStream() override {
    RETURN_IF_ERROR(failure);
    return std::make_unique<LoggedStream>(absl::StrCat("lane", num_streams++),
                                          &log);
  }
  absl::StatusOr<Stream*> Adopt(void*) override {
    return absl::UnimplementedError("it adopts nothing");
  }
  absl::StatusOr<void*> Allocate(uint64_t) override {
    return absl::UnimplementedError("it has no memory");
  }
  void Free(void*) override {}
  absl::Status Fill(void*, int, uint64_t) override { return absl::OkStatus(); }
  void EnterMonitor() override { ++num_monitors; }
  bool failed() const override { return !failure.ok(); }
  absl::Status status() const override { return failure; }

  std::vector<std::string> log;
  std::vector<uint32_t> depths;  // of the events, in order
  absl::Status failure;
  int num_monitors = 0;
  int num_streams = 0;
};

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_EXEC_LOGGED_DEVICE_H_
