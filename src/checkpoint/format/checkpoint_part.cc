#include "checkpoint/format/checkpoint_part.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>

namespace commsched::engine {
namespace {

// Keys of the metadata that are not of a piece have no '/'.
constexpr char kPiecePrefix[] = "piece/";

using Metadata = std::map<std::string, std::string>;

std::string TensorName(const PartPiece& piece, bool whole) {
  std::string name;
  if (piece.kind != kValueKind) {
    name = piece.kind;
    name += ":";
  }
  name += piece.parameter;
  if (whole) return name;
  return name + "[" + std::to_string(piece.begin) + ":" +
         std::to_string(piece.begin + piece.count) + "]";
}

Metadata IdentityOf(const SaveId& id, uint64_t rank, uint64_t world) {
  Metadata identity = {{"format", kCheckpointFormat},
                       {"step", std::to_string(id.step)},
                       {"run", id.run},
                       {"rank", std::to_string(rank)},
                       {"world", std::to_string(world)}};
  if (!id.slice.empty()) identity["slice"] = id.slice;
  return identity;
}

// "adamw.m 256 0123456789abcdef wte.weight"
std::string FormatPiece(const PartPiece& piece) {
  // Bit by bit: g++ 12 warns of sums that begin with a literal.
  std::string text = piece.kind;
  text += ' ';
  text += std::to_string(piece.begin);
  text += ' ';
  text += FormatHash(piece.hash);
  text += ' ';
  text += piece.parameter;
  return text;
}

// The text up to the next space, which goes too.
std::string TakeWord(std::string& rest) {
  const size_t space = rest.find(' ');
  std::string word = rest.substr(0, space);
  rest.erase(0, space == std::string::npos ? space : space + 1);
  return word;
}

bool ParsePiece(const std::string& text, PartPiece* out) {
  std::string rest = text;
  out->kind = TakeWord(rest);
  const std::string begin = TakeWord(rest);
  const std::string hash = TakeWord(rest);
  out->parameter = rest;
  if (begin.empty() || begin.size() > 19 ||
      begin.find_first_not_of("0123456789") != std::string::npos) {
    return false;
  }
  out->begin = std::strtoull(begin.c_str(), nullptr, 10);
  return !out->kind.empty() && ParseHash(hash, &out->hash);
}

}  // namespace

Status MakePartHeader(const SaveId& id, uint64_t rank, uint64_t world,
                      const std::vector<PartPiece>& pieces, TensorHeader* out) {
  TensorHeader header;
  header.metadata = IdentityOf(id, rank, world);
  std::set<std::string> names = {kMetadataName};
  uint64_t end = 0;
  for (const PartPiece& piece : pieces) {
    Tensor tensor;
    uint64_t elements = 1;
    for (uint64_t extent : piece.shape) elements *= extent;
    const bool whole = elements == piece.count;
    tensor.name = TensorName(piece, whole);
    tensor.dtype = piece.dtype;
    if (whole) {
      tensor.shape = piece.shape;
    } else {
      tensor.shape = {piece.count};
    }
    tensor.begin = end;
    end += piece.count * DTypeBytes(piece.dtype);
    tensor.end = end;
    if (!names.insert(tensor.name).second) {
      return InvalidArgument("engine: two tensors of a checkpoint would be '" +
                             tensor.name + "'");
    }
    header.metadata[kPiecePrefix + tensor.name] = FormatPiece(piece);
    header.tensors.push_back(std::move(tensor));
  }
  *out = std::move(header);
  return Status();
}

Status ReadPartHeader(const std::string& what, const SaveId& id, uint64_t rank,
                      uint64_t world, const TensorHeader& header,
                      std::vector<PartPiece>* out) {
  for (const auto& [key, expected] : IdentityOf(id, rank, world)) {
    const auto found = header.metadata.find(key);
    if (found == header.metadata.end()) {
      return InvalidArgument(what + " has no metadata '" + key +
                             "': not of a checkpoint");
    }
    if (found->second != expected) {
      return InvalidArgument(what + ": '" + key + "' is '" + found->second +
                             "'; it must be '" + expected + "'");
    }
  }
  std::vector<PartPiece> pieces;
  for (const Tensor& tensor : header.tensors) {
    const auto text = header.metadata.find(kPiecePrefix + tensor.name);
    PartPiece piece;
    if (text == header.metadata.end() || !ParsePiece(text->second, &piece)) {
      return InvalidArgument(what + " does not say what tensor '" +
                             tensor.name + "' is a piece of");
    }
    piece.dtype = tensor.dtype;
    piece.shape = tensor.shape;
    piece.offset = tensor.begin;
    piece.count = (tensor.end - tensor.begin) / DTypeBytes(tensor.dtype);
    pieces.push_back(std::move(piece));
  }
  *out = std::move(pieces);
  return Status();
}

Status ReadHeader(const OldFile& file, const std::string& what,
                  std::string* out_text) {
  unsigned char length[kLengthBytes] = {};
  ENGINE_RETURN_IF_ERROR(
      file.Read(0, length, std::min(kLengthBytes, file.bytes())));
  uint64_t bytes = 0;
  ENGINE_RETURN_IF_ERROR(ParseHeaderLength(what, length, file.bytes(), &bytes));
  std::string text(kLengthBytes + bytes, '\0');
  ENGINE_RETURN_IF_ERROR(file.Read(0, text.data(), text.size()));
  *out_text = std::move(text);
  return Status();
}

}  // namespace commsched::engine
