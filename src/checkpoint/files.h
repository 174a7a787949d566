// Files that come into being whole, files that are read where asked, and files
// without a name. Every error names the path.
#ifndef COMMSCHED_SRC_CHECKPOINT_FILES_H_
#define COMMSCHED_SRC_CHECKPOINT_FILES_H_

#include <cstdint>
#include <string>

#include "checkpoint/status.h"

namespace commsched::engine {

// A file descriptor. Thread-compatible.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() { Close(); }
  Descriptor(Descriptor&& other) noexcept : value_(other.value_) {
    other.value_ = -1;
  }
  Descriptor& operator=(Descriptor&& other) noexcept;

  int get() const { return value_; }
  void Close();

 private:
  int value_ = -1;
};

// A file that appears under its name when it is complete and on the disk, and
// replaces one that is there. Until then it has a name that nobody can guess
// and that was free, which goes if this goes: nothing that is there is written
// to or removed, and no symbolic link is followed.
//
// Thread-compatible.
class NewFile {
 public:
  NewFile() = default;
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // Its temporary name is `prefix`, which is in the folder of `path`, with an
  // ending that IsTemporaryEnding() knows.
  Status Create(const std::string& path, const std::string& prefix);
  Status Append(const void* data, uint64_t bytes);
  // Puts the file on the disk, with its name. Fails with DATA_LOSS if it is not
  // as long as what was appended: something else writes to it.
  Status Publish();

 private:
  std::string path_;
  std::string temporary_;  // Empty: there is none.
  uint64_t bytes_ = 0;     // Appended.
  Descriptor descriptor_;
};

// Whether a NewFile ends its temporary name so: ".0123456789abcdef.tmp".
bool IsTemporaryEnding(const std::string& ending);

// An existing file, for reading.
//
// Thread-compatible.
class OldFile {
 public:
  // Fails with INVALID_ARGUMENT if it is no regular file.
  Status Open(const std::string& path);
  uint64_t bytes() const { return bytes_; }
  // Fails with DATA_LOSS if the file ends before.
  Status Read(uint64_t offset, void* out, uint64_t bytes) const;

 private:
  std::string path_;
  uint64_t bytes_ = 0;
  Descriptor descriptor_;
};

// A file without a name, which goes with its descriptor.
//
// Thread-compatible.
class UnnamedFile {
 public:
  // Creates the file in `folder`.
  Status Create(const std::string& folder);
  // Takes `bytes` from the file system, which read as zeros.
  Status Reserve(uint64_t bytes);
  Status Read(uint64_t offset, void* out, uint64_t bytes) const;
  Status Write(uint64_t offset, const void* from, uint64_t bytes);

 private:
  std::string name_;  // For messages.
  Descriptor descriptor_;
};

// All of a file that has at most `most` bytes.
Status ReadWhole(const std::string& path, uint64_t most, std::string* out);

bool Exists(const std::string& path);

// `path` is for messages.
Status WriteAt(const Descriptor& file, const std::string& path, uint64_t offset,
               const void* from, uint64_t bytes);

// Opens `path` for reading and writing; makes an empty file of it if there is
// none. Follows no symbolic link.
Status OpenOrCreate(const std::string& path, Descriptor* out);

// Fails with NOT_FOUND or INVALID_ARGUMENT if it is none.
Status CheckFolder(const std::string& path);

}  // namespace commsched::engine

#endif  // COMMSCHED_SRC_CHECKPOINT_FILES_H_
