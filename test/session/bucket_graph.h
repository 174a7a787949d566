// A step of all-reduced gradients for tests of sessions.
#ifndef COMMSCHED_TEST_SESSION_BUCKET_GRAPH_H_
#define COMMSCHED_TEST_SESSION_BUCKET_GRAPH_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "device/host_device.h"
#include "gtest/gtest.h"
#include "session/session.h"
#include "test/support/session_rig.h"
#include "test/support/status_matchers.h"

namespace commsched::test {

// `num_buckets` times: BWD_i writes gradient i, AR_i sums it over the ranks,
// USE_i reads it. Declared as all BWD, all AR, all USE.
struct BucketGraph {
  Graph graph;
  std::vector<BufferId> gradient;
  std::vector<OpId> backward, reduce, use;
};

inline BucketGraph MakeBuckets(int num_ranks, int num_buckets, uint64_t count) {
  BucketGraph made;
  const GroupId group = made.graph.AddGroup("dp", num_ranks).value();
  for (int i = 0; i < num_buckets; ++i) {
    Buffer buffer;
    buffer.name = absl::StrCat("grad", i);
    buffer.ownership = Ownership::kBound;
    buffer.count = count;
    made.gradient.push_back(made.graph.AddBuffer(buffer).value());
  }
  auto compute = [&](const char* prefix, int i, AccessMode mode) {
    Op op;
    op.name = absl::StrCat(prefix, i);
    op.accesses.push_back({made.gradient[i], mode, {}});
    return made.graph.AddOp(op).value();
  };
  for (int i = 0; i < num_buckets; ++i) {
    made.backward.push_back(compute("BWD", i, AccessMode::kWrite));
  }
  for (int i = 0; i < num_buckets; ++i) {
    Op op;
    op.name = absl::StrCat("AR", i);
    op.kind = OpKind::kCollective;
    op.collective.group = group;
    op.collective.input = {made.gradient[i], AccessMode::kRead, {}};
    op.collective.output = {made.gradient[i], AccessMode::kWrite, {}};
    made.reduce.push_back(made.graph.AddOp(op).value());
  }
  for (int i = 0; i < num_buckets; ++i) {
    made.use.push_back(compute("USE", i, AccessMode::kRead));
  }
  return made;
}

inline WorldSpec Ranks(int size, const char* backend = "inproc") {
  WorldSpec spec;
  spec.size = size;
  spec.backend = backend;
  return spec;
}

inline absl::Status Call(Session& session, OpId op,
                         Stream* stream = CallerStream()) {
  RETURN_IF_ERROR(session.Before(op, stream));
  return session.After(op, stream);
}

// A step of BucketGraph in which rank r writes r + 1 into gradient 0.
inline absl::Status RunStep(Session& session, SessionRig& rig,
                            const BucketGraph& made, int rank) {
  RETURN_IF_ERROR(session.StepBegin());
  for (size_t i = 0; i < made.backward.size(); ++i) {
    RETURN_IF_ERROR(session.Before(made.backward[i], CallerStream()));
    rig.Memory(rank, made.gradient[i])[0] = static_cast<float>(rank + 1);
    RETURN_IF_ERROR(session.After(made.backward[i], CallerStream()));
  }
  for (OpId op : made.use) RETURN_IF_ERROR(Call(session, op));
  return session.StepEnd();
}

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_SESSION_BUCKET_GRAPH_H_
