// `commsched bench coll` of Gloo's collectives, as PyTorch uses them on CPUs.
//
//   commsched run -n 4 -- bench_gloo_coll FOLDER [flags of coll_peer.h]
//
// FOLDER, empty and seen by all ranks, is where they meet; who is which rank
// comes from the launcher. GLOO_SOCKET_IFNAME names the interface (lo).
#include <gloo/algorithm.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
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
    if (one->dtype == COMMSCHED_BF16) {
      PrepareOf<uint16_t>();
    } else {
      PrepareOf<float>();
    }
  }
  void Run() override {
    if (scatter_ != nullptr) return scatter_->run();
    if (one_->dtype == COMMSCHED_BF16) {
      RunOf<uint16_t>();
    } else {
      RunOf<float>();
    }
  }
  void Barrier() override {
    gloo::BarrierOptions options(context_);
    gloo::barrier(options);
  }
  double Sum(double mine) override { return Over(mine, gloo::sum<double>); }
  double Max(double mine) override { return Over(mine, gloo::max<double>); }

 private:
  double Over(double mine,
              void (*combine)(void*, const void*, const void*, size_t)) {
    double all = 0;
    gloo::AllreduceOptions options(context_);
    options.setInput(&mine, 1);
    options.setOutput(&all, 1);
    options.setReduceFunction(combine);
    gloo::allreduce(options);
    return all;
  }
  static void Add(float* sum, const float* other, size_t count) {
    gloo::sum<float>(sum, other, count);
  }
  static void Add(uint16_t* sum, const uint16_t* other, size_t count) {
    AddBf16(sum, sum, other, count);
  }
  template <typename T>
  static const gloo::ReductionFunction<T>* Sum() {
    static const gloo::ReductionFunction<T> sum(
        gloo::CUSTOM,
        [](T* to, const T* other, size_t n) { Add(to, other, n); });
    return &sum;
  }

  template <typename T>
  static void Reduce(void* sum, const void* a, const void* b, size_t n) {
    if constexpr (sizeof(T) == 2) {
      AddBf16(static_cast<T*>(sum), static_cast<const T*>(a),
              static_cast<const T*>(b), n);
    } else {
      gloo::sum<T>(sum, a, b, n);
    }
  }

  // Works in place, on a copy: the sums of one run are the input of the next.
  template <typename T>
  void PrepareOf() {
    cli::CollCase* const one = one_;
    if (!one->kind.reduces || !one->kind.input_has_parts) return;
    work_ = one->input;
    scatter_ = std::make_unique<gloo::ReduceScatterHalvingDoubling<T>>(
        context_, std::vector<T*>{reinterpret_cast<T*>(work_.data())},
        static_cast<int>(work_.size() / sizeof(T)),
        std::vector<int>(static_cast<size_t>(size()),
                         static_cast<int>(one->count)),
        Sum<T>());
    scatter_->run();
    one->output.assign(
        work_.begin(),
        work_.begin() + static_cast<int64_t>(one->count * sizeof(T)));
    std::fill(work_.begin(), work_.end(), std::byte{0});
  }

  template <typename T>
  void RunOf() {
    T* const input = reinterpret_cast<T*>(one_->input.data());
    T* const output = reinterpret_cast<T*>(one_->output.data());
    const size_t inputs = one_->input.size() / sizeof(T);
    const size_t outputs = one_->output.size() / sizeof(T);
    switch (one_->kind.kind) {
      case COMMSCHED_ALL_REDUCE: {
        gloo::AllreduceOptions options(context_);
        options.setInput(input, inputs);
        options.setOutput(output, outputs);
        options.setReduceFunction(&Reduce<T>);
        gloo::allreduce(options);
        return;
      }
      case COMMSCHED_REDUCE: {
        gloo::ReduceOptions options(context_);
        options.setInput(input, inputs);
        options.setOutput(output, outputs);
        options.setReduceFunction(&Reduce<T>);
        options.setRoot(0);
        gloo::reduce(options);
        return;
      }
      case COMMSCHED_BROADCAST: {
        gloo::BroadcastOptions options(context_);
        if (rank() == 0) options.setInput(input, inputs);
        options.setOutput(output, outputs);
        options.setRoot(0);
        gloo::broadcast(options);
        return;
      }
      case COMMSCHED_ALL_TO_ALL: {
        gloo::AlltoallOptions options(context_);
        options.setInput(input, inputs);
        options.setOutput(output, outputs);
        gloo::alltoall(options);
        return;
      }
      default: {
        gloo::AllgatherOptions options(context_);
        options.setInput(input, inputs);
        options.setOutput(output, outputs);
        gloo::allgather(options);
      }
    }
  }

  const std::shared_ptr<gloo::rendezvous::Context> context_;
  cli::CollCase* one_ = nullptr;
  std::vector<std::byte> work_;
  std::unique_ptr<gloo::Algorithm> scatter_;
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
