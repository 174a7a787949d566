/// Visibility of the public functions.
#ifndef COMMSCHED_EXPORT_H_
#define COMMSCHED_EXPORT_H_

#if defined(__GNUC__)
#define COMMSCHED_API __attribute__((visibility("default")))
#else
#define COMMSCHED_API
#endif

#endif  // COMMSCHED_EXPORT_H_
