// `commsched bench coll` of MPI's blocking collectives.
//
//   mpirun -np 4 bench_mpi_coll [flags of bench/peers/coll_peer.h]
#include <mpi.h>

#include <string>
#include <vector>

#include "bench/peers/coll_peer.h"

namespace commsched::bench {
namespace {

class Mpi final : public CollPeer {
 public:
  Mpi() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    MPI_Op_create(
        [](void* other, void* sum, int* count, MPI_Datatype*) {
          auto* const to = static_cast<uint16_t*>(sum);
          AddBf16(to, to, static_cast<const uint16_t*>(other),
                  static_cast<uint64_t>(*count));
        },
        /*commute=*/1, &bf16_sum_);
  }
  const char* name() const override { return "openmpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Prepare(cli::CollCase* one) override {
    one_ = one;
    // MPI_Bcast has one buffer.
    if (rank_ == 0 && one->kind.kind == COMMSCHED_BROADCAST) {
      one->output = one->input;
    }
  }
  void Run() override {
    const MPI_Comm world = MPI_COMM_WORLD;
    const void* const input = one_->input.data();
    void* const output = one_->output.data();
    const int count = static_cast<int>(one_->count);
    const bool is_bf16 = one_->dtype == COMMSCHED_BF16;
    const MPI_Datatype type = is_bf16 ? MPI_UINT16_T : MPI_FLOAT;
    const MPI_Op sum = is_bf16 ? bf16_sum_ : MPI_SUM;
    switch (one_->kind.kind) {
      case COMMSCHED_ALL_REDUCE:
        MPI_Allreduce(input, output, count, type, sum, world);
        return;
      case COMMSCHED_REDUCE_SCATTER:
        MPI_Reduce_scatter_block(input, output, count, type, sum, world);
        return;
      case COMMSCHED_ALL_TO_ALL:
        MPI_Alltoall(input, count, type, output, count, type, world);
        return;
      case COMMSCHED_BROADCAST:
        MPI_Bcast(output, count, type, /*root=*/0, world);
        return;
      case COMMSCHED_REDUCE:
        MPI_Reduce(input, output, count, type, sum, /*root=*/0, world);
        return;
      default:
        MPI_Allgather(input, count, type, output, count, type, world);
    }
  }
  void Barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double Sum(double mine) override { return Over(mine, MPI_SUM); }
  double Max(double mine) override { return Over(mine, MPI_MAX); }

 private:
  static double Over(double mine, MPI_Op combine) {
    double all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, combine, MPI_COMM_WORLD);
    return all;
  }

  int rank_ = 0;
  int size_ = 0;
  MPI_Op bf16_sum_ = MPI_OP_NULL;
  cli::CollCase* one_ = nullptr;
};

}  // namespace
}  // namespace commsched::bench

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  commsched::bench::Mpi mpi;
  const int code = commsched::bench::RunCollPeer(
      &mpi, std::vector<std::string>(argv + 1, argv + argc));
  MPI_Finalize();
  return code;
}
