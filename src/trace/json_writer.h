// JSON text in small pieces, handed on as it grows.
#ifndef COMMSCHED_SRC_TRACE_JSON_WRITER_H_
#define COMMSCHED_SRC_TRACE_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace commsched {

// `text` as a JSON string with its quotes. The result is ASCII whatever the
// bytes are: what is not UTF-8 becomes U+FFFD.
std::string JsonQuoted(absl::string_view text);

// Writes one JSON value. There is a space after each colon, which Holistic
// Trace Analysis needs to find a rank, and no other white space but NewLine().
// Well-formedness is the caller's: keys inside objects, ends that match.
//
// Thread-compatible.
class JsonWriter {
 public:
  using Sink = absl::FunctionRef<void(absl::string_view)>;

  // `sink` gets the text in order, the last of it in Finish(); it is called
  // until then and must live as long.
  explicit JsonWriter(Sink sink) : sink_(sink) {}

  void BeginObject() { Open('{'); }
  void EndObject() { Close('}'); }
  void BeginArray() { Open('['); }
  void EndArray() { Close(']'); }

  void Key(absl::string_view key);
  void String(absl::string_view value);
  template <typename Int, typename = std::enable_if_t<std::is_integral_v<Int>>>
  void Number(Int value) {
    Separate();
    absl::StrAppend(&text_, value);
  }

  void Field(absl::string_view key, absl::string_view value) {
    Key(key);
    String(value);
  }
  template <typename Int, typename = std::enable_if_t<std::is_integral_v<Int>>>
  void Field(absl::string_view key, Int value) {
    Key(key);
    Number(value);
  }

  // The next key or value starts a line.
  void NewLine() { new_line_ = true; }

  void Finish();

 private:
  // Before a key or a value: the comma, if one is due, and the line.
  void Separate();
  void Open(char bracket);
  void Close(char bracket);

  const Sink sink_;
  std::string text_;
  bool comma_due_ = false;
  bool new_line_ = false;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_TRACE_JSON_WRITER_H_
