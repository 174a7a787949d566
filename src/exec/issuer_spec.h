// What an issuer is made of.
#ifndef COMMSCHED_SRC_EXEC_ISSUER_SPEC_H_
#define COMMSCHED_SRC_EXEC_ISSUER_SPEC_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "comm/backend_rank.h"
#include "comm/lane_order.h"
#include "comm/turn.h"
#include "commsched/plugin.h"
#include "device/device.h"
#include "exec/codec_runner.h"
#include "exec/drops.h"
#include "exec/failure.h"
#include "exec/late_bindings.h"
#include "exec/program.h"
#include "exec/replays.h"
#include "exec/step_instruments.h"

namespace commsched {

// What launches of a communication lane are enqueued on: one at a time, with
// the turn, since other sessions may launch there, too. Null where the plan has
// no launches.
struct SideLane {
  Stream* stream = nullptr;
  Turn* turn = nullptr;
  LaneOrder* order = nullptr;
};

struct IssuerSpec {
  Program* program = nullptr;   // outlives the issuer
  BackendRank* rank = nullptr;  // likewise; its thread pumps the issuer
  const commsched_backend_t* backend = nullptr;
  // One for each group, by GroupId; and others, of a program that is enqueued.
  std::vector<void*> comms;
  // Fails `comms` here, and what they are to the other ranks there.
  std::function<void(const absl::Status&)> abort;
  std::vector<std::vector<int>> group_ranks;  // by GroupId: world ranks
  LateBindings* late = nullptr;               // null if nothing is late-bound
  Drops* drops = nullptr;        // what may be left out of a step; or null
  CodecRunner* codec = nullptr;  // null if no launch is coded
  StepInstruments instruments;
  Failure* failure = nullptr;
  int world_rank = 0;
  // The rank's thread does not: who owns the issuer calls Pump().
  bool manual = false;
  // Nor does it, but who calls MakeDue() and Await().
  bool by_caller = false;
  // Of a program that is enqueued: its device, and by communication lane what
  // launches are enqueued on.
  Device* device = nullptr;
  std::vector<SideLane> side_lanes;
  Replays* replays = nullptr;  // null if no step is a launch of a graph
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_EXEC_ISSUER_SPEC_H_
