#!/usr/bin/env python3
"""small (85 M parameters) on 4 ranks, of which none has more than an eighth of
the parameters' bytes whole at any time."""

import resource
import unittest

import program

PARAMETERS = 85350912
LIVE_BYTES = 4 * PARAMETERS // 8
RANKS = 4


class LiveCapTest(unittest.TestCase):

    def test_small_trains_within_an_eighth_of_its_parameters(self):
        folder = program.temporary_folder()
        self.addCleanup(folder.cleanup)
        result = program.run_json(
            "--model", "small", "--ranks", RANKS, "--zero", 3,
            "--max-live-bytes", LIVE_BYTES, "--bucket-bytes", "1MiB",
            "--data", program.text_file(folder.name), "--batch", RANKS,
            "--seq", 16, "--steps", 4, "--val-batches", 1)
        self.assertEqual(result["num_parameters"], PARAMETERS)
        self.assertLess(result["loss"], 5.5)  # ln 256 of a model that is new.
        peak = result["peak_live_bytes"]
        # Of the process: all ranks' state, and once, at the end, all weights.
        resident = 1024 * resource.getrusage(
            resource.RUSAGE_CHILDREN).ru_maxrss
        state = RANKS * result["peak_bytes_per_rank"] + 4 * PARAMETERS
        print(f"live: {peak} bytes of {LIVE_BYTES}; process: {resident} bytes, "
              f"{resident - state} beside model state, activations and the "
              "weights read at the end")
        self.assertLessEqual(peak, LIVE_BYTES)
        # The backward of an mlp needs this much.
        self.assertGreater(peak, LIVE_BYTES // 2)
        self.assertLessEqual(resident, state + (256 << 20))
        self.assertLess(result["peak_model_state_bytes"],
                        16 * PARAMETERS // RANKS + LIVE_BYTES + (8 << 20))


if __name__ == "__main__":
    program.main(unittest)
