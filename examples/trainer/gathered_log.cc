#include "examples/trainer/gathered_log.h"

#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "examples/trainer/job.h"

namespace commsched::trainer {
namespace {

// What one rank tells of one step, between processes of one program.
struct Told {
  int64_t step = 0;
  StepLog::Entry entry;
};
static_assert(std::is_trivially_copyable_v<Told>);

}  // namespace

void GatheredLog::Add(int64_t /*rank*/, int64_t step,
                      const StepLog::Entry& entry) {
  const Told told = {step, entry};
  std::string bytes(sizeof(told), '\0');
  std::memcpy(bytes.data(), &told, sizeof(told));
  const std::lock_guard<std::mutex> lock(mutex_);
  told_.push_back(std::move(bytes));
  changed_.notify_one();
}

void GatheredLog::Finish() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
    changed_.notify_one();
  }
  thread_.join();
}

void GatheredLog::Run() {
  while (true) {
    std::string mine;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !told_.empty(); });
      if (told_.empty()) return;
      mine = std::move(told_.front());
      told_.pop_front();
    }
    // A rank that is lost ends the run, which says so.
    if (!Gather(mine)) return;
  }
}

bool GatheredLog::Gather(const std::string& mine) {
  const absl::StatusOr<std::vector<std::string>> all =
      trainer::Gather(context_, "step log", mine);
  if (!all.ok()) return false;
  for (size_t rank = 0; log_ != nullptr && rank < all->size(); ++rank) {
    Told told;
    if ((*all)[rank].size() != sizeof(told)) return false;
    std::memcpy(&told, (*all)[rank].data(), sizeof(told));
    log_->Add(static_cast<int64_t>(rank), told.step, told.entry);
  }
  return true;
}

}  // namespace commsched::trainer
