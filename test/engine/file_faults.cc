#include "test/engine/file_faults.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace commsched::engine {
namespace {

std::atomic<FileHook> g_hook{nullptr};

// Whether `call` goes ahead.
bool MayCall(const char* call) {
  const FileHook hook = g_hook.load();
  if (hook == nullptr) return true;
  const int error = hook(call);
  if (error == 0) return true;
  errno = error;
  return false;
}

}  // namespace

void SetFileHook(FileHook hook) { g_hook.store(hook); }

}  // namespace commsched::engine

// For the libraries to find them.
#pragma GCC visibility push(default)
extern "C" {

ssize_t write(int descriptor, const void* data, size_t bytes) {
  using commsched::engine::g_hook;
  if (!commsched::engine::MayCall("write")) return -1;
  if (g_hook.load() != nullptr && bytes > 1) bytes /= 2;
  return syscall(SYS_write, descriptor, data, bytes);
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  using commsched::engine::g_hook;
  if (!commsched::engine::MayCall("pwrite")) return -1;
  if (g_hook.load() != nullptr && bytes > 1) bytes /= 2;
  return syscall(SYS_pwrite64, descriptor, data, bytes, offset);
}

int fsync(int descriptor) {
  if (!commsched::engine::MayCall("fsync")) return -1;
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  if (!commsched::engine::MayCall("rename")) return -1;
  return static_cast<int>(
      syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int unlink(const char* path) noexcept {
  if (!commsched::engine::MayCall("unlink")) return -1;
  return static_cast<int>(syscall(SYS_unlinkat, AT_FDCWD, path, 0));
}

}  // extern "C"
#pragma GCC visibility pop
