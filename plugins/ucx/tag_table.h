// Lists whose links are in what they hold: nothing is allocated for an entry.
#ifndef COMMSCHED_PLUGINS_UCX_TAG_TABLE_H_
#define COMMSCHED_PLUGINS_UCX_TAG_TABLE_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace commsched::ucx {

// First in, first out. T has `T* next`.
template <typename T>
class LinkedQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  T* front() const { return first_; }
  void Push(T* one) {
    one->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = one;
    last_ = one;
  }
  void Pop() { first_ = first_->next; }

  // The first one for which matches(*one), taken out; null: there is none.
  template <typename Matches>
  T* TakeIf(const Matches& matches) {
    T* before = nullptr;
    for (T* one = first_; one != nullptr; before = one, one = one->next) {
      if (!matches(*one)) continue;
      (before == nullptr ? first_ : before->next) = one->next;
      if (last_ == one) last_ = before;
      return one;
    }
    return nullptr;
  }
  // False: it is not in here.
  bool Remove(const T* one) {
    return TakeIf([&](const T& other) { return &other == one; }) != nullptr;
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;  // Of one that is not empty.
};

// Entries by tag, in their order among those with the same one. T has also
// `uint64_t tag`.
template <typename T>
class TagTable {
 public:
  void Push(T* one) { QueueOf(one->tag).Push(one); }
  // The first one of that tag, or null.
  T* Take(uint64_t tag) {
    return QueueOf(tag).TakeIf([&](const T& one) { return one.tag == tag; });
  }
  bool Remove(const T* one) { return QueueOf(one->tag).Remove(one); }
  // The first one of that tag, which stays.
  T* Find(uint64_t tag) {
    T* one = QueueOf(tag).front();
    while (one != nullptr && one->tag != tag) one = one->next;
    return one;
  }
  // Any one for which matches(*one).
  template <typename Matches>
  T* TakeIf(const Matches& matches) {
    for (LinkedQueue<T>& queue : queues_) {
      T* const one = queue.TakeIf(matches);
      if (one != nullptr) return one;
    }
    return nullptr;
  }

 private:
  static constexpr int kBits = 8;

  LinkedQueue<T>& QueueOf(uint64_t tag) {
    constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;
    return queues_[static_cast<size_t>(tag * kGolden >> (64 - kBits))];
  }

  std::array<LinkedQueue<T>, size_t{1} << kBits> queues_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_TAG_TABLE_H_
