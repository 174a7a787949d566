#ifndef COMMSCHED_EXAMPLES_TRAINER_TALLY_H_
#define COMMSCHED_EXAMPLES_TRAINER_TALLY_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace commsched::trainer {

// What every rank tells of a step, of which only what is not complete is kept.
//
// Thread-compatible.
template <typename T>
class Tally {
 public:
  explicit Tally(int64_t num_ranks)
      : num_ranks_(static_cast<size_t>(num_ranks)) {}

  // Once per rank and step. Returns what all ranks have told of `step`, by
  // rank, if this is the last of them, else nothing.
  std::vector<T> Add(int64_t rank, int64_t step, T value) {
    Entry& entry = entries_[step];
    entry.values.resize(num_ranks_);
    entry.values[static_cast<size_t>(rank)] = std::move(value);
    if (++entry.count < num_ranks_) return {};
    std::vector<T> all = std::move(entry.values);
    entries_.erase(step);
    return all;
  }

 private:
  struct Entry {
    size_t count = 0;
    std::vector<T> values;
  };

  const size_t num_ranks_;
  std::map<int64_t, Entry> entries_;
};

}  // namespace commsched::trainer

#endif  // COMMSCHED_EXAMPLES_TRAINER_TALLY_H_
