// One rank of a job of four with a channel over all ranks, and one over each
// pair: channel_job SECONDS [CONFIG]
//
// Says "at work" after some launches. Ranks 0 and 1 reduce over their pair for
// so many seconds, and expect that the job has lost a rank by then: that the
// channel of all has failed, but theirs goes on, and so does one that they make
// then. Ranks 2 and 3 reduce until that fails, and say why. Exits with 1,
// saying why, when something else fails.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "commsched/channel.hpp"
#include "commsched/commsched.hpp"
#include "test/processes/job_rank.h"

namespace {

namespace cs = commsched::api;
using commsched::test::Say;
using commsched::test::Value;
using commsched::test::Work;
using commsched::test::WorkFor;
using Seconds = std::chrono::seconds;

constexpr int32_t kRanks = 4;
constexpr size_t kCount = 5000;
constexpr int kLaunches = 16;

// All-reduces floats over some ranks of the job.
class Reducer {
 public:
  Reducer(const cs::Context& job, const char* axis,
          const std::vector<int32_t>& ranks)
      : group_(Value(cs::Group::Create(job, axis, ranks))),
        channel_(Value(cs::Channel::Create(job, group_))) {}

  // What the last element of all ranks' arrays is in sum, if this rank has
  // `value`.
  cs::Status Run(float value, float* sum) {
    values_.back() = value;
    commsched_channel_op_t op = commsched_channel_op_init();
    op.kind = COMMSCHED_ALL_REDUCE;
    op.input = op.output = values_.data();
    op.count = values_.size();
    const cs::Result<uint64_t> request = channel_.Submit(op);
    if (!request.ok()) return request.status();
    const cs::Status status = channel_.Wait(*request);
    *sum = values_.back();
    return status;
  }

  cs::Status status() const { return channel_.status(); }

 private:
  std::vector<float> values_ = std::vector<float>(kCount);
  cs::Group group_;
  cs::Channel channel_;
};

}  // namespace

int main(int argc, char** argv) {
  const Seconds time(argc > 1 ? std::atol(argv[1]) : 0);
  if (argc < 2 || argc > 3 || time.count() < 1) {
    std::fprintf(stderr, "usage: channel_job SECONDS [CONFIG]\n");
    return 2;
  }
  commsched_join_desc_t desc = commsched_join_desc_init();
  if (argc == 3) desc.backend_config = argv[2];
  const cs::World world = Value(cs::World::Join(desc));
  if (world.size() != kRanks) {
    std::fprintf(stderr, "%d ranks, not %d\n", world.size(), kRanks);
    return 2;
  }
  const cs::Context job = Value(cs::Context::Create(world, world.rank()));
  const int32_t first = world.rank() / 2 * 2;
  Reducer of_all(job, "dp", {0, 1, 2, 3});
  Reducer of_pair(job, "tp", {first, first + 1});
  Work(&of_all, kLaunches, kRanks);
  Work(&of_pair, kLaunches, 2);
  Say("at work");
  if (first == 2) {
    float sum = 0;
    cs::Status status;
    while (status.ok()) status = of_pair.Run(1, &sum);
    Say("pair: " + status.ToString());
    return 0;
  }
  WorkFor(time, &of_pair);
  Say("all: " + of_all.status().ToString());
  {
    Reducer of_again(job, "again", {1, 0});
    Work(&of_again, kLaunches, 2);
  }
  Work(&of_pair, kLaunches, 2);
  Say("pair: OK");
  return 0;
}
