#include "control/token.h"

#include <string>

#include "absl/strings/escaping.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

const std::string kServerNonce(kNonceBytes, 's');
const std::string kClientNonce(kNonceBytes, 'c');

TEST(TokenTest, AProofDependsOnEverything) {
  const std::string proof =
      Prove("token", Prover::kClient, kServerNonce, kClientNonce);
  EXPECT_EQ(proof.size(), kProofBytes);
  EXPECT_TRUE(SameProof(
      proof, Prove("token", Prover::kClient, kServerNonce, kClientNonce)));
  EXPECT_FALSE(SameProof(
      proof, Prove("tokem", Prover::kClient, kServerNonce, kClientNonce)));
  EXPECT_FALSE(SameProof(
      proof, Prove("token", Prover::kServer, kServerNonce, kClientNonce)));
  EXPECT_FALSE(SameProof(
      proof, Prove("token", Prover::kClient, kClientNonce, kClientNonce)));
  EXPECT_FALSE(SameProof(
      proof, Prove("token", Prover::kClient, kServerNonce, kServerNonce)));
  EXPECT_FALSE(SameProof(proof, proof.substr(1)));
}

TEST(TokenTest, AProofIsTheHmacOfRoleAndNonces) {
  // $ printf 'commsched clientabab' | openssl dgst -sha256 -hmac Jefe
  EXPECT_EQ(absl::BytesToHexString(Prove("Jefe", Prover::kClient, "ab", "ab")),
            "c883c1052354e1ac8f4e9a9c41e60c8a573b0d207bef0e0c8d1961aa7490cc32");
}

TEST(TokenTest, TokensAreLongAndNeverTheSame) {
  ASSERT_OK_AND_ASSIGN(const std::string a, MakeToken());
  ASSERT_OK_AND_ASSIGN(const std::string b, MakeToken());
  EXPECT_EQ(a.size(), 64u);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace commsched
