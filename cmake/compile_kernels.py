"""Compiles kernels.cu with NVRTC, into a cubin.

    compile_kernels.py LIBNVRTC ROOT SOURCE SM OUT

NVRTC of CUDA 12.4 makes what drivers from that version on take; nvcc of CUDA 13,
only what those of CUDA 13 take. SM is 80 for compute capability 8.0. It has no
headers of the standard library, so that src/kernels/nvrtc has what kernels need.
Fails where a kernel has memory of its own (a stack), or NVRTC warns.
"""

import ctypes
import pathlib
import re
import sys

VERSION = (12, 4)
# As nvcc compiles them: a * b + c is not fused, the same bits as the processor's.
OPTIONS = [
    "-std=c++20", "--fmad=false", "--device-int128",
    "--device-as-default-execution-space", "--define-macro=__extension__=",
    "--ptxas-options=-v"]


class Nvrtc:
    """What of the library is called."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            text = self.library.nvrtcGetErrorString(code).decode()
            raise RuntimeError(f"{name}: {text}")

    def version(self):
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def read(self, what, program):
        """The log or the cubin of a program: two calls, of its size and of it."""
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, data)
        return data.raw

    def compile(self, source, name, options):
        """Returns the cubin and the log."""
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.encode(),
                  name.encode(), 0, None, None)
        given = (ctypes.c_char_p * len(options))(
            *[option.encode() for option in options])
        code = self.library.nvrtcCompileProgram(program, len(options), given)
        log = self.read("ProgramLog", program).decode().rstrip("\0")
        if code != 0:
            raise RuntimeError(log)
        return self.read("CUBIN", program), log


def own_memory(log):
    """The kernels that ptxas gives a stack or spills: name and bytes."""
    kernels = re.findall(r"Function properties for (\w+)\s+(\d+) bytes stack", log)
    return [(name, int(size)) for name, size in kernels if size != "0"]


def main():
    path, root, source, sm, out = sys.argv[1:]
    nvrtc = Nvrtc(path)
    if nvrtc.version() != VERSION:
        sys.exit(f"{path} is NVRTC {'.'.join(map(str, nvrtc.version()))}, where "
                 f"{'.'.join(map(str, VERSION))} is wanted")
    options = OPTIONS + [f"--gpu-architecture=sm_{sm}"]
    for folder in ("src/kernels/nvrtc", "src", "include", "."):
        options.append(f"--include-path={root}/{folder}")
    text = pathlib.Path(source).read_text(encoding="utf-8")
    try:
        cubin, log = nvrtc.compile(text, source, options)
    except RuntimeError as error:
        sys.exit(f"{source} for sm_{sm}: {error}")
    if "warning" in log:
        sys.exit(f"{source} for sm_{sm}: {log}")
    for name, size in own_memory(log):
        sys.exit(f"{source} for sm_{sm}: {name} has {size} bytes of stack")
    pathlib.Path(out).write_bytes(cubin)


if __name__ == "__main__":
    main()
