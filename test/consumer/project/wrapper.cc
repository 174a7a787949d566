// The C++ wrapper, of which only headers are installed.
#include <commsched/commsched.hpp>
#include <commsched/recording.hpp>
#include <commsched/tools.hpp>
#include <cstdio>

int main() {
  namespace cs = commsched::api;
  const auto world = cs::World::CreateInproc(1);
  const auto recording = cs::Recording::Create(cs::RecordingSpec());
  const auto info = cs::Info();
  if (!world.ok() || recording.ok() || !info.ok()) return 1;
  std::printf("%s", info->c_str());
  return info->find(cs::Version()) == std::string::npos;
}
