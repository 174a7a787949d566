#include "trace/json_writer.h"

#include <cstddef>

#include "absl/strings/str_format.h"

namespace commsched {
namespace {

constexpr size_t kFlushBytes = 64 * 1024;
constexpr uint32_t kReplacement = 0xFFFD;

// Takes the first code point off `text`, which is not empty. What is no UTF-8
// (a lone or missing continuation, an overlong form, a surrogate, more than
// U+10FFFF) is taken off byte by byte as U+FFFD.
uint32_t NextCodePoint(absl::string_view& text) {
  const auto byte = [&text](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t length = lead < 0x80             ? 1
                        : (lead & 0xE0) == 0xC0 ? 2
                        : (lead & 0xF0) == 0xE0 ? 3
                        : (lead & 0xF8) == 0xF0 ? 4
                                                : 0;
  uint32_t code = length == 1 ? lead : lead & (0x7F >> length);
  bool valid = length != 0 && text.size() >= length;
  for (size_t i = 1; valid && i < length; ++i) {
    valid = (byte(i) & 0xC0) == 0x80;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  valid = valid && code >= kLeast[length] && code <= 0x10FFFF &&
          (code < 0xD800 || code > 0xDFFF);
  text.remove_prefix(valid ? length : 1);
  return valid ? code : kReplacement;
}

void AppendEscaped(std::string* out, uint32_t code) {
  if (code == '"' || code == '\\') {
    out->push_back('\\');
    out->push_back(static_cast<char>(code));
  } else if (code >= 0x20 && code < 0x7F) {
    out->push_back(static_cast<char>(code));
  } else if (code < 0x10000) {
    absl::StrAppendFormat(out, "\\u%04x", code);
  } else {
    absl::StrAppendFormat(out, "\\u%04x\\u%04x",
                          0xD800 + ((code - 0x10000) >> 10),
                          0xDC00 + ((code - 0x10000) & 0x3FF));
  }
}

void AppendQuoted(std::string* out, absl::string_view text) {
  out->push_back('"');
  while (!text.empty()) AppendEscaped(out, NextCodePoint(text));
  out->push_back('"');
}

}  // namespace

std::string JsonQuoted(absl::string_view text) {
  std::string quoted;
  AppendQuoted(&quoted, text);
  return quoted;
}

void JsonWriter::Key(absl::string_view key) {
  Separate();
  AppendQuoted(&text_, key);
  text_ += ": ";
  comma_due_ = false;
}

void JsonWriter::String(absl::string_view value) {
  Separate();
  AppendQuoted(&text_, value);
}

void JsonWriter::Separate() {
  if (comma_due_) text_ += ',';
  if (new_line_) text_ += '\n';
  comma_due_ = true;
  new_line_ = false;
  if (text_.size() >= kFlushBytes) {
    sink_(text_);
    text_.clear();
  }
}

void JsonWriter::Open(char bracket) {
  Separate();
  text_ += bracket;
  comma_due_ = false;
}

void JsonWriter::Close(char bracket) {
  if (new_line_) text_ += '\n';
  text_ += bracket;
  comma_due_ = true;
  new_line_ = false;
}

void JsonWriter::Finish() {
  text_ += '\n';
  sink_(text_);
  text_.clear();
}

}  // namespace commsched
