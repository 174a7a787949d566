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
  }
  const char* name() const override { return "openmpi"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void Prepare(cli::CollCase* one) override { one_ = one; }
  void Run() override {
    const MPI_Comm world = MPI_COMM_WORLD;
    const float* const input = one_->input.data();
    float* const output = one_->output.data();
    const int count = static_cast<int>(one_->count);
    if (one_->kind.reduces && !one_->kind.input_has_parts) {
      MPI_Allreduce(input, output, count, MPI_FLOAT, MPI_SUM, world);
    } else if (one_->kind.reduces) {
      MPI_Reduce_scatter_block(input, output, count, MPI_FLOAT, MPI_SUM, world);
    } else if (one_->kind.input_has_parts) {
      MPI_Alltoall(input, count, MPI_FLOAT, output, count, MPI_FLOAT, world);
    } else {
      MPI_Allgather(input, count, MPI_FLOAT, output, count, MPI_FLOAT, world);
    }
  }
  void Barrier() override { MPI_Barrier(MPI_COMM_WORLD); }
  double Sum(double mine) override {
    double sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return sum;
  }

 private:
  int rank_ = 0;
  int size_ = 0;
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
