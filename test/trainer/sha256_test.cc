#include "examples/trainer/sha256.h"

#include <string>

#include "gtest/gtest.h"

namespace commsched::trainer {
namespace {

std::string Sha256Of(const std::string& text) {
  Sha256 sha;
  sha.Update(text.data(), text.size());
  return sha.HexDigest();
}

// FIPS 180-2, appendix B, and the empty message.
TEST(Sha256Test, GivesTheStandardsAnswers) {
  EXPECT_EQ(Sha256Of(""),
            "e3b0c44298fc1c149afbf4c8996fb924"
            "27ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Of("abc"),
            "ba7816bf8f01cfea414140de5dae2223"
            "b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(
      Sha256Of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
      "248d6a61d20638b8e5c026930c3e6039"
      "a33ce45964ff2167f6ecedd419db06c1");
}

TEST(Sha256Test, PiecesHashAsTheWhole) {
  Sha256 sha;
  sha.Update("a", 1);
  sha.Update("", 0);
  sha.Update("bc", 2);
  EXPECT_EQ(sha.HexDigest(), Sha256Of("abc"));
}

}  // namespace
}  // namespace commsched::trainer
