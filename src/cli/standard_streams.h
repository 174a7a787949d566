#ifndef COMMSCHED_SRC_CLI_STANDARD_STREAMS_H_
#define COMMSCHED_SRC_CLI_STANDARD_STREAMS_H_

namespace commsched::cli {

// At the begin of the program: opens /dev/null in place of those of the
// descriptors 0 to 2 that are closed, so that no other file gets their numbers.
// False if that cannot be done.
bool OpenStandardStreams();

// At its end: `exit_code`, or 1 in place of 0 if what was printed could not be
// written, which it then says on standard error.
int FinishOutput(int exit_code);

}  // namespace commsched::cli

#endif  // COMMSCHED_SRC_CLI_STANDARD_STREAMS_H_
