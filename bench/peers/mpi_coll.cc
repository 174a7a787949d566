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
  void Prepare(const CollKind& kind, std::vector<float>* input,
               std::vector<float>* output, uint64_t count) override {
    kind_ = kind;
    input_ = input->data();
    output_ = output->data();
    count_ = static_cast<int>(count);
  }
  void Run() override {
    const MPI_Comm world = MPI_COMM_WORLD;
    if (kind_.reduces && !kind_.input_has_parts) {
      MPI_Allreduce(input_, output_, count_, MPI_FLOAT, MPI_SUM, world);
    } else if (kind_.reduces) {
      MPI_Reduce_scatter_block(input_, output_, count_, MPI_FLOAT, MPI_SUM,
                               world);
    } else if (kind_.input_has_parts) {
      MPI_Alltoall(input_, count_, MPI_FLOAT, output_, count_, MPI_FLOAT,
                   world);
    } else {
      MPI_Allgather(input_, count_, MPI_FLOAT, output_, count_, MPI_FLOAT,
                    world);
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
  CollKind kind_ = {};
  const float* input_ = nullptr;
  float* output_ = nullptr;
  int count_ = 0;
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
