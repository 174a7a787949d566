#!/usr/bin/env python3
"""The command line: flags, messages, exit codes, --json and --trace."""

import json
import os
import resource
import unittest

import program

PROMISED_KEYS = """
steps loss val_loss tokens_per_s step_time_s compute_s comm_s exposed_comm_s
overlap_pct launches_per_step collectives_per_step peak_bytes_in_flight
cap_bytes peak_bytes_per_rank lower_bound_s ratio_to_lower_bound weights_sha256
exposed_mean_s exposed_by predicted_step_s peak_model_state_bytes
due_model_state_bytes arena_bytes micro_batches accumulated_bytes peak_live_bytes loss_scale skipped_steps
offloaded_bytes staging_bytes offloaded_gradient_bytes copy_s copy_exposed_s
""".split()


class CliTest(unittest.TestCase):

    def setUp(self):
        folder = program.temporary_folder()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.small = ["--data", program.text_file(self.folder), "--batch", 4,
                      "--seq", 16, "--steps", 5, "--val-batches", 1]

    def expect_usage_error(self, arguments, *parts):
        done = program.run(*arguments)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_help_lists_every_flag_and_succeeds(self):
        done = program.run("--help")
        self.assertEqual(done.returncode, 0)
        for flag in ("ranks zero model data steps batch seq micro-batches clip "
                     "lr bucket-bytes cap-bytes cap-launches schedule "
                     "deterministic link trace seed json help edge-bytes "
                     "partition-bytes priority arena-bytes max-live-bytes "
                     "persist-below accumulate-bytes optimizer layers sp "
                     "sp-chunks sp-blocking sp-dtype kv-heads dtype "
                     "reduce-dtype loss-scale recompute "
                     "offload-optimizer offload-staging-bytes "
                     "offload-gradients timeout allow-nan "
                     "version").split():
            self.assertIn("--" + flag, done.stdout)

    def test_a_batch_that_cannot_be_shared_names_flag_value_and_limit(self):
        self.expect_usage_error(["--batch", 10], "--batch is 10",
                                "multiple of --ranks x --micro-batches")
        self.expect_usage_error(["--batch", 8, "--micro-batches", 3], "4 x 3")

    def test_a_batch_beyond_the_model_s_names_flag_value_and_limit(self):
        self.expect_usage_error(["--batch", 1 << 20], "--batch is 1048576",
                                "at most 65536 x --ranks", "262144")

    def test_numbers_are_decimal_and_are_what_they_say(self):
        for flag, value, reason in [
                ("--steps", "0x3", "not a whole number"),
                ("--steps", "3e0", "not a whole number"),
                ("--seed", "9223372036854775808", "9223372036854775807"),
                ("--layers", "0x2", "not a whole number"),
                ("--lr", "0x1p-3", "not a number"),
                ("--lr", "1e-300", "1.17549e-38 to 3.40282e+38"),
                ("--clip", "nan", "not a number"),
                ("--clip", "1e-300", "1.17549e-38 to 3.40282e+38"),
                ("--clip", "1e+39", "1.17549e-38 to 3.40282e+38")]:
            with self.subTest((flag, value)):
                self.expect_usage_error([flag, value], flag, value, reason)

    def test_an_empty_value_is_a_usage_error(self):
        for flag in ("--save", "--resume", "--export", "--trace", "--data",
                     "--link", "--bucket-bytes", "--offload-optimizer",
                     "--offload-gradients"):
            with self.subTest(flag):
                self.expect_usage_error([flag, ""], flag, "''")

    def test_the_version_is_that_of_the_library(self):
        done = program.run("--version")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"^commsched-train \d+\.\d+\.\d+\n$")

    def test_staging_bytes_go_with_offloading(self):
        self.expect_usage_error(["--offload-staging-bytes", "1MiB"],
                                "--offload-staging-bytes is 1048576",
                                "--offload-optimizer")

    def test_offloaded_gradients_go_with_shards_of_them(self):
        self.expect_usage_error(["--zero", 1, "--offload-gradients", "pool"],
                                "--offload-gradients is 'pool'",
                                "--zero 2 or 3, which is 1")

    def test_a_type_of_exchanges_goes_with_shared_sequences(self):
        self.expect_usage_error(["--sp-dtype", "bf16"],
                                "--sp-dtype is bf16", "--sp 2 or more")

    def test_fp16_scales_the_loss_and_reports_it(self):
        result = program.run_json(*self.small, "--ranks", 2, "--dtype", "fp16")
        self.assertGreaterEqual(result["loss_scale"], 1)
        self.assertEqual(result["loss_scale"],
                         65536 / 2**result["skipped_steps"])

    def test_values_out_of_range_name_flag_value_and_limit(self):
        for flag, value, limit in [("--ranks", 0, "1 to"),
                                   ("--zero", 4, "0 to 3"),
                                   ("--max-live-bytes", 5, "--zero 3 only"),
                                   ("--persist-below", 6, "--zero 3 only"),
                                   ("--steps", 0, "1 to"),
                                   ("--seq", -5, "1 to"),
                                   ("--clip", -1, "0 or more"),
                                   ("--lr", -0.1, "0 or more"),
                                   ("--dtype", "fp8", "fp32, bf16 or fp16"),
                                   ("--reduce-dtype", "f", "fp32, bf16 or"),
                                   ("--sp-dtype", "f", "fp32, bf16 or fp16"),
                                   ("--loss-scale", 3, "power of two"),
                                   ("--loss-scale", -1, "power of two"),
                                   ("--optimizer", "adam", "adamw or sgd"),
                                   ("--sp", 5, "1 to 4"),
                                   ("--sp", 3, "must divide --ranks, 4"),
                                   ("--sp-chunks", 5, "1 to 4"),
                                   ("--schedule", "fast", "overlap or serial"),
                                   ("--priority", "high", "auto, on or off"),
                                   ("--layers", 0, "1 to 65536"),
                                   ("--model", "huge", "nano, mini and small")]:
            with self.subTest(flag):
                self.expect_usage_error([f"{flag}={value}"], flag, str(value),
                                        limit)

    def test_bad_units_say_what_is_accepted(self):
        self.expect_usage_error(["--bucket-bytes", "1MB"], "--bucket-bytes",
                                "'1MB'", "1MiB")
        self.expect_usage_error(["--cap-bytes", "much"], "--cap-bytes",
                                "'much'")
        self.expect_usage_error(["--link", "1Gbit"], "--link", "'1Gbit'",
                                "1Gbit,100us")

    def test_unknown_flags_and_words_are_usage_errors(self):
        self.expect_usage_error(["--rank", 4], "--rank")
        self.expect_usage_error(["train"], "train")
        self.expect_usage_error(["--steps", "many"], "--steps")

    def test_a_missing_file_is_a_failure_that_names_it(self):
        path = os.path.join(self.folder, "absent.txt")
        done = program.run("--data", path)
        self.assertEqual(done.returncode, 1)
        self.assertIn(path, done.stderr)

    def test_an_arena_that_is_too_small_is_a_failure(self):
        done = program.run(*self.small, "--arena-bytes", "4KiB")
        self.assertEqual(done.returncode, 1)
        self.assertIn("arena_bytes 4096 is too small", done.stderr)

    def test_activations_beyond_the_machine_are_a_failure(self):
        done = program.run(*self.small, "--batch", 1 << 16, "--seq", 1024,
                           "--ranks", 1)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "activations of 65536 sequences of 1024 "
                         "tokens take [0-9]+ bytes; the machine has [0-9]+")
        self.assertEqual(done.stdout, "")

    def test_activations_are_those_of_all_ranks(self):
        done = program.run(*self.small, "--batch", 4096 * 64, "--seq", 1024,
                           "--ranks", 4096)
        self.assertEqual(done.returncode, 1)
        self.assertIn("on each of 4096 ranks", done.stderr)

    # Stacks of 4 GiB in 14 GiB of addresses, one of them for the thread that says
    # what ranks wait for: the third rank gets no thread.
    def test_a_rank_without_a_thread_is_a_failure_and_nobody_waits(self):
        done = program.run(*self.small, timeout=60,
                           limits={resource.RLIMIT_STACK: 4 << 30,
                                   resource.RLIMIT_AS: 14 << 30})
        self.assertEqual(done.returncode, 1)
        self.assertIn("no thread for it; 2 of 4 ranks have one", done.stderr)

    # What a rank throws is its failure; the others are told and end.
    def test_a_rank_out_of_memory_is_a_failure_and_nobody_waits(self):
        done = program.run(*self.small, "--model", "small", "--ranks", 1,
                           timeout=60, limits={resource.RLIMIT_AS: 1 << 30})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "memory|thread")

    def test_json_is_the_last_line_and_has_every_promised_key(self):
        result = program.run_json(*self.small)
        for key in PROMISED_KEYS:
            self.assertIn(key, result)
        self.assertEqual(result["steps"], 5)
        self.assertEqual(len(result["weights_sha256"]), 64)
        self.assertGreater(result["step_time_s"], 0)
        self.assertGreater(result["process_peak_bytes"],
                           result["peak_bytes_per_rank"])
        self.assertEqual(result["ranks_per_process"], result["ranks"])
        self.assertGreater(result["lower_bound_s"], 0)
        self.assertAlmostEqual(
            result["ratio_to_lower_bound"],
            result["step_time_s"] / result["lower_bound_s"], places=6)
        self.assertAlmostEqual(result["tokens_per_s"],
                               4 * 16 / result["step_time_s"], places=3)

    def test_the_report_is_for_people_without_json(self):
        done = program.run(*self.small)
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("oneDNN", "step time", "exposed communication", "overlap",
                     "launches per step", "peak bytes in flight",
                     "lower bound"):
            self.assertIn(part, done.stdout)
        self.assertEqual(done.stderr, "")  # No progress bar in a pipe.

    def test_layers_are_added_to_the_model(self):
        four, six = (program.run_json(*self.small, *layers)["num_parameters"]
                     for layers in ([], ["--layers", 6]))
        self.assertEqual(six - four, 2 * 198272)  # Of 128 channels.

    def test_the_caps_hold(self):
        result = program.run_json(*self.small, "--bucket-bytes", "64KiB",
                                  "--cap-bytes", "300KiB")
        self.assertEqual(result["cap_bytes"], 300 * 1024)
        self.assertLessEqual(result["peak_bytes_in_flight"], 300 * 1024)
        free = program.run_json(*self.small, "--bucket-bytes", "64KiB")
        self.assertGreater(free["launches_per_step"], 10)

    def test_one_launch_at_a_time_bounds_bytes_by_the_heaviest(self):
        result = program.run_json(*self.small, "--bucket-bytes", "64KiB",
                                  "--cap-launches", 1, "--coalesce-bytes", 0)
        # The heaviest bucket: c_fc or mlp.c_proj, 128 x 512 floats.
        self.assertLessEqual(result["peak_bytes_in_flight"], 128 * 512 * 4)

    def test_stages_use_less_and_less_memory(self):
        memory = [
            program.run_json(*self.small, "--bucket-bytes", "256KiB", "--zero",
                             zero)["peak_bytes_per_rank"]
            for zero in (0, 1, 2)
        ]
        self.assertGreater(memory[0], memory[1])
        self.assertGreater(memory[1], memory[2])

    def test_zero_3_keeps_shards_and_what_is_alive_within_the_limit(self):
        state = [
            program.run_json(*self.small, "--bucket-bytes", "64KiB",
                             "--clip", 0, *flags)
            for flags in (["--zero", 0],
                          ["--zero", 3, "--max-live-bytes", "1536KiB"])
        ]
        self.assertGreater(state[1]["arena_bytes"], 0)
        self.assertLessEqual(state[1]["arena_bytes"], 1536 * 1024)
        self.assertEqual(
            state[1]["peak_model_state_bytes"],
            state[0]["peak_model_state_bytes"] // 4 + state[1]["arena_bytes"])

    def test_a_budget_trades_reductions_for_memory(self):
        window = ["--batch", 8, "--micro-batches", 2, "--zero", 2,
                  "--bucket-bytes", "64KiB"]
        free, none, some = [
            program.run_json(*self.small, *window, "--accumulate-bytes", budget)
            for budget in (0, 1, "1MiB")
        ]
        self.assertEqual(free["micro_batches"], 2)
        self.assertEqual(none["accumulated_bytes"], 0)
        self.assertGreater(some["accumulated_bytes"], 0)
        self.assertLessEqual(some["accumulated_bytes"], 1 << 20)
        self.assertEqual(none["collectives_per_step"],
                         free["collectives_per_step"] + free["num_buckets"])
        for other in (none, some):
            self.assertLess(other["peak_model_state_bytes"],
                            free["peak_model_state_bytes"])
            self.assertAlmostEqual(other["val_loss"], free["val_loss"],
                                   places=4)

    def test_describe_says_how_often_each_bucket_is_reduced(self):
        done = program.run(*self.small, "--ranks", 2, "--micro-batches", 2,
                           "--accumulate-bytes", 1, "--describe")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "bucket +bytes +parameters +reductions")
        self.assertRegex(done.stdout, "\n0 +[0-9]+ +[0-9]+ +2 +1\n")
        self.assertIn("reduce_scatter.0.1", done.stdout)

    def test_a_limit_below_what_a_module_needs_names_it(self):
        done = program.run(*self.small, "--zero", 3, "--max-live-bytes",
                           "1KiB")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "max_live_bytes 1024 is too small: backward of "
                         "module '.*' needs [0-9]+: [0-9]+ of gathered")

    def test_the_same_seed_gives_the_same_weights_and_loss(self):
        first = program.run_json(*self.small, "--deterministic")
        again = program.run_json(*self.small, "--deterministic")
        other = program.run_json(*self.small, "--deterministic", "--seed", 2)
        self.assertEqual(first["weights_sha256"], again["weights_sha256"])
        self.assertEqual(first["val_loss"], again["val_loss"])
        self.assertNotEqual(first["weights_sha256"], other["weights_sha256"])

    def test_launches_are_merged_where_links_make_that_worth_it(self):
        def train(*more, variables=None):
            return program.run_json(*self.small, "--deterministic", *more,
                                    variables=variables)

        def launches(message_ns, by_variable=False):
            path = os.path.join(self.folder, "links.json")
            with open(path, "w") as file:
                json.dump({"format": "commsched-links/1",
                           "host": {"latency_ns": 100, "bytes_per_s": 1e9,
                                    "message_ns": message_ns}}, file)
            done = (train(variables={"COMMSCHED_LINK_PROFILE": path})
                    if by_variable else train("--link-profile", path))
            return done["launches_per_step"]

        merged, apart = train(), train("--coalesce-bytes", 0)
        self.assertLess(merged["launches_per_step"], apart["launches_per_step"])
        self.assertEqual(merged["weights_sha256"], apart["weights_sha256"])
        self.assertLess(launches(100_000), launches(0))
        self.assertEqual(launches(100_000, by_variable=True), launches(100_000))
        self.assertEqual(launches(0, by_variable=True), launches(0))

    def test_a_profile_of_links_that_cannot_be_read_is_named(self):
        done = program.run(*self.small, "--link-profile", "/nowhere/l.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("profile of links, /nowhere/l.json: ", done.stderr)
        done = program.run(*self.small,
                           variables={"COMMSCHED_LINK_PROFILE": "/nowhere/v"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("profile of links, environment variable "
                      "COMMSCHED_LINK_PROFILE: /nowhere/v: ", done.stderr)
        self.expect_usage_error(
            ["--link-profile", "l.json", "--link", "1Gbit,100us"],
            "--link-profile 'l.json'", "only one of them")

    def test_any_number_of_ranks_and_micro_batches_trains_alike(self):
        losses = [
            program.run_json(*self.small, "--ranks", ranks, "--micro-batches",
                             micro)["val_loss"]
            for ranks, micro in [(1, 1), (2, 1), (4, 1), (2, 2), (1, 4)]
        ]
        for loss in losses:
            self.assertAlmostEqual(loss, losses[0], places=3)

    def test_sequences_that_ranks_share_train_alike(self):
        losses = [
            program.run_json(*self.small, "--ranks", ranks, "--sp", sp,
                             "--kv-heads", 2)["val_loss"]
            for ranks, sp in [(1, 1), (2, 2), (4, 2), (4, 4)]
        ]
        for loss in losses:
            self.assertAlmostEqual(loss, losses[0], places=3)

    def test_what_ranks_cannot_share_names_flag_value_and_limit(self):
        self.expect_usage_error(["--sp", 4, "--seq", 126], "--sp 4",
                                "sequence length is 126")
        self.expect_usage_error(["--ranks", 8, "--sp", 8], "--sp 8", "4 heads")
        self.expect_usage_error(["--kv-heads", 3], "kv_heads is 3", "4")

    def test_validation_can_come_every_few_steps(self):
        done = program.run(*self.small, "--eval-every", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        steps = [line for line in done.stdout.splitlines()
                 if line.startswith("step ") and "val_loss" in line]
        self.assertEqual([line.split(":")[0] for line in steps],
                         ["step 2", "step 4", "step 5"])

    def test_trace_writes_a_file_per_rank(self):
        folder = os.path.join(self.folder, "a", "traces")
        done = program.run(*self.small, "--trace", folder, "--ranks", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(folder)),
                         ["rank0.json", "rank1.json"])
        for rank in range(2):
            with open(os.path.join(folder, f"rank{rank}.json"),
                      encoding="utf-8") as file:
                trace = json.load(file)
            self.assertEqual(trace["distributedInfo"]["rank"], rank)
            names = {event.get("name", "") for event in trace["traceEvents"]}
            self.assertTrue(any("forward[0].h.0.attn" in n for n in names))
            self.assertTrue(any("ReduceScatter" in n for n in names))
            self.check_calls_and_arrows(trace["traceEvents"])

    # As Holistic Trace Analysis reads them: test/trace/kineto_rules_test.py.
    def check_calls_and_arrows(self, events):
        calls = {e["args"]["correlation"]: e for e in events
                 if e.get("cat") == "cuda_runtime"}
        kernels = {e["args"]["correlation"]: e for e in events
                   if e.get("cat") == "kernel"}
        self.assertEqual(set(calls), set(kernels))
        delays = [kernels[i]["ts"] - calls[i]["ts"] - 1 for i in calls]
        self.assertGreaterEqual(min(delays), 0)
        self.assertGreater(max(delays), 0)
        for name, least in [("ac2g", len(calls)), ("commsched wait", 1)]:
            begins, ends = ({e["id"]: e["ts"] for e in events
                             if e["ph"] == phase and e["name"] == name}
                            for phase in "sf")
            self.assertEqual(set(begins), set(ends))
            self.assertGreaterEqual(len(begins), least)
            for i, at in begins.items():
                self.assertLessEqual(at, ends[i])

    def test_a_trace_folder_that_cannot_be_made_is_a_failure(self):
        done = program.run(*self.small, "--trace",
                           self.small[1] + "/below_a_file")
        self.assertEqual(done.returncode, 1)
        self.assertIn("below_a_file", done.stderr)
        self.assertEqual(done.stdout, "")  # Before a step of training.

    def test_explain_prints_the_plan(self):
        done = program.run(*self.small, "--explain")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("reduce_scatter", done.stdout)

    def test_describe_prints_the_map(self):
        done = program.run(*self.small, "--describe")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("axis 'dp_shard', 4 ranks", done.stdout)
        self.assertIn("bytes sent per step and rank", done.stdout)

    def test_blame_names_launches_and_adds_up(self):
        done = program.run(*self.small, "--blame", "--link", "1Gbit,100us",
                           "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("mean of 4 steps", done.stdout)
        self.assertIn("reduce_scatter", done.stdout)
        result = json.loads(done.stdout.splitlines()[-1])
        self.assertGreater(result["exposed_mean_s"], 0)
        self.assertAlmostEqual(sum(result["exposed_by"].values()),
                               result["exposed_mean_s"], places=9)

    def test_edges_pieces_and_priority_keep_the_bits(self):
        plain = program.run_json(*self.small, "--deterministic")
        for flags in (["--edge-bytes", "16KiB"],
                      ["--partition-bytes", "32KiB"],
                      ["--partition-bytes", "32KiB", "--priority", "on"],
                      ["--priority", "off"]):
            with self.subTest(flags):
                other = program.run_json(*self.small, "--deterministic",
                                         *flags)
                self.assertEqual(other["weights_sha256"],
                                 plain["weights_sha256"])
        edges = program.run_json(*self.small, "--edge-bytes", "16KiB")
        self.assertGreater(edges["num_buckets"], plain["num_buckets"])
        pieces = program.run_json(*self.small, "--partition-bytes", "32KiB")
        self.assertGreater(pieces["launches_per_step"],
                           plain["launches_per_step"])

    def test_a_single_step_is_a_run(self):
        result = program.run_json(*self.small, "--steps", 1)
        self.assertEqual(result["steps"], 1)
        self.assertEqual(result["steady_steps"], 0)
        self.assertGreater(result["step_time_s"], 0)


if __name__ == "__main__":
    program.main(unittest)
