#include "image.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "calls.h"

namespace fake_gpu {
namespace {

constexpr uint32_t kFatbinMagic = 0xBA55ED50;
constexpr uint32_t kElfMagic = 0x464C457F;
constexpr uint16_t kPtx = 1;  // Of a piece of a fat binary.

template <typename T>
T Read(const void* code, size_t offset) {
  T value{};
  std::memcpy(&value, static_cast<const char*>(code) + offset, sizeof(value));
  return value;
}

// Code for devices of one kind.
struct Piece {
  bool is_ptx;
  int capability;
  int driver;  // The oldest that takes it.
};

// Cubins of CUDA 13 have version 8 of NVIDIA's ELF, those of CUDA 12 have 7.
int DriverOfElf(int version) { return version >= 8 ? 13000 : 12000; }

// PTX 9.0 came with CUDA 13.0, 8.0 with 12.0, and 8.4 with 12.4.
int DriverOfPtx(int major, int minor) {
  return (major + 4) * 1000 + minor * 10;
}

Piece PieceOfCubin(const void* code) {
  const int version = Read<uint8_t>(code, 8);
  const auto flags = Read<uint32_t>(code, 0x30);
  const uint32_t capability = version >= 8 ? flags >> 8 : flags;
  return {false, static_cast<int>(capability & 0xFF), DriverOfElf(version)};
}

Piece PieceOfFatbin(const void* header) {
  const bool is_ptx = Read<uint16_t>(header, 0) == kPtx;
  const int minor = Read<uint16_t>(header, 24);
  const int major = Read<uint16_t>(header, 26);
  return {is_ptx, Read<int>(header, 28),
          is_ptx ? DriverOfPtx(major, minor) : DriverOfElf(minor)};
}

// Code runs on devices of its major version that are not older, PTX on all that
// are not.
bool Fits(const Piece& piece) {
  const int capability = ComputeCapability();
  return piece.capability <= capability &&
         (piece.is_ptx || piece.capability / 10 == capability / 10);
}

// Of all pieces, the best.
class Verdict {
 public:
  void Add(const Piece& piece) {
    if (piece.driver > DriverVersion()) return;
    is_known_ = true;
    fits_ = fits_ || Fits(piece);
  }
  ImageKind Of(ImageKind of_others) const {
    if (!is_known_) return ImageKind::kTooNew;
    return fits_ ? ImageKind::kUsable : of_others;
  }

 private:
  bool is_known_ = false;
  bool fits_ = false;
};

}  // namespace

ImageKind KindOf(const void* code) {
  Verdict verdict;
  const auto magic = Read<uint32_t>(code, 0);
  if (magic == kElfMagic) {
    verdict.Add(PieceOfCubin(code));
    return verdict.Of(ImageKind::kCubinOfOthers);
  }
  if (magic != kFatbinMagic) return ImageKind::kUnknown;
  const size_t begin = Read<uint16_t>(code, 6);
  const size_t end = begin + Read<uint64_t>(code, 8);
  for (size_t at = begin; at < end;) {
    const char* const piece = static_cast<const char*>(code) + at;
    verdict.Add(PieceOfFatbin(piece));
    at += Read<uint32_t>(piece, 4) + Read<uint64_t>(piece, 8);
  }
  return verdict.Of(ImageKind::kFatbinOfOthers);
}

}  // namespace fake_gpu
