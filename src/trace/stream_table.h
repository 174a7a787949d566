// Which stream of the picture each record is drawn on.
#ifndef COMMSCHED_SRC_TRACE_STREAM_TABLE_H_
#define COMMSCHED_SRC_TRACE_STREAM_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "trace/recorder.h"

namespace commsched {

// In units of `unit_ns`, rounded down. Begin and end are rounded alike, so that
// what touches still touches and what is disjoint stays so.
int64_t RoundedDown(int64_t ns, int64_t unit_ns);
inline int64_t Microseconds(int64_t ns) { return RoundedDown(ns, 1000); }

// Whether a record is drawn as a kernel on a stream.
bool IsKernel(const Record& record);

// A stream is a row of the picture and must not show two kernels at once, but a
// lane may hold several launches in flight: what does not fit the lane's own
// row moves to a further one.
class StreamTable {
 public:
  struct Row {
    int stream = 0;
    std::string title;
  };

  // `records` are sorted by begin. The picture shows times in units of
  // `unit_ns`, rounded down: on its grid no two kernels of a row overlap.
  StreamTable(const std::vector<Record>& records, int64_t unit_ns);

  // Of the i-th record; it must be a kernel.
  int StreamOf(size_t i) const { return rows_[row_of_record_[i]].stream; }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  // (kind, lane, how many of the lane run beside it)
  using Key = std::tuple<RecordKind, int, int>;
  void NumberRows(const std::map<Key, size_t>& row_of_key);

  std::vector<size_t> row_of_record_;
  std::vector<Row> rows_;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_STREAM_TABLE_H_
