// tools.hpp: what it adds to the C ABI. Compiled as C++17 too.
#include <cstdio>
#include <string>
#include <utility>

#include "commsched/tools.hpp"
#include "gtest/gtest.h"

namespace {

namespace cs = commsched::api;

template <typename T>
T Value(cs::Result<T> result) {
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return *std::move(result);
}

TEST(WrapperToolsTest, InfoNamesVersionAndBackends) {
  const std::string text = Value(cs::Info());
  EXPECT_NE(text.find(cs::Version()), std::string::npos);
  EXPECT_NE(text.find("inproc"), std::string::npos);
  EXPECT_EQ(Value(cs::Info(COMMSCHED_JSON)).front(), '{');
}

TEST(WrapperToolsTest, APluginThatIsNotThereIsAnError) {
  EXPECT_EQ(cs::LoadPlugin("nobody_has_this").code(), COMMSCHED_NOT_FOUND);
  EXPECT_TRUE(cs::LoadAllPlugins().ok());
}

TEST(WrapperToolsTest, AFlightRecordIsReadBack) {
  const std::string path = testing::TempDir() + "wrapper_tools.flight";
  cs::Graph graph;
  cs::Compute compute;
  compute.name = "alone";
  Value(graph.Add(compute));
  const cs::World world = Value(cs::World::CreateInproc(1));
  const cs::Context context = Value(cs::Context::Create(world, 0));
  const cs::Plan plan = Value(cs::Plan::Build(graph));
  cs::SessionSpec spec;
  spec.context = &context;
  spec.plan = &plan;
  spec.flight_path = path;
  cs::Session session = Value(cs::Session::Create(spec));
  session.Abort("enough");
  EXPECT_NE(Value(cs::ReadFlightRecord(path)).find("enough"),
            std::string::npos);
  std::remove(path.c_str());
  EXPECT_EQ(cs::ReadFlightRecord(path).status().code(), COMMSCHED_UNAVAILABLE);
}

}  // namespace
