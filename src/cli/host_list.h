#ifndef COMMSCHED_SRC_CLI_HOST_LIST_H_
#define COMMSCHED_SRC_CLI_HOST_LIST_H_

#include <cstddef>
#include <string>
#include <vector>

namespace commsched::cli {

// The hosts of a job, and which of its ranks run where. Thread-compatible.
class HostList {
 public:
  static constexpr int kMaxSlots = 4096;

  // Of "host" or "host:slots" each; "[::1]:4" for a numeric address with
  // colons. Ranks fill the slots of one host, then those of the next; a host
  // without a number has one. Where none has a number, ranks are dealt out in
  // blocks of about the same size. Without hosts, all ranks are on this one.
  //
  // False, with the reason in `*why`, if the ranks do not fit or a text is not
  // of this form.
  bool Build(const std::vector<std::string>& texts, int ranks,
             std::string* why);

  bool empty() const { return names_.empty(); }
  const std::vector<std::string>& names() const { return names_; }

  // By its place in names(); 0 if there are no hosts.
  size_t HostOf(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  // Among the ranks on hosts of the same name.
  int LocalRank(int rank) const;
  int LocalSize(int rank) const;

 private:
  bool AreTogether(int rank, int other) const;

  std::vector<std::string> names_;
  std::vector<size_t> host_of_;  // By rank.
};

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_HOST_LIST_H_
