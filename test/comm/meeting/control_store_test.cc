#include "comm/meeting/control_store.h"

#include <memory>
#include <string>
#include <vector>

#include "control/server.h"
#include "gtest/gtest.h"
#include "test/support/status_matchers.h"

namespace commsched {
namespace {

constexpr int64_t kStoredNs = int64_t{60} * 1'000'000'000;

class ControlStoreTest : public testing::Test {
 protected:
  static constexpr int kJobSize = 3;

  ControlStoreTest() {
    ControlServerSpec served;
    served.size = kJobSize;
    server_ = *ControlServer::Start(served);
    for (int rank = 0; rank < kJobSize; ++rank) {
      ControlClientSpec client;
      client.host = "127.0.0.1";
      client.port = server_->port();
      client.rank = rank;
      client.size = kJobSize;
      clients_.push_back(*ControlClient::Connect(client));
    }
  }

  ControlStore StoreOf(int rank, const std::shared_ptr<const JobPart>& part) {
    return ControlStore(clients_[static_cast<size_t>(rank)].get(), part);
  }

  const std::shared_ptr<const JobPart> all_ = std::make_shared<JobPart>();
  const std::shared_ptr<const JobPart> tp_ =
      std::make_shared<JobPart>("a", "tp", std::vector<int>{2, 0});
  const std::shared_ptr<const JobPart> dp_ =
      std::make_shared<JobPart>("b", "dp", std::vector<int>{0, 1});
  std::unique_ptr<ControlServer> server_;
  std::vector<std::unique_ptr<ControlClient>> clients_;
};

TEST_F(ControlStoreTest, WorldsHaveValuesOfTheirOwn) {
  EXPECT_OK(StoreOf(0, all_).Put("key", "of all"));
  EXPECT_OK(StoreOf(0, tp_).Put("key", "of tp"));
  EXPECT_OK(StoreOf(0, dp_).Put("key", "of dp"));
  EXPECT_EQ(StoreOf(1, all_).Get("key", kStoredNs).value(), "of all");
  EXPECT_EQ(StoreOf(2, tp_).Get("key", kStoredNs).value(), "of tp");
  EXPECT_EQ(StoreOf(1, dp_).Get("key", kStoredNs).value(), "of dp");
}

TEST_F(ControlStoreTest, MessagesNameTheWorldAndWhoseNumbersTheyHave) {
  EXPECT_OK(StoreOf(0, tp_).Put("key", "value"));
  EXPECT_THAT(StoreOf(2, tp_).Put("key", "other"),
              StatusIs(absl::StatusCode::kAlreadyExists,
                       "world 'tp': in the job, key 'key' has a value"));
  EXPECT_THAT(StoreOf(2, tp_).Get("nothing", 1'000'000),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "world 'tp': in the job, rank 2 waited "));
  EXPECT_THAT(StoreOf(2, tp_).Get("nothing", 1'000'000),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       "ms for key 'nothing', which nobody has put"));
}

}  // namespace
}  // namespace commsched
