// `commsched bench coll` of Gloo's collectives, as PyTorch uses them on CPUs.
//
//   commsched run -n 4 -- bench_gloo_coll FOLDER [flags of coll_peer.h]
//
// FOLDER, empty and seen by all ranks, is where they meet; who is which rank
// comes from the launcher. GLOO_SOCKET_IFNAME names the interface (lo).
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bench/peers/coll_peer.h"

namespace commsched::bench {
namespace {

const char* Variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

class Gloo final : public CollPeer {
 public:
  explicit Gloo(const std::string& folder)
      : context_(std::make_shared<gloo::rendezvous::Context>(
            std::atoi(Variable("COMMSCHED_RANK", "0")),
            std::atoi(Variable("COMMSCHED_WORLD_SIZE", "1")))) {
    gloo::transport::tcp::attr where;
    where.iface = Variable("GLOO_SOCKET_IFNAME", "lo");
    gloo::rendezvous::FileStore store(folder);
    auto device = gloo::transport::tcp::CreateDevice(where);
    context_->connectFullMesh(store, device);
  }
  const char* name() const override { return "gloo"; }
  int rank() const override { return context_->rank; }
  int size() const override { return context_->size; }
  void Prepare(cli::CollCase* one) override {
    one_ = one;
    scatter_ = nullptr;
    if (!one->kind.reduces || !one->kind.input_has_parts) return;
    // Works in place, on a copy: the sums of one run are the input of the next.
    work_ = one->input;
    scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<float>>(
        context_, std::vector<float*>{work_.data()},
        static_cast<int>(work_.size()),
        std::vector<int>(static_cast<size_t>(size()),
                         static_cast<int>(one->count)));
    scatter_->run();
    one->output.assign(work_.begin(),
                       work_.begin() + static_cast<int64_t>(one->count));
    std::fill(work_.begin(), work_.end(), 0.0f);
  }
  void Run() override {
    if (scatter_ != nullptr) return scatter_->run();
    std::vector<float>& input = one_->input;
    std::vector<float>& output = one_->output;
    if (one_->kind.reduces) {
      gloo::AllreduceOptions options(context_);
      options.setInput(input.data(), input.size());
      options.setOutput(output.data(), output.size());
      options.setReduceFunction(
          [](void* sum, const void* a, const void* b, size_t n) {
            gloo::sum<float>(sum, a, b, n);
          });
      gloo::allreduce(options);
    } else if (one_->kind.input_has_parts) {
      gloo::AlltoallOptions options(context_);
      options.setInput(input.data(), input.size());
      options.setOutput(output.data(), output.size());
      gloo::alltoall(options);
    } else {
      gloo::AllgatherOptions options(context_);
      options.setInput(input.data(), input.size());
      options.setOutput(output.data(), output.size());
      gloo::allgather(options);
    }
  }
  void Barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  double Sum(double mine) override {
    double sum = 0;
    gloo::AllreduceOptions options(context_);
    options.setInput(&mine, 1);
    options.setOutput(&sum, 1);
    options.setReduceFunction(
        [](void* total, const void* a, const void* b, size_t n) {
          gloo::sum<double>(total, a, b, n);
        });
    gloo::allreduce(options);
    return sum;
  }

 private:
  const std::shared_ptr<gloo::rendezvous::Context> context_;
  cli::CollCase* one_ = nullptr;
  std::vector<float> work_;
  std::unique_ptr<gloo::ReduceScatterHalvingDoubling<float>> scatter_;
};

}  // namespace
}  // namespace commsched::bench

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_gloo_coll FOLDER [FLAG VALUE]...\n");
    return 2;
  }
  try {
    commsched::bench::Gloo gloo(argv[1]);
    return commsched::bench::RunCollPeer(
        &gloo, std::vector<std::string>(argv + 2, argv + argc));
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "bench_gloo_coll: %s\n", failure.what());
    return 1;
  }
}
