// Faults of the disk, for the shared libraries under test, too: this program's
// own write, pwrite, fsync, rename and unlink stand before those of the C
// library.
#ifndef COMMSCHED_TEST_ENGINE_FILE_FAULTS_H_
#define COMMSCHED_TEST_ENGINE_FILE_FAULTS_H_

namespace commsched::engine {

// Called on the calling thread before each of these calls, with its name.
// Returns the errno that the call fails with, or 0 to let it go ahead; a write
// or pwrite is then of half of what was asked, so that it takes several. Null:
// none.
using FileHook = int (*)(const char* call);
void SetFileHook(FileHook hook);

}  // namespace commsched::engine

#endif  // COMMSCHED_TEST_ENGINE_FILE_FAULTS_H_
