#ifndef COMMSCHED_SRC_SESSION_SESSION_PARTS_H_
#define COMMSCHED_SRC_SESSION_SESSION_PARTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "comm/device_lanes.h"
#include "device/device.h"
#include "exec/codec_runner.h"
#include "exec/dispatcher.h"
#include "exec/drops.h"
#include "exec/failure.h"
#include "exec/issuer.h"
#include "exec/issuer_spec.h"
#include "exec/late_bindings.h"
#include "exec/nvtx_ranges.h"
#include "exec/observers.h"
#include "exec/program.h"
#include "exec/replays.h"
#include "exec/step_capture.h"
#include "exec/step_instruments.h"
#include "session/communicators.h"
#include "session/session_arena.h"
#include "session/session_spec.h"
#include "trace/flight_record.h"

namespace commsched {

// What a session is made of, up to the issuer and the dispatcher that run it:
// the plan bound to memory, streams and communicators of one rank.
//
// Made in the order Bind(), BorrowLanes(), Connect(), Finish(); constant after
// that, but for what the parts do themselves. Thread-compatible.
struct SessionParts {
  explicit SessionParts(SessionSpec s);
  ~SessionParts();
  SessionParts(const SessionParts&) = delete;
  SessionParts& operator=(const SessionParts&) = delete;

  // Local: memory, lanes and the flattened plan.
  absl::Status Bind();
  // Of a program that is enqueued: the device's lanes. Collective if
  // `together`, and then those of the same numbers on all ranks.
  absl::Status BorrowLanes(bool together);
  // Collective: communicators, and the memory that they are told of.
  absl::Status Connect();
  // What can be made once both have gone well.
  void Finish();
  // What runs it all is made of; the dispatcher's issuer is yet to be named.
  IssuerSpec ForIssuer();
  DispatcherSpec ForDispatcher();
  // Who fails the session is yet to be named.
  StepCaptureSpec ForCapture();

  const SessionSpec spec;
  Device* const device;
  std::vector<Stream*> lanes;                 // by compute lane
  std::vector<std::vector<NodeRef>> writers;  // by BufferId
  std::vector<std::vector<LaunchId>> users;   // by BufferId, in key order
  // By op: the launch of one that is submitted, if it has one only.
  std::vector<uint32_t> gated_launch;
  uint64_t registrations = 0;
  uint64_t registered_bytes = 0;

  // Of a device, by communication lane of the plan: the device's that launches
  // go out on, and what they need of it; null, if there are no launches.
  std::vector<std::shared_ptr<DeviceLane>> borrowed;
  std::vector<SideLane> side_lanes;
  // What says in which order collectives go out on them.
  std::vector<std::unique_ptr<LaneQueue>> queues;
  // What marks the end of a step on compute lanes.
  std::vector<std::unique_ptr<Event>> lane_ends;  // by compute lane, or null

  // In order of construction.
  Failure failure;
  SessionArena arena;
  std::unique_ptr<Program> program;
  std::unique_ptr<Replays> replays;      // null unless launches are enqueued
  std::unique_ptr<FlightRecord> flight;  // null if none is kept
  std::unique_ptr<LateBindings> late;    // null if nothing is late-bound
  std::unique_ptr<Drops> drops;          // null if nothing is submitted
  std::unique_ptr<CodecRunner> codec;    // null if no launch is coded
  std::unique_ptr<Observers> observers;  // null if there are none
  std::unique_ptr<NvtxRanges> ranges;    // null if no tool looks on
  Communicators communicators;

 private:
  // Of a program that is enqueued.
  absl::Status MakeLaneEnds();
  std::vector<LaneKey> LaneKeys() const;
  absl::Status TakeLanes(bool together);
  absl::Status MakeReplays();
  void AddQueues();
  absl::Status AddGates();
  absl::Status OpenFlightRecord();
  absl::Status ExpectLaunches();
  absl::Status RegisterMemory();
  absl::Status Register(void* address, uint64_t bytes);
  void ListenToLanes();
  void FindWriters();
  StepInstruments Instruments() const;
};

}  // namespace commsched

#endif  // COMMSCHED_SRC_SESSION_SESSION_PARTS_H_
