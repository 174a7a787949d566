#include <commsched/commsched.h>
#include <commsched/engine.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  int major = -1;
  int minor = -1;
  int patch = -1;
  if (sscanf(commsched_version(), "%d.%d.%d", &major, &minor, &patch) != 3) {
    return 1;
  }
  printf("compiled with %d.%d.%d, runs with %s\n", COMMSCHED_VERSION_MAJOR,
         COMMSCHED_VERSION_MINOR, COMMSCHED_VERSION_PATCH, commsched_version());
  if (strcmp(commsched_status_name(COMMSCHED_NOT_FOUND), "NOT_FOUND") != 0) {
    return 1;
  }
  return major != COMMSCHED_VERSION_MAJOR || minor != COMMSCHED_VERSION_MINOR ||
         patch != COMMSCHED_VERSION_PATCH;
}
