#include "control/wire.h"

namespace commsched {

void WireWriter::PutBytes(uint64_t number, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes; ++i) {
    bytes_.push_back(static_cast<char>(number >> (8 * i)));
  }
}

void WireWriter::Put(const std::string& text) {
  Put(static_cast<uint32_t>(text.size()));
  bytes_.append(text);
}

void WireWriter::Put(const std::vector<int32_t>& numbers) {
  Put(static_cast<uint32_t>(numbers.size()));
  for (const int32_t number : numbers) Put(number);
}

void WireWriter::Put(const std::vector<std::string>& texts) {
  Put(static_cast<uint32_t>(texts.size()));
  for (const std::string& text : texts) Put(text);
}

absl::Status WireReader::Finish() const {
  if (bad_) return absl::InvalidArgumentError("message is too short");
  if (!rest_.empty()) return absl::InvalidArgumentError("message is too long");
  return absl::OkStatus();
}

uint64_t WireReader::GetBytes(size_t num_bytes) {
  if (bad_ || rest_.size() < num_bytes) {
    bad_ = true;
    return 0;
  }
  uint64_t number = 0;
  for (size_t i = 0; i < num_bytes; ++i) {
    number |= uint64_t{static_cast<unsigned char>(rest_[i])} << (8 * i);
  }
  rest_.remove_prefix(num_bytes);
  return number;
}

uint32_t WireReader::GetLength(size_t item_bytes) {
  const auto length = static_cast<uint32_t>(GetBytes(sizeof(uint32_t)));
  if (length > rest_.size() / item_bytes) bad_ = true;
  return bad_ ? 0 : length;
}

void WireReader::Get(uint32_t* number) {
  *number = static_cast<uint32_t>(GetBytes(sizeof(*number)));
}

void WireReader::Get(int32_t* number) {
  *number = static_cast<int32_t>(GetBytes(sizeof(*number)));
}

void WireReader::Get(uint64_t* number) { *number = GetBytes(sizeof(*number)); }

void WireReader::Get(int64_t* number) {
  *number = static_cast<int64_t>(GetBytes(sizeof(*number)));
}

void WireReader::Get(std::string* text) {
  const uint32_t length = GetLength(1);
  text->assign(rest_.data(), length);
  rest_.remove_prefix(length);
}

void WireReader::Get(std::vector<int32_t>* numbers) {
  numbers->resize(GetLength(sizeof(int32_t)));
  for (int32_t& number : *numbers) Get(&number);
}

void WireReader::Get(std::vector<std::string>* texts) {
  texts->resize(GetLength(sizeof(uint32_t)));
  for (std::string& text : *texts) Get(&text);
}

}  // namespace commsched
