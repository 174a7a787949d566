#include "comm/plugin/registry.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr char kPlugins[] = COMMSCHED_TEST_PLUGINS;

std::string In(const char* folder) {
  return std::string(kPlugins) + "/" + folder;
}

const PluginRegistry::Attempt& AttemptAt(
    const std::vector<PluginRegistry::Attempt>& attempts,
    const std::string& path) {
  const auto found =
      std::find_if(attempts.begin(), attempts.end(),
                   [&](const auto& attempt) { return attempt.path == path; });
  EXPECT_NE(found, attempts.end()) << path;
  static const PluginRegistry::Attempt none;
  return found == attempts.end() ? none : *found;
}

TEST(PluginRegistryTest, APluginIsFoundByNameOnTheSearchPath) {
  PluginRegistry registry({In("nowhere"), kPlugins});
  ASSERT_OK_AND_ASSIGN(const commsched_codec_t* codec, registry.Codec("bf16"));
  EXPECT_STREQ(codec->name, "bf16");
  const auto attempts = registry.attempts();
  ASSERT_EQ(attempts.size(), 2u);
  EXPECT_EQ(attempts[0].outcome.code(), absl::StatusCode::kNotFound);
  EXPECT_OK(attempts[1].outcome);
  EXPECT_EQ(registry.plugins().front().origin, attempts[1].path);
}

TEST(PluginRegistryTest, AMissingPluginNamesEveryPathTried) {
  PluginRegistry registry({In("a"), In("b")});
  const absl::Status status = registry.Codec("zip").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                               In("a") + "/commsched_zip.so"));
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kNotFound,
                               In("b") + "/commsched_zip.so"));
}

TEST(PluginRegistryTest, AMissingPluginSaysWhichThereAre) {
  PluginRegistry registry({In("a"), kPlugins});
  EXPECT_THAT(registry.Codec("nope").status(),
              StatusIs(absl::StatusCode::kNotFound,
                       "no codec is called 'nope'; there are: none, and of "
                       "some kind, not loaded yet: 'bf16', 'fault', 'int8'"));
  ASSERT_OK(registry.Codec("int8"));
  const absl::Status status = registry.Codec("nope").status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kNotFound,
                       "there are: 'int8', and of some kind, not loaded yet: "
                       "'bf16', 'fault'"));
  EXPECT_THAT(PluginRegistry({In("a")}).Codec("nope").status(),
              StatusIs(absl::StatusCode::kNotFound,
                       "there are: none. no plugin 'nope'"));
}

TEST(PluginRegistryTest, ALoadedFileIsNotLoadedAgain) {
  PluginRegistry registry({});
  const std::string path = In("commsched_int8.so");
  EXPECT_OK(registry.Load(path));
  EXPECT_OK(registry.Load(In("skeletons/../commsched_int8.so")));
  EXPECT_EQ(registry.plugins().size(), 1u);
}

TEST(PluginRegistryTest, WhatCannotBeUsedSaysWhy) {
  PluginRegistry registry({});
  const struct {
    const char* name;
    absl::StatusCode code;
    const char* reason;
  } kCases[] = {
      {"garbage", absl::StatusCode::kFailedPrecondition, "commsched_garbage"},
      {"no_symbol", absl::StatusCode::kInvalidArgument,
       "exports no symbol commsched_plugins_v0"},
      {"unavailable", absl::StatusCode::kUnavailable,
       "init: needs 8 flux capacitors, found 0"},
      {"throws", absl::StatusCode::kInternal, "init threw: oops"},
      {"future", absl::StatusCode::kFailedPrecondition,
       "the list has ABI 7; this library knows 0"},
  };
  for (const auto& hostile : kCases) {
    const std::string path =
        In("hostile") + "/commsched_" + hostile.name + ".so";
    EXPECT_THAT(registry.Load(path), StatusIs(hostile.code, hostile.reason));
    EXPECT_THAT(AttemptAt(registry.attempts(), path).outcome,
                StatusIs(hostile.code, hostile.reason));
  }
  EXPECT_TRUE(registry.plugins().empty());
}

TEST(PluginRegistryTest, APipeIsRefusedAndNotWaitedFor) {
  const std::string path =
      absl::StrCat(testing::TempDir(), "/pipe.", getpid(), ".so");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  PluginRegistry registry({});
  EXPECT_THAT(registry.Load(path),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       absl::StrCat("plugin ", path, ": not a regular file")));
  std::remove(path.c_str());
}

TEST(PluginRegistryTest, AskingForAnUnusablePluginByNameSaysWhy) {
  PluginRegistry registry({In("hostile")});
  EXPECT_THAT(registry.Codec("unavailable").status(),
              StatusIs(absl::StatusCode::kNotFound, "flux capacitors"));
}

TEST(PluginRegistryTest, ANameThatIsTakenIsRefused) {
  PluginRegistry registry({});
  ASSERT_OK(registry.Load(In("commsched_bf16.so")));
  static void (*const encode)(const float*, uint64_t,
                              void*) = [](const float*, uint64_t, void*) {};
  static void (*const decode)(const void*, uint64_t,
                              float*) = [](const void*, uint64_t, float*) {};
  commsched_codec_t codec = {};
  codec.struct_size = sizeof(codec);
  codec.dtypes = 1;
  codec.name = "bf16";
  codec.version = "2";
  codec.block_elements = codec.block_bytes = 1;
  codec.encode = encode;
  codec.decode = decode;
  const commsched_plugin_t plugin = {COMMSCHED_PLUGIN_CODEC, 0, &codec};
  commsched_plugin_list_t list = {};
  list.struct_size = sizeof(list);
  list.num_plugins = 1;
  list.plugins = &plugin;
  EXPECT_THAT(registry.Add(&list, "test"),
              StatusIs(absl::StatusCode::kAlreadyExists, "commsched_bf16.so"));
}

TEST(PluginRegistryTest, EverythingOnTheSearchPathIsLoadedAtOnce) {
  PluginRegistry registry({In("hostile"), kPlugins, In("skeletons")});
  EXPECT_FALSE(registry.LoadAll().ok());  // The hostile ones.
  EXPECT_OK(registry.Codec("bf16").status());
  EXPECT_OK(registry.Codec("int8").status());
  EXPECT_OK(registry.Codec("skeleton").status());
  EXPECT_OK(registry.Policy("skeleton").status());
  EXPECT_OK(registry.Observer("skeleton").status());
}

TEST(PluginRegistryTest, TheBuiltInBackendsComeThroughTheSameDoor) {
  int built_in = 0;
  for (const Plugin& plugin : PluginRegistry::Process().plugins()) {
    if (plugin.origin == "built in") ++built_in;
  }
  EXPECT_EQ(built_in, 2);
  EXPECT_OK(PluginRegistry::Process().Backend("inproc").status());
  EXPECT_OK(PluginRegistry::Process().Backend("null").status());
}

// The header has grown since; what was compiled against the old one works.
TEST(FrozenHeaderTest, APluginOfAnOlderHeaderLoads) {
  PluginRegistry registry({In("frozen")});
  ASSERT_OK(registry.Load("frozen"));
  EXPECT_OK(registry.Policy("frozen").status());
  ASSERT_OK_AND_ASSIGN(const auto* codec, registry.Codec("frozen"));
  EXPECT_EQ(codec->decode_add, nullptr);  // It ends before that.
  EXPECT_NE(codec->decode, nullptr);
  EXPECT_OK(registry.Observer("frozen").status());
}

TEST(FrozenHeaderTest, ABackendOfAbi0IsRefusedByName) {
  PluginRegistry registry({In("frozen")});
  EXPECT_THAT(registry.Load("frozen_backend"),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       "backend 'frozen' has ABI 0; this library knows 1"));
}

}  // namespace
}  // namespace commsched
