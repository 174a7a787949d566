/// Agreement: ranks compare what they must have in common, off the hot path.
#ifndef COMMSCHED_AGREE_H_
#define COMMSCHED_AGREE_H_

#include <stdint.h>
#include <string.h>

#include "commsched/export.h"
#include "commsched/group.h"
#include "commsched/status.h"
#include "commsched/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/// One thing that ranks have in common: "weight_decay" is "0.1". Never grows.
typedef struct commsched_fact {
  const char* subject;
  const char* value;
} commsched_fact_t;

typedef struct commsched_agree_desc {
  uint64_t struct_size;
  /// What the comparison is about; errors begin with it. Ranks meet by it.
  const char* name;
  /// Who comes: its members, who give it in the same order. NULL: every rank of
  /// the world.
  const commsched_group_t* meet;
  /// Whose facts must be equal: ranks that give a group of the same axis and
  /// members. NULL: those of all who come.
  const commsched_group_t* compare;
  const commsched_fact_t* facts;  ///< In the same order on all ranks.
  uint64_t num_facts;
  int64_t timeout_ns;  ///< 0: COMMSCHED_TIMEOUT_S, or 600 s.
} commsched_agree_desc_t;

static inline commsched_agree_desc_t commsched_agree_desc_init(void) {
  commsched_agree_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// Compares facts among ranks. Collective among those who `meet`.
///
/// Comparisons of one name among the same ranks are numbered from 0, in the
/// order of the calls: `*out_number` is that of this one, equal on all ranks. A
/// failed comparison has a number, too.
///
/// If two ranks differ, all who meet get the same error. It names the first
/// difference: "weight_decay is 0.1 on rank 0 and 0 on rank 1".
///
/// Shape:     unless there is a difference, 32 bytes travel per rank.
/// Ownership: `desc` is read during the call. `out_number` may be NULL.
/// Threads:   any; of one name, one thread per rank at a time.
/// Blocks:    until all who meet have called, at most `timeout_ns`; where two
///            differ, twice more to name the difference.
/// Errors:    INVALID_ARGUMENT     NULL, an empty name, a group of another
///                                 context, a negative timeout
///            FAILED_PRECONDITION  two ranks differ; a rank declined
///            ABORTED              a rank aborted what it was to come for
///            DEADLINE_EXCEEDED    not all came; names those missing
///            Then every rank that comes gets an error.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_context_agree(
    commsched_context_t* context, const commsched_agree_desc_t* desc,
    uint64_t* out_number);

/// Instead of commsched_context_agree(), or to end one that waits: this rank
/// does not come to the next comparison of `desc->name` among `desc->meet`, or
/// does not stay in it. The others, who wait or will come, fail at once with
/// ABORTED if `code` is that, else FAILED_PRECONDITION, and a message that has
/// the rank and `reason`. With ABORTED that was the last comparison of the
/// name: later calls of this rank return ABORTED. Other fields of `desc` are
/// not read.
///
/// Ownership: `desc` and `reason` are read during the call.
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, an empty name, a group of another
///                              context, `code` OK or unknown
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_context_decline(
    commsched_context_t* context, const commsched_agree_desc_t* desc,
    commsched_status_t code, const char* reason);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_AGREE_H_
