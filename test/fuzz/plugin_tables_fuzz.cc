#include <cstring>
#include <string>
#include <vector>

#include "comm/plugin/tables.h"
#include "test/fuzz/entries.h"
#include "test/fuzz/source.h"

namespace commsched::test {
namespace {

// No table is longer; the memory behind one is readable, as struct_size says.
constexpr size_t kTableBytes = 4096;

// A table of words that are NULL or an address that nobody may follow, behind a
// head of the input.
struct FuzzTable {
  alignas(8) char bytes[kTableBytes] = {};
  std::string name;
  std::string version;

  void Fill(Source* source) {
    commsched_plugin_head_t head = {};
    const uint8_t size_choice = source->Take<uint8_t>();
    head.struct_size =
        size_choice < 128 ? size_choice * 2 : source->Take<uint64_t>();
    if (size_choice == 255) head.struct_size = kTableBytes;
    head.abi = source->Take<uint8_t>() & 3 ? 0 : source->Take<uint32_t>();
    head.flags = source->Take<uint32_t>();
    name.resize(source->Take<uint8_t>() & 127);
    source->Fill(name.data(), name.size());
    version.resize(source->Take<uint8_t>() & 127);
    source->Fill(version.data(), version.size());
    head.name = source->Take<uint8_t>() == 0 ? nullptr : name.c_str();
    head.version = source->Take<uint8_t>() == 0 ? nullptr : version.c_str();
    std::memcpy(bytes, &head, sizeof(head));
    for (size_t at = sizeof(head); at < 256; at += sizeof(uint64_t)) {
      // An address, or two numbers that are mostly within their limits.
      const uint64_t low = source->Take<uint8_t>();
      const uint64_t word = low | low << 32;
      std::memcpy(bytes + at, &word, sizeof(word));
    }
  }
};

void CheckAccepted(const Plugin& plugin) {
  Require(plugin.kind < COMMSCHED_PLUGIN_NUM_KINDS);
  Require(!plugin.name.empty() && plugin.name.size() <= 63);
  Require(plugin.name.find_first_of("/,: \n") == std::string::npos);
  Require(!plugin.version.empty() && plugin.version.size() <= 63);
  const void* table = plugin.table.get();
  if (plugin.kind == COMMSCHED_PLUGIN_BACKEND) {
    const auto* backend = static_cast<const commsched_backend_t*>(table);
    Require(backend->instance_create != nullptr && backend->launch != nullptr &&
            backend->abort != nullptr && backend->rank_open != nullptr &&
            backend->comm_destroy != nullptr);
    Require(backend->poll != nullptr ||
            (backend->capabilities & COMMSCHED_BACKEND_INLINE) != 0);
  } else if (plugin.kind == COMMSCHED_PLUGIN_CODEC) {
    const auto* codec = static_cast<const commsched_codec_t*>(table);
    Require(codec->encode != nullptr && codec->decode != nullptr);
    Require(codec->block_elements >= 1 &&
            codec->block_elements <= COMMSCHED_CODEC_MAX_BLOCK_ELEMENTS);
    Require(codec->block_bytes >= 1 &&
            codec->block_bytes <= COMMSCHED_CODEC_MAX_BLOCK_BYTES);
  } else if (plugin.kind == COMMSCHED_PLUGIN_OBSERVER) {
    const auto* observer = static_cast<const commsched_observer_t*>(table);
    Require(observer->attach != nullptr && observer->on_event != nullptr &&
            observer->detach != nullptr);
  }
}

}  // namespace

size_t FuzzPluginTables(const uint8_t* data, size_t size) {
  Source source(data, size);
  commsched_plugin_list_t list = {};
  const uint8_t shape = source.Take<uint8_t>();
  list.struct_size = shape & 1 ? source.Take<uint64_t>() : sizeof(list);
  list.abi = shape & 2 ? source.Take<uint32_t>() : 0;
  const uint32_t count = shape >> 4;
  std::vector<FuzzTable> tables(count);
  std::vector<commsched_plugin_t> plugins(count);
  for (uint32_t i = 0; i < count; ++i) {
    tables[i].Fill(&source);
    const uint8_t kind = source.Take<uint8_t>();
    plugins[i] = {kind & 0x80 ? source.Take<uint32_t>() : kind % 4u,
                  kind & 0x40 ? source.Take<uint32_t>() : 0,
                  kind & 0x20 ? nullptr : tables[i].bytes};
  }
  // The list's own count is trusted, as any pointer is: no more than there are.
  list.num_plugins = count;
  list.plugins = shape & 4 ? nullptr : plugins.data();
  const auto read = ReadPluginList(&list, "fuzz");
  if (!read.ok()) {
    Require(!read.status().message().empty());
    return 0;
  }
  for (const Plugin& plugin : *read) CheckAccepted(plugin);
  return read->size();
}

}  // namespace commsched::test
