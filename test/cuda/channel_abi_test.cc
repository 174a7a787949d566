// Channels on stand-in devices through the C ABI: what a framework's process
// group calls.
#include <cstdint>
#include <memory>
#include <string>

#include "commsched/commsched.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "test/cuda/gpu_rig.h"
#include "test/support/rank_group.h"

namespace commsched {
namespace {

using test::DeviceMemory;
using test::FakeDevice;
using test::Peek;
using testing::HasSubstr;

constexpr int kRanks = 2;

void ExpectOk(commsched_status_t code) {
  EXPECT_EQ(code, COMMSCHED_OK) << commsched_last_error();
}

// A rank with a channel, an element on its device, and a stream of the
// caller's.
class ChannelRank {
 public:
  ChannelRank(commsched_world_t* world, int number)
      : device_(FakeDevice(number)),
        memory_(device_, 2 * sizeof(float)),
        stream_(device_->CreateSideStream().value()) {
    ExpectOk(commsched_context_create(world, number, &context_));
    const commsched_axis_t axis = {"dp", kRanks};
    commsched_mesh_t* mesh = nullptr;
    ExpectOk(commsched_mesh_create(context_, &axis, 1, &mesh));
    ExpectOk(commsched_mesh_group(mesh, "dp", &group_));
    commsched_mesh_destroy(mesh);
    ExpectOk(commsched_channel_create(context_, group_, nullptr, &channel_));
  }
  ~ChannelRank() {
    commsched_channel_destroy(channel_);
    commsched_group_destroy(group_);
    commsched_context_destroy(context_);
  }

  commsched_channel_t* channel() const { return channel_; }
  Stream* stream() const { return stream_.get(); }
  float* at(size_t index) const {
    return static_cast<float*>(memory_.address()) + index;
  }
  float& operator[](size_t index) const { return Peek(at(index))[0]; }

 private:
  const std::shared_ptr<Device> device_;
  const DeviceMemory memory_;
  const std::unique_ptr<Stream> stream_;
  commsched_context_t* context_ = nullptr;
  commsched_group_t* group_ = nullptr;
  commsched_channel_t* channel_ = nullptr;
};

TEST(CudaChannelAbiTest, AProcessGroupReducesAndSendsOnItsOwnStream) {
  (void)test::NcclTable();  // So that its file is known.
  commsched_world_desc_t desc = commsched_world_desc_init();
  desc.size = kRanks;
  desc.backend = "nccl";
  desc.device_kind = COMMSCHED_DEVICE_CUDA;
  commsched_world_t* world = nullptr;
  ExpectOk(commsched_world_create_inproc(&desc, &world));
  (void)RunRanks(kRanks, [&](int number) {
    ChannelRank rank(world, number);
    const commsched_stream_t stream = rank.stream()->handle();
    test::RunOn(rank.stream(),
                [&] { rank[0] = static_cast<float>(number + 1); });
    commsched_channel_op_t op = commsched_channel_op_init();
    op.kind = COMMSCHED_ALL_REDUCE;
    op.input = op.output = rank.at(0);
    op.count = 1;
    uint64_t request = 0;
    ExpectOk(commsched_channel_submit(rank.channel(), &op, stream, &request));
    ExpectOk(commsched_channel_before(rank.channel(), request, stream));
    op = commsched_channel_op_init();
    op.kind = number == 0 ? COMMSCHED_SEND : COMMSCHED_RECV;
    op.peer = 1 - number;
    op.input = number == 0 ? rank.at(0) : nullptr;
    op.output = number == 0 ? nullptr : rank.at(1);
    op.count = 1;
    ExpectOk(commsched_channel_submit(rank.channel(), &op, stream, &request));
    ExpectOk(commsched_channel_wait(rank.channel(), request, INT64_MAX));
    EXPECT_EQ(rank[number == 0 ? 0 : 1], 3);
    // Memory and streams of elsewhere are refused, and nothing was submitted.
    float on_host = 0;
    op.kind = COMMSCHED_ALL_REDUCE;
    op.input = op.output = &on_host;
    EXPECT_EQ(commsched_channel_submit(rank.channel(), &op, stream, &request),
              COMMSCHED_INVALID_ARGUMENT);
    EXPECT_THAT(commsched_last_error(), HasSubstr("is not memory of CUDA"));
    EXPECT_EQ(request, 2u);
    return absl::OkStatus();
  });
  commsched_world_destroy(world);
}

}  // namespace
}  // namespace commsched
