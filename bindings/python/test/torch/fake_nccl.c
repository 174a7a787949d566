// A library by the name of NCCL's: what it is linked with is found by it.
typedef int fake_nccl_has_nothing_of_its_own;
