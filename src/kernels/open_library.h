#ifndef COMMSCHED_SRC_KERNELS_OPEN_LIBRARY_H_
#define COMMSCHED_SRC_KERNELS_OPEN_LIBRARY_H_

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <vector>

namespace commsched::kernels {

// A library of the vendor's, and where it may be.
struct VendorLibrary {
  const char* variable;  // Of the environment: names the file, if it is set.
  // What the loader knows it as, the preferred one first.
  std::initializer_list<const char*> names;
  // Where Python wheels put it, below site-packages/nvidia.
  std::initializer_list<const char*> wheels;
};

// The wheels' files in the Python environment that is active: that of
// VIRTUAL_ENV, then of CONDA_PREFIX.
inline std::vector<std::string> WheelFiles(const VendorLibrary& library) {
  std::vector<std::string> files;
  for (const char* prefix : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const folder = std::getenv(prefix);
    if (folder == nullptr || *folder == '\0') continue;
    for (const char* wheel : library.wheels) {
      const std::string pattern =
          std::string(folder) + "/lib/python3*/site-packages/nvidia/" + wheel;
      glob_t found = {};
      if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
        files.insert(files.end(), found.gl_pathv,
                     found.gl_pathv + found.gl_pathc);
      }
      globfree(&found);
    }
  }
  return files;
}

// "", or why there is none. Looked for in this order: the file that `variable`
// names, and nothing else if it is set; a copy that the process has loaded,
// since two copies have each a state of their own (a Python framework has
// loaded that of its wheel); the wheel of the active Python environment; where
// the loader finds it. It stays open.
inline std::string OpenLibrary(const VendorLibrary& library,
                               void** out_handle) {
  const char* const named = std::getenv(library.variable);
  if (named != nullptr && *named != '\0') {
    *out_handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (*out_handle != nullptr) return "";
    return std::string(library.variable) + ": " + dlerror();
  }
  for (const char* name : library.names) {
    *out_handle = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (*out_handle != nullptr) return "";
  }
  std::vector<std::string> files = WheelFiles(library);
  files.insert(files.end(), library.names.begin(), library.names.end());
  std::string why;
  for (const std::string& file : files) {
    *out_handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*out_handle != nullptr) return "";
    why += (why.empty() ? "" : "; ") + std::string(dlerror());
  }
  return why;
}

// The file that `symbol` was loaded from; "" if it is not known.
inline std::string FileOf(const void* symbol) {
  Dl_info info = {};
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "";
  return info.dli_fname;
}

}  // namespace commsched::kernels

#endif  // COMMSCHED_SRC_KERNELS_OPEN_LIBRARY_H_
