// In place of PyTorch's library: what it needs, or has within, has
// ncclGetVersion().
#ifdef HAS_NCCL_WITHIN
int ncclGetVersion(int* version) {
  *version = 22705;
  return 0;
}
#else
int ncclGetVersion(int* version);
#endif

int fake_torch_nccl_version(void);

int fake_torch_nccl_version(void) {
  int version = 0;
  ncclGetVersion(&version);
  return version;
}
