// The end of the process, while another of its threads is in UCX.
#ifndef COMMSCHED_PLUGINS_UCX_PROCESS_EXIT_GATE_H_
#define COMMSCHED_PLUGINS_UCX_PROCESS_EXIT_GATE_H_

namespace commsched::ucx {

// Around calls that make or connect something in UCX. exit() takes UCX down
// whoever is in it, and UCX then aborts the process: so exit() waits until the
// others have come out, but not for long, and those who come later stay where
// they are until the process is gone. The thread that exits may pass, since it
// destroys what static objects own.
class InUcx {
 public:
  InUcx();
  ~InUcx();
  InUcx(const InUcx&) = delete;
  InUcx& operator=(const InUcx&) = delete;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_PROCESS_EXIT_GATE_H_
