#include "comm/plugin/tables.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace commsched {
namespace {

// No table is larger; a greater struct_size is an uninitialised one.
constexpr uint64_t kMaxTableSize = 4096;
constexpr size_t kMaxTextLength = 63;

static_assert(offsetof(commsched_backend_t, version) ==
              offsetof(commsched_plugin_head_t, version));
static_assert(offsetof(commsched_policy_t, version) ==
              offsetof(commsched_plugin_head_t, version));
static_assert(offsetof(commsched_codec_t, version) ==
              offsetof(commsched_plugin_head_t, version));
static_assert(offsetof(commsched_observer_t, version) ==
              offsetof(commsched_plugin_head_t, version));

absl::Status CheckSize(absl::string_view what, uint64_t size, uint64_t least,
                       const char* field = "struct_size") {
  // Structs of every version end with a whole field, of pointers at most.
  if (size >= least && size <= kMaxTableSize && size % sizeof(void*) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, ".", field, " is ", size, ", not a multiple of ",
                   sizeof(void*), " in ", least, "..", kMaxTableSize));
}

absl::Status CheckAbi(absl::string_view what, uint32_t abi, uint32_t known) {
  if (abi == known) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, " has ABI ", abi, "; this library knows ", known));
}

// A text of 1..kMaxTextLength characters that `allowed` takes. Never reads
// behind the first that is not.
template <typename Allowed>
absl::Status CheckText(absl::string_view what, const char* text,
                       Allowed allowed) {
  if (text == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is NULL"));
  }
  size_t length = 0;
  while (length <= kMaxTextLength && text[length] != '\0') {
    if (!allowed(text[length])) {
      const unsigned value = static_cast<unsigned char>(text[length]);
      return absl::InvalidArgumentError(absl::StrCat(what, " has a character ",
                                                     value, " at ", length,
                                                     ", which is not allowed"));
    }
    ++length;
  }
  if (length >= 1 && length <= kMaxTextLength) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has ", length > kMaxTextLength ? "more than " : "",
                   std::min(length, kMaxTextLength),
                   " characters; it must have 1..", kMaxTextLength));
}

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}
bool IsPrintable(char c) { return c >= ' ' && c <= '~'; }

struct Required {
  const char* name;
  bool present;
};

absl::Status CheckPresent(absl::string_view what,
                          std::initializer_list<Required> functions) {
  for (const Required& function : functions) {
    if (function.present) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ".", function.name, " is NULL"));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(absl::string_view what, const char* field,
                        uint64_t value, uint64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ".", field, " is ", value, ", outside 1..", most));
}

// Of a table whose struct_size is still the plugin's.
absl::Status FindLaunchBytes(commsched_backend_t* table,
                             absl::string_view what) {
  constexpr uint64_t kFirst = offsetof(commsched_launch_t, tag);
  if (table->struct_size <= offsetof(commsched_backend_t, launch_bytes)) {
    table->launch_bytes = kFirst;
  }
  if (table->comm_expect == nullptr) return absl::OkStatus();
  return CheckSize(what, table->launch_bytes, kFirst, "launch_bytes");
}

// Leaves the first `num_known` bits of a mask of which 0 means a default, so
// that one without any of them must not become 0.
absl::Status KeepKnown(absl::string_view what, const char* field,
                       uint32_t num_known, uint32_t* mask) {
  const uint32_t known = *mask & ((1u << num_known) - 1);
  if (known == 0 && *mask != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ".", field, " is ", *mask, ", of which bits 0..",
                     num_known - 1, " are known here"));
  }
  *mask = known;
  return absl::OkStatus();
}

absl::Status Check(commsched_backend_t* table, absl::string_view what) {
  RETURN_IF_ERROR(CheckPresent(
      what, {{"instance_create", table->instance_create != nullptr},
             {"instance_destroy", table->instance_destroy != nullptr},
             {"rank_open", table->rank_open != nullptr},
             {"rank_close", table->rank_close != nullptr},
             {"comm_create", table->comm_create != nullptr},
             {"launch", table->launch != nullptr},
             {"abort", table->abort != nullptr},
             {"comm_destroy", table->comm_destroy != nullptr}}));
  table->capabilities &= 2 * COMMSCHED_BACKEND_OWN_COUNTS - 1;
  RETURN_IF_ERROR(KeepKnown(what, "kinds", COMMSCHED_RECV + 1, &table->kinds));
  RETURN_IF_ERROR(KeepKnown(what, "dtypes", COMMSCHED_U8 + 1, &table->dtypes));
  RETURN_IF_ERROR(KeepKnown(what, "reductions", COMMSCHED_PREMUL_SUM + 1,
                            &table->reductions));
  const bool stream_ordered =
      (table->capabilities & COMMSCHED_BACKEND_STREAM_ORDERED) != 0;
  const bool is_inline = (table->capabilities & COMMSCHED_BACKEND_INLINE) != 0;
  if (stream_ordered && is_inline) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is both INLINE and STREAM_ORDERED"));
  }
  const bool tags = (table->capabilities & COMMSCHED_BACKEND_TAGS) != 0;
  const bool p2p = (table->capabilities & COMMSCHED_BACKEND_P2P) != 0;
  if (tags && (!p2p || stream_ordered || is_inline)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, p2p ? " has TAGS and is INLINE or STREAM_ORDERED"
                               : " has TAGS without P2P"));
  }
  RETURN_IF_ERROR(FindLaunchBytes(table, what));
  if ((table->wait == nullptr) != (table->interrupt == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has only one of wait and interrupt"));
  }
  if ((table->mem_register == nullptr) != (table->mem_unregister == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has only one of mem_register and mem_unregister"));
  }
  if ((table->mem_alloc == nullptr) != (table->mem_free == nullptr)) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " has only one of mem_alloc and mem_free"));
  }
  // A stream of the host is a thread, on which a backend cannot enqueue.
  const bool on_host = table->memory_kinds == 0 ||
                       (table->memory_kinds & 1u << COMMSCHED_DEVICE_HOST) != 0;
  if (stream_ordered == on_host) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ".memory_kinds is ", table->memory_kinds, ": ",
        stream_ordered ? "one that is STREAM_ORDERED takes memory of a device"
                       : "one that is not STREAM_ORDERED takes the host's"));
  }
  if (is_inline || stream_ordered) return absl::OkStatus();
  return CheckPresent(what, {{"poll", table->poll != nullptr}});
}

absl::Status Check(commsched_policy_t* table, absl::string_view what) {
  if (table->merge != nullptr || table->order != nullptr) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " has neither merge nor order"));
}

absl::Status Check(commsched_codec_t* table, absl::string_view what) {
  RETURN_IF_ERROR(CheckPresent(what, {{"encode", table->encode != nullptr},
                                      {"decode", table->decode != nullptr}}));
  table->dtypes &=
      1u << COMMSCHED_F32 | 1u << COMMSCHED_F16 | 1u << COMMSCHED_BF16;
  if (table->dtypes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ".dtypes has none of f32, f16, bf16"));
  }
  RETURN_IF_ERROR(CheckRange(what, "block_elements", table->block_elements,
                             COMMSCHED_CODEC_MAX_BLOCK_ELEMENTS));
  return CheckRange(what, "block_bytes", table->block_bytes,
                    COMMSCHED_CODEC_MAX_BLOCK_BYTES);
}

absl::Status Check(commsched_observer_t* table, absl::string_view what) {
  table->events &= 2 * COMMSCHED_OBSERVE_FAILURE - 1;
  return CheckPresent(what, {{"attach", table->attach != nullptr},
                             {"on_event", table->on_event != nullptr},
                             {"detach", table->detach != nullptr}});
}

// The table as it is, lengthened. A kind of which an older ABI is to be known,
// too, gets a function of its own here that makes today's table of it.
template <typename Table>
absl::StatusOr<std::shared_ptr<const void>> Lengthened(const void* from,
                                                       uint64_t size,
                                                       absl::string_view what) {
  auto table = std::make_shared<Table>();
  std::memset(table.get(), 0, sizeof(Table));
  std::memcpy(table.get(), from, std::min<uint64_t>(size, sizeof(Table)));
  RETURN_IF_ERROR(Check(table.get(), what));
  table->struct_size = sizeof(Table);
  return std::shared_ptr<const void>(std::move(table));
}

// The shortest table of the ABI that was ever a whole one.
struct KindRules {
  uint64_t least_size;
  uint32_t abi;
  absl::StatusOr<std::shared_ptr<const void>> (*adapt)(const void*, uint64_t,
                                                       absl::string_view);
};

constexpr KindRules kRules[COMMSCHED_PLUGIN_NUM_KINDS] = {
    {offsetof(commsched_backend_t, comm_ready), COMMSCHED_BACKEND_ABI,
     &Lengthened<commsched_backend_t>},
    {offsetof(commsched_policy_t, order), COMMSCHED_POLICY_ABI,
     &Lengthened<commsched_policy_t>},
    {offsetof(commsched_codec_t, decode_add), COMMSCHED_CODEC_ABI,
     &Lengthened<commsched_codec_t>},
    {sizeof(commsched_observer_t), COMMSCHED_OBSERVER_ABI,
     &Lengthened<commsched_observer_t>},
};

absl::StatusOr<Plugin> ReadPlugin(const commsched_plugin_t& entry,
                                  uint32_t index, absl::string_view origin) {
  std::string what = absl::StrCat("plugin ", index);
  if (entry.kind >= COMMSCHED_PLUGIN_NUM_KINDS) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ".kind is ", entry.kind, ", outside 0..",
                     int{COMMSCHED_PLUGIN_NUM_KINDS} - 1));
  }
  if (entry.reserved != 0 || entry.table == nullptr) {
    return absl::InvalidArgumentError(
        entry.table == nullptr
            ? absl::StrCat(what, ".table is NULL")
            : absl::StrCat(what, ".reserved is ", entry.reserved, ", not 0"));
  }
  const KindRules& rules = kRules[entry.kind];
  what = absl::StrCat(PluginKindName(entry.kind), " ", index);
  // The plugin's table may be shorter than ours, so it is looked at as bytes.
  commsched_plugin_head_t head = {};
  std::memcpy(&head.struct_size, entry.table, sizeof(head.struct_size));
  RETURN_IF_ERROR(CheckSize(what, head.struct_size, sizeof(head)));
  std::memcpy(&head, entry.table, sizeof(head));
  RETURN_IF_ERROR(
      CheckText(absl::StrCat(what, ".name"), head.name, &IsNameCharacter));
  what = absl::StrCat(PluginKindName(entry.kind), " '", head.name, "'");
  RETURN_IF_ERROR(CheckAbi(what, head.abi, rules.abi));
  RETURN_IF_ERROR(CheckSize(what, head.struct_size, rules.least_size));
  RETURN_IF_ERROR(
      CheckText(absl::StrCat(what, ".version"), head.version, &IsPrintable));
  Plugin plugin{entry.kind, head.name, head.version, std::string(origin), {}};
  ASSIGN_OR_RETURN(plugin.table,
                   rules.adapt(entry.table, head.struct_size, what));
  return plugin;
}

}  // namespace

absl::string_view PluginKindName(commsched_plugin_kind_t kind) {
  constexpr const char* kNames[COMMSCHED_PLUGIN_NUM_KINDS] = {
      "backend", "policy", "codec", "observer"};
  return kind < COMMSCHED_PLUGIN_NUM_KINDS ? kNames[kind] : "unknown";
}

absl::StatusOr<std::vector<Plugin>> ReadPluginList(
    const commsched_plugin_list_t* list, absl::string_view origin) {
  if (list == nullptr) return absl::InvalidArgumentError("the list is NULL");
  commsched_plugin_list_t ours = {};
  std::memcpy(&ours.struct_size, list, sizeof(ours.struct_size));
  RETURN_IF_ERROR(CheckSize("the list", ours.struct_size,
                            offsetof(commsched_plugin_list_t, init)));
  std::memcpy(&ours, list, std::min<uint64_t>(ours.struct_size, sizeof(ours)));
  RETURN_IF_ERROR(CheckAbi("the list", ours.abi, COMMSCHED_PLUGIN_LIST_ABI));
  RETURN_IF_ERROR(CheckRange("the list", "num_plugins", ours.num_plugins,
                             COMMSCHED_PLUGIN_MAX_PLUGINS));
  if (ours.plugins == nullptr) {
    return absl::InvalidArgumentError("the list.plugins is NULL");
  }
  std::vector<Plugin> plugins;
  for (uint32_t i = 0; i < ours.num_plugins; ++i) {
    ASSIGN_OR_RETURN(Plugin plugin, ReadPlugin(ours.plugins[i], i, origin));
    for (const Plugin& other : plugins) {
      if (other.kind != plugin.kind || other.name != plugin.name) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the list has ", PluginKindName(plugin.kind), " '",
                       plugin.name, "' twice"));
    }
    plugins.push_back(std::move(plugin));
  }
  return plugins;
}

}  // namespace commsched
