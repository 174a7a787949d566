// One entry per parser. Each gives `data` to the parser, aborts if that accepts
// what it must refuse or refuses without a word, and returns how many things
// were accepted, so that a test can tell whether inputs get anywhere.
#ifndef COMMSCHED_TEST_FUZZ_ENTRIES_H_
#define COMMSCHED_TEST_FUZZ_ENTRIES_H_

#include <cstddef>
#include <cstdint>

namespace commsched::test {

using FuzzEntry = size_t (*)(const uint8_t* data, size_t size);

// A graph as JSON: what is accepted is written and read back equal, and has
// dependencies or a cycle.
size_t FuzzGraphJson(const uint8_t* data, size_t size);

// A profile of links, as JSON and as ranks send it: what is accepted is within
// its ranges, and is written and read back equal.
size_t FuzzLinkProfile(const uint8_t* data, size_t size);

// A list of plugins whose tables are made of `data`: sizes, versions, flags,
// texts, and which functions are there.
size_t FuzzPluginTables(const uint8_t* data, size_t size);

// The text of the environment variables, of the library's table and of a table
// that has an integer too.
size_t FuzzEnvironment(const uint8_t* data, size_t size);

// Structs of the C ABI: plan options, a cost profile, and a graph of up to a
// dozen ops from their descriptions. A plan is deterministic, predicted,
// explained and described; nothing is refused as an internal error.
size_t FuzzPlanStructs(const uint8_t* data, size_t size);

// The file of a flight record, whole or with its ring made of a few slots.
size_t FuzzFlightRecord(const uint8_t* data, size_t size);

// The header of a safetensors file, after 8 bytes that say how much data follow
// it: what is accepted fills the data and is written and read back equal.
size_t FuzzSafetensors(const uint8_t* data, size_t size);

// The content of a checkpoint's index, with the checksum that it needs, and the
// name of a file of a checkpoint.
size_t FuzzCheckpointIndex(const uint8_t* data, size_t size);

// A frame of the control plane: a message that is accepted is written back
// equal.
size_t FuzzControlMessages(const uint8_t* data, size_t size);

// Frames from three ranks, as the control server handles them.
size_t FuzzControlHub(const uint8_t* data, size_t size);

// The trainer's command line, and the texts with units in it. Only where the
// trainer's needs are there.
size_t FuzzTrainerOptions(const uint8_t* data, size_t size);

}  // namespace commsched::test

#endif  // COMMSCHED_TEST_FUZZ_ENTRIES_H_
