// The pool that is a file.

#include <memory>
#include <string>

#include "checkpoint/files.h"
#include "commsched/pool.h"
#include "engine/capi/boundary.h"

namespace engine = commsched::engine;
using engine::AtBoundary;
using engine::NotNull;
using engine::Status;

struct commsched_file_pool {
  engine::UnnamedFile file;
  bool reserved = false;
  std::string message;  // Of the last failure.
};

namespace {

commsched_file_pool& PoolOf(void* user) {
  return *static_cast<commsched_file_pool*>(user);
}

// A failure allocates its message, and so may fail itself.
template <typename Body>
commsched_status_t Report(commsched_file_pool& pool, Body&& body) noexcept {
  try {
    const Status status = body();
    if (!status.ok()) pool.message = status.message();
    return status.code();
  } catch (const std::exception&) {
    pool.message.clear();
    return COMMSCHED_RESOURCE_EXHAUSTED;
  }
}

commsched_status_t Reserve(void* user, uint64_t bytes) {
  commsched_file_pool& pool = PoolOf(user);
  return Report(pool, [&]() -> Status {
    if (pool.reserved) {
      return engine::FailedPrecondition(
          "this file pool is already reserved; a pool serves one engine");
    }
    ENGINE_RETURN_IF_ERROR(pool.file.Reserve(bytes));
    pool.reserved = true;
    return Status();
  });
}

commsched_status_t Read(void* user, uint64_t offset, void* out,
                        uint64_t bytes) {
  commsched_file_pool& pool = PoolOf(user);
  return Report(pool, [&] { return pool.file.Read(offset, out, bytes); });
}

commsched_status_t Write(void* user, uint64_t offset, const void* from,
                         uint64_t bytes) {
  commsched_file_pool& pool = PoolOf(user);
  return Report(pool, [&] { return pool.file.Write(offset, from, bytes); });
}

const char* LastError(void* user) { return PoolOf(user).message.c_str(); }

}  // namespace

commsched_status_t commsched_file_pool_create(
    const char* folder, commsched_file_pool_t** out_pool) {
  return AtBoundary([&] {
    ENGINE_RETURN_IF_ERROR(NotNull(folder, "folder"));
    ENGINE_RETURN_IF_ERROR(NotNull(out_pool, "out_pool"));
    auto pool = std::make_unique<commsched_file_pool>();
    ENGINE_RETURN_IF_ERROR(pool->file.Create(folder));
    *out_pool = pool.release();
    return Status();
  });
}

commsched_pool_t commsched_file_pool_table(commsched_file_pool_t* pool) {
  commsched_pool_t table = commsched_pool_init();
  table.user = pool;
  table.reserve = Reserve;
  table.read = Read;
  table.write = Write;
  table.last_error = LastError;
  return table;
}

void commsched_file_pool_destroy(commsched_file_pool_t* pool) { delete pool; }
