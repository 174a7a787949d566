#ifndef COMMSCHED_SRC_KERNELS_OPEN_LIBRARY_H_
#define COMMSCHED_SRC_KERNELS_OPEN_LIBRARY_H_

#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <cerrno>
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

// "" unless `program` is a Python interpreter: the folder that its packages are
// in, as /opt/python of /opt/python/bin/python3.11.
inline std::string PrefixOfInterpreter(const std::string& program) {
  const size_t name = program.rfind('/');
  if (name == std::string::npos || name == 0) return "";
  if (program.compare(name + 1, 6, "python") != 0) return "";
  const size_t folder = program.rfind('/', name - 1);
  return folder == std::string::npos ? "" : program.substr(0, folder);
}

// Where Python environments of this process may be: that which is active, then
// those of the interpreter that runs it. In a virtual environment that is a
// link to another one's, so that only the name tells by which it was called.
inline std::vector<std::string> PythonPrefixes() {
  std::vector<std::string> prefixes;
  const auto add = [&](const std::string& prefix) {
    if (!prefix.empty()) prefixes.push_back(prefix);
  };
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* const folder = std::getenv(variable);
    if (folder != nullptr) add(folder);
  }
  add(PrefixOfInterpreter(program_invocation_name));
  char file[4096];
  const ssize_t length = readlink("/proc/self/exe", file, sizeof(file));
  if (length > 0) {
    add(PrefixOfInterpreter(std::string(file, static_cast<size_t>(length))));
  }
  return prefixes;
}

// The wheels' files in those environments, in that order.
inline std::vector<std::string> WheelFiles(const VendorLibrary& library) {
  std::vector<std::string> files;
  for (const std::string& prefix : PythonPrefixes()) {
    for (const char* wheel : library.wheels) {
      const std::string pattern =
          prefix + "/lib/python3*/site-packages/nvidia/" + wheel;
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

// The file that the library's variable names; "" if it is not set.
inline std::string NamedFile(const VendorLibrary& library) {
  const char* const named = std::getenv(library.variable);
  return named == nullptr ? "" : named;
}

// The copy that would be taken, if the process has loaded it already; else
// null.
inline void* LoadedCopy(const VendorLibrary& library) {
  const std::string named = NamedFile(library);
  if (!named.empty()) return dlopen(named.c_str(), RTLD_NOW | RTLD_NOLOAD);
  for (const char* name : library.names) {
    void* const handle = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (handle != nullptr) return handle;
  }
  return nullptr;
}

// "", or why there is none. Looked for in this order: the file that `variable`
// names, and nothing else if it is set; a copy that the process has loaded,
// since two copies have each a state of their own (a Python framework has
// loaded that of its wheel); the wheel of the active Python environment, and
// that beside the interpreter, which a framework that is imported later would
// load; where the loader finds it. It stays open.
inline std::string OpenLibrary(const VendorLibrary& library,
                               void** out_handle) {
  *out_handle = LoadedCopy(library);
  if (*out_handle != nullptr) return "";
  const std::string named = NamedFile(library);
  if (!named.empty()) {
    *out_handle = dlopen(named.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (*out_handle != nullptr) return "";
    return std::string(library.variable) + ": " + dlerror();
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
