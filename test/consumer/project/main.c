#include <commsched/version.h>
#include <stdio.h>

int main(void) {
  int major = -1;
  int minor = -1;
  int patch = -1;
  if (sscanf(commsched_version(), "%d.%d.%d", &major, &minor, &patch) != 3) {
    return 1;
  }
  printf("compiled with %d.%d.%d, runs with %s\n", COMMSCHED_VERSION_MAJOR,
         COMMSCHED_VERSION_MINOR, COMMSCHED_VERSION_PATCH, commsched_version());
  return major != COMMSCHED_VERSION_MAJOR || minor != COMMSCHED_VERSION_MINOR ||
         patch != COMMSCHED_VERSION_PATCH;
}
