#include "torch_nccl.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "kernels/open_library.h"

namespace commsched::nccl {
namespace {

constexpr char kTorch[] = "libtorch_cuda.so";

// "a/site-packages" of "a/site-packages/torch/lib/libtorch_cuda.so"; "" if it
// is elsewhere.
std::string SitePackagesOf(void* torch) {
  const link_map* map = nullptr;
  if (dlinfo(torch, RTLD_DI_LINKMAP, &map) != 0) return "";
  const std::string file = map->l_name;
  const std::string end = std::string("/torch/lib/") + kTorch;
  if (!file.ends_with(end)) return "";
  return file.substr(0, file.size() - end.size());
}

// Whether `file` is that of the wheel beside PyTorch.
bool IsOfWheel(const std::string& site_packages, const std::string& file) {
  std::error_code ignored;
  return std::filesystem::equivalent(
      site_packages + "/nvidia/nccl/lib/libnccl.so.2", file, ignored);
}

// The version of that wheel, by the folder that tells it:
// nvidia_nccl_cu12-2.27.5.dist-info. 0: there is none.
int VersionOfWheel(const std::string& site_packages) {
  const std::string begin = site_packages + "/nvidia_nccl_cu";
  glob_t found = {};
  int newest = 0;
  if (glob((begin + "*.dist-info").c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      int cuda = 0, major = 0, minor = 0, patch = 0;
      if (sscanf(found.gl_pathv[i] + begin.size(), "%d-%d.%d.%d", &cuda, &major,
                 &minor, &patch) == 4) {
        newest = std::max(newest, major * 10000 + minor * 100 + patch);
      }
    }
  }
  globfree(&found);
  return newest;
}

}  // namespace

Outcome CheckNcclOfTorch(const Library& library) {
  void* const torch = dlopen(kTorch, RTLD_NOW | RTLD_NOLOAD);
  if (torch == nullptr) return {};
  // Of what PyTorch needs, or has within.
  const auto get_version = reinterpret_cast<decltype(library.GetVersion)>(
      dlsym(torch, "ncclGetVersion"));
  const std::string site_packages = SitePackagesOf(torch);
  dlclose(torch);  // Whoever has loaded it holds it, too.
  if (get_version == nullptr) return {};
  const std::string ours = library.VersionText() + " in " + library.file;
  if (get_version != library.GetVersion) {
    int version = 0;
    (void)get_version(&version);
    return {COMMSCHED_FAILED_PRECONDITION,
            "this process has NCCL twice: " + Library::TextOf(version) +
                " in " +
                kernels::FileOf(reinterpret_cast<const void*>(get_version)) +
                " of PyTorch, and " + ours +
                " of commsched; import torch first, and let COMMSCHED_NCCL_LIB "
                "name no other file"};
  }
  if (library.was_loaded || IsOfWheel(site_packages, library.file)) return {};
  const int installed = VersionOfWheel(site_packages);
  if (library.version >= installed) return {};
  return {COMMSCHED_FAILED_PRECONDITION,
          "PyTorch was installed with NCCL " + Library::TextOf(installed) +
              ", and runs on " + ours +
              ", which commsched had loaded before; import torch first, or let "
              "COMMSCHED_NCCL_LIB name the file that PyTorch was installed "
              "with"};
}

}  // namespace commsched::nccl
