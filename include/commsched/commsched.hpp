/// C++17 on top of the C ABI: handles that release themselves, errors as
/// values.
///
/// Everything here is inline and calls commsched/commsched.h, whose contracts
/// (threads, blocking, errors) hold unchanged; only what differs is said. No
/// exceptions are thrown but by the standard containers. Handles are move-only;
/// one that was moved from, or default-constructed, is empty, and calls on it
/// return INVALID_ARGUMENT. Parents may be destroyed before their children.
///
///   namespace cs = commsched::api;
///   cs::Graph graph;
///   auto buffer = graph.AddBuffer({"grad", COMMSCHED_F32, 1 << 20});
///   if (!buffer.ok()) return Fail(buffer.status());
///   cs::Compute backward;
///   backward.name = "backward";
///   backward.accesses = {cs::Writes(*buffer)};
///   auto op = graph.Add(backward);
///
/// A whole program: examples/02_overlap_cpp. Recordings:
/// commsched/recording.hpp; channels: commsched/channel.hpp; plugins, flight
/// records and what the library says of itself: commsched/tools.hpp.
#ifndef COMMSCHED_COMMSCHED_HPP_
#define COMMSCHED_COMMSCHED_HPP_

#include "commsched/commsched.h"
#include "commsched/graph.hpp"
#include "commsched/plan.hpp"
#include "commsched/result.hpp"
#include "commsched/session.hpp"
#include "commsched/world.hpp"

#endif  // COMMSCHED_COMMSCHED_HPP_
