#include "examples/trainer/figures.h"

#include <cstring>
#include <type_traits>

#include "absl/status/status.h"

namespace commsched::trainer {
namespace {

class Writer {
 public:
  template <typename T>
  void operator()(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <typename T>
  void operator()(const std::vector<T>& values) {
    (*this)(uint64_t{values.size()});
    for (const T& value : values) (*this)(value);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(absl::string_view bytes) : rest_(bytes) {}

  template <typename T>
  void operator()(T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    good_ = good_ && rest_.size() >= sizeof(value);
    if (!good_) return;
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
  }
  template <typename T>
  void operator()(std::vector<T>& values) {
    uint64_t count = 0;
    (*this)(count);
    good_ = good_ && count <= rest_.size() / sizeof(T);
    if (!good_) return;
    values.resize(count);
    for (T& value : values) (*this)(value);
  }
  bool AtEnd() const { return good_ && rest_.empty(); }

 private:
  absl::string_view rest_;
  bool good_ = true;
};

template <typename Figures, typename Visitor>
void Visit(Figures& figures, Visitor& visit) {
  visit(figures.last_loss);
  visit(figures.peak_bytes_in_flight);
  visit(figures.peak_live_bytes);
  visit(figures.copy_ns);
  visit(figures.copy_exposed_ns);
  visit(figures.steps);
  visit(figures.op_costs_ns);
  visit(figures.stalls);
}

}  // namespace

std::string EncodeFigures(const RankFigures& figures) {
  Writer writer;
  Visit(figures, writer);
  return writer.Take();
}

absl::StatusOr<RankFigures> DecodeFigures(absl::string_view bytes) {
  RankFigures figures;
  Reader reader(bytes);
  Visit(figures, reader);
  if (reader.AtEnd()) return figures;
  return absl::DataLossError("these are not the figures of a rank");
}

}  // namespace commsched::trainer
