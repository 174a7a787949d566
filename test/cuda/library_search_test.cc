// Where the vendor's libraries are looked for.
#include <cerrno>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/open_library.h"

namespace commsched::kernels {
namespace {

using testing::Contains;
using testing::Not;

TEST(LibrarySearchTest, PackagesAreBesideAnInterpreterOfPython) {
  EXPECT_EQ(PrefixOfInterpreter("/opt/py/bin/python3.11"), "/opt/py");
  EXPECT_EQ(PrefixOfInterpreter("/opt/py/bin/python"), "/opt/py");
  EXPECT_EQ(PrefixOfInterpreter("venv/bin/python3"), "venv");
}

TEST(LibrarySearchTest, OtherProgramsHaveNoPackages) {
  for (const char* program :
       {"/usr/bin/train", "/python3", "bin/python3", "python3", ""}) {
    EXPECT_EQ(PrefixOfInterpreter(program), "") << program;
  }
}

// The interpreter of a virtual environment is a link to another one.
TEST(LibrarySearchTest, AnInterpreterIsKnownByTheNameThatItWasCalledBy) {
  EXPECT_THAT(PythonPrefixes(), Not(Contains("/opt/no_such_venv")));
  char called[] = "/opt/no_such_venv/bin/python";
  char* const before = program_invocation_name;
  program_invocation_name = called;
  EXPECT_THAT(PythonPrefixes(), Contains("/opt/no_such_venv"));
  program_invocation_name = before;
}

}  // namespace
}  // namespace commsched::kernels
