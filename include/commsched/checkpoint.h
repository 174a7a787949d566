/// Checkpoints of an engine (engine.h): safetensors, one file per rank and an
/// index. Library: libcommsched_engine.
///
/// A folder holds one checkpoint, that of `index.json`; saving replaces it. At
/// any instant, a kill included, the index is that of a complete checkpoint.
/// Resuming is bit for bit; loading may be into any number of ranks, ZeRO stage
/// and bucket size.
///
/// Saving, per rank:                      Loading, per rank:
///   saver_create   of the engine           checkpoint_open (once for all ranks
///   saver_save     between steps           of a process, if they like)
///   saver_wait     before the end          checkpoint_load   into the engine
///
/// Files are named after step, run and rank. Each is written under another
/// name, brought to the disk and renamed; the index last, by the rank that
/// finds the files of all ranks. So all ranks save to one folder, which they
/// all see, and do not talk. Formats: docs/engine.md.
///
/// One run at a time saves to a folder: its savers share a lock,
/// `.commsched-lock`, which the kernel lets go of when a process ends (on file
/// systems that have locks). A run removes its own older files and, once its
/// index stands, those of the run that its engines have loaded and what runs
/// have left that were killed after they had loaded the same one. The
/// checkpoint of any other run is not replaced unless `overwrite` says so.
///
/// Engines on groups that are not the whole world, as with tensor parallelism,
/// may save to one folder: each is a slice, with files and an index of its own,
/// `index-SLICE.json`. Slices are not saved as one: a kill may leave them at
/// different steps, which commsched_engine_checkpoint_get_info() says.
///
/// Conventions: commsched.h, and engine.h for messages of errors.
#ifndef COMMSCHED_CHECKPOINT_H_
#define COMMSCHED_CHECKPOINT_H_

#include <stdint.h>
#include <string.h>

#include "commsched/engine.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Saves one rank's part: memory for a copy, and a thread that writes it.
typedef struct commsched_engine_saver commsched_engine_saver_t;

/// An open checkpoint. Immutable.
typedef struct commsched_engine_checkpoint commsched_engine_checkpoint_t;

typedef struct commsched_engine_saver_desc {
  uint64_t struct_size;
  const char* folder;  ///< Is there already. Copied.
  /// 1 to 64 letters, digits or '_', equal on all ranks and never used before
  /// for this folder: tells files apart that a killed run has left. Copied. A
  /// run that goes on from a checkpoint is called "ORIGIN.RUN" in names of
  /// files, ORIGIN being the run that began it.
  const char* run;
  /// Tells engines apart that save to one folder: 1 to 96 letters, digits, '_'
  /// or '.', equal on the engine's ranks; not "rank" or "index". "": none.
  /// NULL: none if the engine's group is the whole world; else "AXIS.FIRST",
  /// the group's axis and its lowest rank of the world, which tells the groups
  /// of a mesh apart. Name slices that are to be loaded on another mesh.
  /// Copied.
  const char* slice;
  /// Not 0: replaces the checkpoint in the folder, and removes the files there,
  /// of whatever run, once the own index stands.
  uint32_t overwrite;
  /// 1: one file with all of the state, which rank 0 of the engine's group
  /// writes, and has memory for. Each save collects it there, so that it is
  /// collective; other ranks write nothing, and need no folder. Equal on all
  /// ranks. Any number of ranks loads it, as any other checkpoint.
  uint32_t whole;
} commsched_engine_saver_desc_t;

static inline commsched_engine_saver_desc_t commsched_engine_saver_desc_init(
    void) {
  commsched_engine_saver_desc_t desc;
  memset(&desc, 0, sizeof(desc));
  desc.struct_size = sizeof(desc);
  return desc;
}

/// What the caller keeps with a checkpoint: its place in the data, its seed.
/// Plain data that is passed by pointer; never grows.
typedef struct commsched_engine_metadata {
  const char* key;    ///< UTF-8, not empty.
  const char* value;  ///< UTF-8.
} commsched_engine_metadata_t;

/// Creates a saver: takes memory for this rank's share of parameters and
/// optimizer state (12 bytes per parameter / ranks, in every stage), and starts
/// its thread.
///
/// Ownership: `desc` is read during the call. `engine` must outlive the saver.
///            Release with commsched_engine_saver_destroy().
/// Threads:   that of the engine.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL, a wrong `struct_size`, another `run`
///                                 or `slice` than said above, a folder that is
///                                 none, a name of a parameter that is not
///                                 UTF-8
///            NOT_FOUND            no such folder
///            ALREADY_EXISTS       `run` has saved there before; the folder has
///                                 a checkpoint of a run that this one has not
///                                 gone on from, without `overwrite`; a saver
///                                 of this rank, run and slice is there
///            PERMISSION_DENIED    nothing can be written there
///            RESOURCE_EXHAUSTED   no memory, no thread
///            UNAVAILABLE          another run saves to the folder: names it
///                                 and its process; the folder cannot be listed
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_saver_create(
    commsched_engine_t* engine, const commsched_engine_saver_desc_t* desc,
    commsched_engine_saver_t** out_saver);

/// Waits for the write, if one is under way, and releases the saver. Accepts
/// NULL.
///
/// Threads:   one, once per saver.
/// Blocks:    until the write has ended.
/// Since:     0.1
COMMSCHED_API void commsched_engine_saver_destroy(
    commsched_engine_saver_t* saver);

/// Copies this rank's share of the state after the last step and has it written
/// while steps go on. All ranks save after the same steps. Reads this rank's
/// memory only, drains (commsched_engine_drain()) when it has copied the
/// optimizer state, and asks nothing of other ranks.
///
/// Ownership: `metadata` is read during the call; equal on all ranks, at most
///            1 MiB in all.
/// Threads:   that of the engine.
/// Blocks:    until the write before, if any, has ended and the copy is made.
/// Errors:    INVALID_ARGUMENT     NULL, a key that is empty or there twice,
///                                 that begins with "commsched.", text that
///                                 is not UTF-8, too much of it
///            FAILED_PRECONDITION  within a step or an evaluation; this step,
///            or
///                                 a later one, is saved already
///            or the session's first failure: what it left is not saved
///            or what commsched_engine_saver_wait() returns
///            On error nothing is written.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_saver_save(
    commsched_engine_saver_t* saver,
    const commsched_engine_metadata_t* metadata, uint32_t num_metadata);

/// Waits until what was saved is on the disk. The checkpoint is complete once
/// this has succeeded on all ranks.
///
/// Threads:   that of the engine.
/// Blocks:    until the write has ended.
/// Errors:    INVALID_ARGUMENT    NULL
///            PERMISSION_DENIED, RESOURCE_EXHAUSTED, NOT_FOUND, UNAVAILABLE,
///            DATA_LOSS           the saver's first failure to write, or a file
///                                that is not as long as what was written;
///                                names the file. The saver does not save
///                                again, and the checkpoint before stays
/// Since:     0.1
COMMSCHED_API commsched_status_t
commsched_engine_saver_wait(commsched_engine_saver_t* saver);

/// Opens the checkpoint in `folder`: reads the index and the headers of all its
/// files, and checks that they are what was written and fit together. A run may
/// save to the folder meanwhile: this then opens the newer checkpoint, and what
/// is open stays readable when its files have been removed. That takes an open
/// file per rank that saved: a process has at most 256 of them in all its
/// checkpoints, and fewer if it has no more descriptors. Other files are opened
/// to be read; once they have been removed that fails with NOT_FOUND. Ranks of
/// one process should share a checkpoint. Open files keep their room on the
/// disk until commsched_engine_checkpoint_close().
///
/// Ownership: `folder` is copied. Release with
///            commsched_engine_checkpoint_close().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT    NULL; a file that is not of a checkpoint, or
///                                of another version; names file, tensor,
///                                value. Or several slices: names them
///            NOT_FOUND           no checkpoint there, or a file is missing
///            DATA_LOSS           a file that was cut off or has changed
///            PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE  of the disk
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_checkpoint_open(
    const char* folder, commsched_engine_checkpoint_t** out_checkpoint);

/// The same for one of several slices that engines have saved to the folder; ""
/// is that of an engine on the whole world.
///
/// Ownership: arguments are copied. Release with
///            commsched_engine_checkpoint_close().
/// Threads:   any.
/// Blocks:    never.
/// Errors:    as commsched_engine_checkpoint_open()
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_checkpoint_open_slice(
    const char* folder, const char* slice,
    commsched_engine_checkpoint_t** out_checkpoint);

/// Releases the checkpoint. Accepts NULL.
///
/// Threads:   one, once per checkpoint.
/// Since:     0.1
COMMSCHED_API void commsched_engine_checkpoint_close(
    commsched_engine_checkpoint_t* checkpoint);

typedef struct commsched_engine_checkpoint_info {
  uint64_t struct_size;
  uint64_t step;        ///< Steps that had been taken.
  uint64_t num_ranks;   ///< That saved it: files.
  uint64_t zero_stage;  ///< That they ran.
  uint64_t num_tensors;
  uint64_t bytes;  ///< Of all files but the index.
} commsched_engine_checkpoint_info_t;

static inline commsched_engine_checkpoint_info_t
commsched_engine_checkpoint_info_init(void) {
  commsched_engine_checkpoint_info_t info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

/// Fills `out_info`, made by commsched_engine_checkpoint_info_init().
///
/// Threads:   any.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL, `struct_size` not set
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_checkpoint_get_info(
    const commsched_engine_checkpoint_t* checkpoint,
    commsched_engine_checkpoint_info_t* out_info);

/// Returns what was saved under `key`; NULL if nothing was.
///
/// Ownership: the checkpoint's.
/// Threads:   any.
/// Since:     0.1
COMMSCHED_API const char* commsched_engine_checkpoint_metadata(
    const commsched_engine_checkpoint_t* checkpoint, const char* key);

/// Sets parameters, optimizer state and number of steps from the checkpoint,
/// before the first step or after a drain. Local: each rank reads what it
/// keeps. The engine may have another number of ranks, stage or bucket size
/// than the one that saved; its parameters are the same ones. The next
/// commsched_engine_step_begin() compares with the other ranks what several of
/// them store, and waits for them.
///
/// Threads:   that of the engine; several engines may load at once.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL; a tensor of another shape or dtype;
///                                 one is missing or is no parameter
///            DATA_LOSS            a checksum is wrong, or a file was cut off
///            FAILED_PRECONDITION  not drained since the last step
///            NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE
///                                 of the disk
///            or the session's first failure
///            On error the engine is unchanged, unless the disk fails at what
///            it could read just before; then only destroy it.
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_checkpoint_load(
    const commsched_engine_checkpoint_t* checkpoint,
    commsched_engine_t* engine);

/// Writes the parameters, without optimizer state, as one safetensors file that
/// other tools read: names and shapes as registered. A file of that name is
/// replaced when the new one is complete; until then that has a name beside it
/// which was free.
///
/// Threads:   any; one per path.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT  NULL
///            DATA_LOSS         a checksum is wrong, or a file was cut off
///            NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, UNAVAILABLE
///                              of the disk
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_checkpoint_export(
    const commsched_engine_checkpoint_t* checkpoint, const char* path);

/// Collects the fp32 masters of a parameter on one rank, `root` of the engine's
/// group. Collective: all members call it alike, between steps; it drains. The
/// first call makes a communicator.
///
/// Shape:     `out_values` holds `count` elements, row-major: all of the
///            parameter. Read on `root` only; memory of the host.
/// Threads:   one per engine at a time.
/// Blocks:    until all members have called, at most `launch_timeout_ns`.
/// Errors:    INVALID_ARGUMENT     no such rank; on `root` NULL, another count
///                                 than the parameter's
///            NOT_FOUND            no such parameter
///            FAILED_PRECONDITION  within a step
///            DEADLINE_EXCEEDED    a member did not call
///            RESOURCE_EXHAUSTED   no memory for the parameter
///            or the session's first failure, or the pool's
/// Since:     0.2
COMMSCHED_API commsched_status_t commsched_engine_gather_parameter(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint32_t root, float* out_values, uint64_t count);

/// The elements of a parameter whose fp32 master this rank saves: each element
/// is one rank's of the engine's group, in every stage and whatever the dtypes.
/// They may be none (`*out_count` 0).
///
/// Threads:   that of the engine.
/// Blocks:    never.
/// Errors:    INVALID_ARGUMENT     NULL
///            NOT_FOUND            no such parameter
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_master_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    uint64_t* out_offset, uint64_t* out_count);

/// Reads these elements: what the optimizer steps, of which values of 16 bits
/// are rounded copies. Before the first step or after a drain.
///
/// Shape:     `count` elements: all that commsched_engine_master_range() says.
/// Threads:   that of the engine.
/// Blocks:    while the optimizer's state is read from its pool.
/// Errors:    INVALID_ARGUMENT     NULL, another count
///            NOT_FOUND            no such parameter
///            FAILED_PRECONDITION  not drained since the last step
///            or the session's first failure, or the pool's
/// Since:     0.1
COMMSCHED_API commsched_status_t commsched_engine_get_master_range(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    float* out_values, uint64_t count);

/// Reads what the optimizer keeps for the same elements: the value of its state
/// that its table calls `name` (optimizer.h), "adamw.m" of AdamW. Before the
/// first step or after a drain.
///
/// Shape:     `count` elements: all that commsched_engine_master_range() says.
/// Threads:   that of the engine.
/// Blocks:    while the optimizer's state is read from its pool.
/// Errors:    INVALID_ARGUMENT     NULL, another count
///            NOT_FOUND            no such parameter; the optimizer keeps no
///                                 value of that name
///            FAILED_PRECONDITION  not drained since the last step; a frozen
///                                 parameter
///            or the session's first failure, or the pool's
/// Since:     0.3
COMMSCHED_API commsched_status_t commsched_engine_get_state(
    commsched_engine_t* engine, commsched_parameter_id_t parameter,
    const char* name, float* out_values, uint64_t count);

#ifdef __cplusplus
}
#endif

#endif  // COMMSCHED_CHECKPOINT_H_
