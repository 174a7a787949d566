// Descriptors that a library opens so that children inherit them.
#ifndef COMMSCHED_PLUGINS_UCX_PROCESS_CLOSE_ON_EXEC_H_
#define COMMSCHED_PLUGINS_UCX_PROCESS_CLOSE_ON_EXEC_H_

#include <set>

namespace commsched::ucx {

// While it lives, UCX is called and opens descriptors: then those that have
// come, and those accepted meanwhile where such a socket listens, are
// close-on-exec. UCX's are not by themselves, and a program that the process
// starts would keep the connections of one that is gone. What another thread
// has opened meanwhile is so, too.
class CloseOnExec {
 public:
  CloseOnExec();
  ~CloseOnExec();
  CloseOnExec(const CloseOnExec&) = delete;
  CloseOnExec& operator=(const CloseOnExec&) = delete;

 private:
  std::set<int> before_;
};

}  // namespace commsched::ucx

#endif  // COMMSCHED_PLUGINS_UCX_PROCESS_CLOSE_ON_EXEC_H_
