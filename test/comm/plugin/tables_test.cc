#include "comm/plugin/tables.h"

#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

using absl::StatusCode;

void Encode(const float*, uint64_t, void*) {}
void Decode(const void*, uint64_t, float*) {}
commsched_status_t InstanceCreate(const commsched_instance_desc_t*, void**,
                                  char*, uint64_t) {
  return COMMSCHED_OK;
}
void InstanceDestroy(void*) {}
commsched_status_t CommCreate(void*, const commsched_comm_desc_t*, void**,
                              char*, uint64_t) {
  return COMMSCHED_OK;
}
commsched_status_t Launch(void*, const commsched_launch_t*, uint32_t,
                          commsched_stream_t, char*, uint64_t) {
  return COMMSCHED_OK;
}
commsched_status_t Poll(void*, uint32_t, commsched_launch_result_t*, char*,
                        uint64_t) {
  return COMMSCHED_OK;
}
commsched_status_t RankOpen(void*, const commsched_backend_rank_desc_t*, void**,
                            char*, uint64_t) {
  return COMMSCHED_OK;
}
void RankClose(void*) {}
void Abort(void*, void* const*, uint32_t, commsched_status_t, const char*) {}
commsched_status_t CommDestroy(void*, int64_t, char*, uint64_t) {
  return COMMSCHED_OK;
}
uint32_t CommMissing(void*, uint32_t, int32_t*, uint32_t) { return 0; }

commsched_codec_t GoodCodec() {
  commsched_codec_t table = {};
  table.struct_size = sizeof(table);
  table.dtypes = 1u << COMMSCHED_F32;
  table.name = "good";
  table.version = "1.2";
  table.block_elements = 4;
  table.block_bytes = 8;
  table.encode = &Encode;
  table.decode = &Decode;
  return table;
}

commsched_backend_t GoodBackend() {
  commsched_backend_t table = {};
  table.struct_size = sizeof(table);
  table.abi = COMMSCHED_BACKEND_ABI;
  table.name = "good";
  table.version = "1";
  table.instance_create = &InstanceCreate;
  table.instance_destroy = &InstanceDestroy;
  table.comm_create = &CommCreate;
  table.launch = &Launch;
  table.poll = &Poll;
  table.rank_open = &RankOpen;
  table.rank_close = &RankClose;
  table.abort = &Abort;
  table.comm_destroy = &CommDestroy;
  table.comm_missing = &CommMissing;
  return table;
}

absl::StatusOr<std::vector<Plugin>> Read(commsched_plugin_kind_t kind,
                                         const void* table) {
  const commsched_plugin_t plugin = {kind, 0, table};
  commsched_plugin_list_t list = {};
  list.struct_size = sizeof(list);
  list.num_plugins = 1;
  list.plugins = &plugin;
  return ReadPluginList(&list, "test");
}

template <typename Change>
absl::Status CodecWith(Change change) {
  commsched_codec_t table = GoodCodec();
  change(table);
  return Read(COMMSCHED_PLUGIN_CODEC, &table).status();
}

template <typename Change>
absl::Status BackendWith(Change change) {
  commsched_backend_t table = GoodBackend();
  change(table);
  return Read(COMMSCHED_PLUGIN_BACKEND, &table).status();
}

TEST(PluginTablesTest, AGoodTableIsCopied) {
  const commsched_codec_t table = GoodCodec();
  ASSERT_OK_AND_ASSIGN(const auto plugins,
                       Read(COMMSCHED_PLUGIN_CODEC, &table));
  ASSERT_EQ(plugins.size(), 1u);
  EXPECT_EQ(plugins[0].name, "good");
  EXPECT_EQ(plugins[0].version, "1.2");
  EXPECT_EQ(plugins[0].origin, "test");
  EXPECT_NE(plugins[0].table.get(), &table);
}

TEST(PluginTablesTest, FunctionsThatAShorterTableLacksAreNull) {
  // Behind the end of the shorter table there is something else.
  commsched_backend_t table = GoodBackend();
  table.struct_size = offsetof(commsched_backend_t, comm_missing);
  ASSERT_OK_AND_ASSIGN(const auto plugins,
                       Read(COMMSCHED_PLUGIN_BACKEND, &table));
  const auto* read =
      static_cast<const commsched_backend_t*>(plugins[0].table.get());
  EXPECT_EQ(read->comm_missing, nullptr);
  EXPECT_EQ(read->comm_destroy, &CommDestroy);
  EXPECT_EQ(read->struct_size, sizeof(commsched_backend_t));
}

TEST(PluginTablesTest, ATableOfANewerHeaderIsReadAsFarAsItIsKnown) {
  struct Newer {
    commsched_codec_t known = GoodCodec();
    void* more = &known;
  } table;
  table.known.struct_size = sizeof(table);
  EXPECT_OK(Read(COMMSCHED_PLUGIN_CODEC, &table).status());
}

TEST(PluginTablesTest, ATableThatIsTooShortOrTooLongIsRefused) {
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{8}, uint64_t{4097}, UINT64_MAX}) {
    EXPECT_THAT(CodecWith([&](auto& t) { t.struct_size = size; }),
                StatusIs(StatusCode::kInvalidArgument, "struct_size"));
  }
}

TEST(PluginTablesTest, AnotherAbiIsRefused) {
  EXPECT_THAT(CodecWith([](auto& t) { t.abi = 1; }),
              StatusIs(StatusCode::kFailedPrecondition,
                       "codec 'good' has ABI 1; this library knows 0"));
}

TEST(PluginTablesTest, NamesAreCheckedCharacterByCharacter) {
  const std::string long_name(64, 'a');
  const std::string longest(63, 'a');
  EXPECT_OK(CodecWith([&](auto& t) { t.name = longest.c_str(); }));
  for (const char* name : {"", "a b", "a,b", "a/b", "\xff\xfe", "caf\xc3\xa9",
                           long_name.c_str()}) {
    EXPECT_THAT(CodecWith([&](auto& t) { t.name = name; }),
                StatusIs(StatusCode::kInvalidArgument, ".name has"))
        << name;
  }
  EXPECT_THAT(CodecWith([](auto& t) { t.name = nullptr; }),
              StatusIs(StatusCode::kInvalidArgument, "name is NULL"));
  EXPECT_THAT(CodecWith([](auto& t) { t.version = "\n"; }),
              StatusIs(StatusCode::kInvalidArgument, "version has"));
}

TEST(PluginTablesTest, AMissingFunctionIsNamed) {
  EXPECT_THAT(
      CodecWith([](auto& t) { t.decode = nullptr; }),
      StatusIs(StatusCode::kInvalidArgument, "codec 'good'.decode is NULL"));
  EXPECT_THAT(
      BackendWith([](auto& t) { t.abort = nullptr; }),
      StatusIs(StatusCode::kInvalidArgument, "backend 'good'.abort is NULL"));
  EXPECT_THAT(
      BackendWith([](auto& t) { t.interrupt = [](void*) {}; }),
      StatusIs(StatusCode::kInvalidArgument, "only one of wait and interrupt"));
  EXPECT_THAT(
      BackendWith([](auto& t) { t.mem_unregister = [](void*, void*) {}; }),
      StatusIs(StatusCode::kInvalidArgument,
               "only one of mem_register and mem_unregister"));
  EXPECT_THAT(
      BackendWith([](auto& t) { t.mem_free = [](void*, void*) {}; }),
      StatusIs(StatusCode::kInvalidArgument, "only one of mem_alloc and"));
  EXPECT_THAT(BackendWith([](auto& t) { t.poll = nullptr; }),
              StatusIs(StatusCode::kInvalidArgument, "poll is NULL"));
  EXPECT_OK(BackendWith([](auto& t) {
    t.poll = nullptr;
    t.capabilities = COMMSCHED_BACKEND_INLINE;
  }));
}

TEST(PluginTablesTest, BlocksHaveLimits) {
  EXPECT_THAT(CodecWith([](auto& t) { t.block_elements = 0; }),
              StatusIs(StatusCode::kInvalidArgument, "block_elements is 0"));
  EXPECT_THAT(CodecWith([](auto& t) { t.block_bytes = 16385; }),
              StatusIs(StatusCode::kInvalidArgument, "block_bytes is 16385"));
  EXPECT_THAT(CodecWith([](auto& t) { t.dtypes = 1u << COMMSCHED_I32; }),
              StatusIs(StatusCode::kInvalidArgument, "none of f32"));
}

TEST(PluginTablesTest, ABackendThatEnqueuesTakesMemoryOfADevice) {
  EXPECT_OK(BackendWith([](auto& t) {
    t.capabilities = COMMSCHED_BACKEND_STREAM_ORDERED;
    t.memory_kinds = 1u << COMMSCHED_DEVICE_CUDA;
    t.poll = nullptr;
  }));
  EXPECT_THAT(BackendWith([](auto& t) {
                t.capabilities = COMMSCHED_BACKEND_STREAM_ORDERED;
              }),
              StatusIs(StatusCode::kInvalidArgument,
                       "memory_kinds is 0: one that is STREAM_ORDERED"));
  EXPECT_THAT(BackendWith([](auto& t) {
                t.memory_kinds = 1u << COMMSCHED_DEVICE_CUDA;
              }),
              StatusIs(StatusCode::kInvalidArgument,
                       "one that is not STREAM_ORDERED takes the host's"));
  EXPECT_THAT(BackendWith([](auto& t) {
                t.capabilities =
                    COMMSCHED_BACKEND_STREAM_ORDERED | COMMSCHED_BACKEND_INLINE;
              }),
              StatusIs(StatusCode::kInvalidArgument, "both INLINE and"));
}

TEST(PluginTablesTest, OnlyABackendThatIsPolledHasTags) {
  constexpr uint32_t kTags = COMMSCHED_BACKEND_TAGS | COMMSCHED_BACKEND_P2P;
  EXPECT_OK(BackendWith([](auto& t) { t.capabilities = kTags; }));
  EXPECT_THAT(
      BackendWith([](auto& t) { t.capabilities = COMMSCHED_BACKEND_TAGS; }),
      StatusIs(StatusCode::kInvalidArgument, "has TAGS without P2P"));
  EXPECT_THAT(BackendWith([](auto& t) {
                t.capabilities = kTags | COMMSCHED_BACKEND_INLINE;
              }),
              StatusIs(StatusCode::kInvalidArgument, "has TAGS and is INLINE"));
}

commsched_status_t NoExpectation(void*, const commsched_launch_t*, uint32_t,
                                 char*, uint64_t) {
  return COMMSCHED_OK;
}

TEST(PluginTablesTest, ABackendSaysHowLongLaunchesAreThatItExpects) {
  EXPECT_OK(BackendWith([](auto& t) {
    t.comm_expect = &NoExpectation;
    t.launch_bytes = sizeof(commsched_launch_t);
  }));
  EXPECT_THAT(BackendWith([](auto& t) { t.comm_expect = &NoExpectation; }),
              StatusIs(StatusCode::kInvalidArgument,
                       "launch_bytes is 0, not a multiple of 8 in 64.."));
}

TEST(PluginTablesTest, ABackendThatDoesNotSayExpectsThemAsTheyWere) {
  commsched_backend_t table = GoodBackend();
  table.comm_expect = &NoExpectation;
  table.struct_size = offsetof(commsched_backend_t, launch_bytes);
  table.launch_bytes = 12345;  // Behind its end.
  ASSERT_OK_AND_ASSIGN(const auto plugins,
                       Read(COMMSCHED_PLUGIN_BACKEND, &table));
  EXPECT_EQ(static_cast<const commsched_backend_t*>(plugins[0].table.get())
                ->launch_bytes,
            offsetof(commsched_launch_t, tag));
}

TEST(PluginTablesTest, CapabilitiesOfLaterVersionsAreLeftAside) {
  commsched_backend_t table = GoodBackend();
  table.capabilities = 1u << 31 | COMMSCHED_BACKEND_P2P;
  ASSERT_OK_AND_ASSIGN(const auto plugins,
                       Read(COMMSCHED_PLUGIN_BACKEND, &table));
  EXPECT_EQ(static_cast<const commsched_backend_t*>(plugins[0].table.get())
                ->capabilities,
            uint32_t{COMMSCHED_BACKEND_P2P});
}

// Else a mask of none of the known ones would be 0, which stands for all.
TEST(PluginTablesTest, WhatABackendTakesOfLaterVersionsIsLeftAside) {
  commsched_backend_t table = GoodBackend();
  table.reductions = 1u << 31 | COMMSCHED_BACKEND_BITWISE_REDUCTIONS;
  ASSERT_OK_AND_ASSIGN(const auto plugins,
                       Read(COMMSCHED_PLUGIN_BACKEND, &table));
  const auto* const read =
      static_cast<const commsched_backend_t*>(plugins[0].table.get());
  EXPECT_EQ(read->reductions, uint32_t{COMMSCHED_BACKEND_BITWISE_REDUCTIONS});
  EXPECT_EQ(read->dtypes, 0u);
  EXPECT_THAT(BackendWith([](auto& t) { t.reductions = 1u << 31; }),
              StatusIs(StatusCode::kInvalidArgument,
                       "reductions is 2147483648, of which bits 0..8 are"));
  EXPECT_THAT(BackendWith([](auto& t) { t.dtypes = 1u << COMMSCHED_BOOL; }),
              StatusIs(StatusCode::kInvalidArgument,
                       "dtypes is 65536, of which bits 0..7 are known here"));
  EXPECT_THAT(BackendWith([](auto& t) { t.kinds = 1u << 31; }),
              StatusIs(StatusCode::kInvalidArgument, "kinds is 2147483648"));
}

TEST(PluginTablesTest, AListIsTakenWholeOrNotAtAll) {
  const commsched_codec_t good = GoodCodec();
  commsched_codec_t bad = GoodCodec();
  bad.name = "bad";
  bad.encode = nullptr;
  const commsched_plugin_t plugins[] = {{COMMSCHED_PLUGIN_CODEC, 0, &good},
                                        {COMMSCHED_PLUGIN_CODEC, 0, &bad}};
  commsched_plugin_list_t list = {};
  list.struct_size = sizeof(list);
  list.num_plugins = 2;
  list.plugins = plugins;
  EXPECT_THAT(ReadPluginList(&list, "test").status(),
              StatusIs(StatusCode::kInvalidArgument, "codec 'bad'.encode"));
  bad = GoodCodec();
  EXPECT_THAT(ReadPluginList(&list, "test").status(),
              StatusIs(StatusCode::kInvalidArgument, "codec 'good' twice"));
}

TEST(PluginTablesTest, AListThatMakesNoSenseIsRefused) {
  EXPECT_THAT(ReadPluginList(nullptr, "test").status(),
              StatusIs(StatusCode::kInvalidArgument, "NULL"));
  const commsched_codec_t good = GoodCodec();
  EXPECT_THAT(Read(4, &good).status(),
              StatusIs(StatusCode::kInvalidArgument, "kind is 4"));
  EXPECT_THAT(Read(COMMSCHED_PLUGIN_CODEC, nullptr).status(),
              StatusIs(StatusCode::kInvalidArgument, "table is NULL"));
  commsched_plugin_list_t list = {};
  list.struct_size = sizeof(list);
  for (const uint32_t count : {0u, 65u, UINT32_MAX}) {
    list.num_plugins = count;
    EXPECT_THAT(ReadPluginList(&list, "test").status(),
                StatusIs(StatusCode::kInvalidArgument, "num_plugins"));
  }
  list.num_plugins = 1;
  EXPECT_THAT(ReadPluginList(&list, "test").status(),
              StatusIs(StatusCode::kInvalidArgument, "plugins is NULL"));
}

}  // namespace
}  // namespace commsched
