#!/usr/bin/env python3
"""Checkpoints: --save, --save-every, --resume, --stop-after, --export."""

import contextlib
import ctypes
import hashlib
import json
import os
import struct
import subprocess
import time
import unittest

import program


def weights_sha256(path):
    """What the trainer calls weights_sha256, of a safetensors file."""
    with open(path, "rb") as file:
        content = file.read()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + length])
    data = content[8 + length:]
    header.pop("__metadata__")
    digest = hashlib.sha256()
    for name in sorted(header):
        begin, end = header[name]["data_offsets"]
        digest.update(data[begin:end])
    return digest.hexdigest(), header


def xxh3(content):
    """The library's checksum, as an index has it."""
    function = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return f"{function(content, len(content)):016x}"


def forget(path, keys):
    """Takes metadata out of an index, as if it had never been kept."""
    with open(path, encoding="utf-8") as file:
        root = json.load(file)
    for key in keys:
        del root["checkpoint"]["metadata"][key]
    content = json.dumps(root["checkpoint"], separators=(",", ":"),
                         sort_keys=True, ensure_ascii=False)
    root["xxh3"] = xxh3(content.encode())
    with open(path, "w", encoding="utf-8") as file:
        json.dump(root, file)


def gpt2_shapes(config):
    """The tensors of transformers' GPT2LMHeadModel, tied ones once."""
    c, inner = config["n_embd"], config["n_inner"]
    shapes = {"wte.weight": [config["vocab_size"], c],
              "wpe.weight": [config["n_positions"], c],
              "ln_f.weight": [c], "ln_f.bias": [c]}
    for layer in range(config["n_layer"]):
        for name, shape in [("ln_1", [c]), ("attn.c_attn", [c, 3 * c]),
                            ("attn.c_proj", [c, c]), ("ln_2", [c]),
                            ("mlp.c_fc", [c, inner]),
                            ("mlp.c_proj", [inner, c])]:
            shapes[f"h.{layer}.{name}.weight"] = shape
            shapes[f"h.{layer}.{name}.bias"] = shape[-1:]
    return shapes


class CheckpointTest(unittest.TestCase):

    def setUp(self):
        folder = program.temporary_folder()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.small = ["--data", program.text_file(self.folder), "--batch", 4,
                      "--seq", 16, "--steps", 6, "--val-batches", 1,
                      "--deterministic"]

    def path(self, name):
        return os.path.join(self.folder, name)

    def expect_failure(self, code, arguments, *parts):
        done = program.run(*self.small, *arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_half_and_half_is_the_whole_to_the_bit_in_every_stage(self):
        for zero in (0, 1, 2, 3):
            with self.subTest(zero=zero):
                flags = [*self.small, "--zero", zero, "--micro-batches",
                         zero % 2 + 1, "--ranks", 2]
                folder = self.path(f"half{zero}")
                whole = program.run_json(*flags)
                half = program.run_json(*flags, "--save", folder,
                                        "--stop-after", 3)
                self.assertEqual(half["steps"], 3)
                self.assertNotEqual(half["weights_sha256"],
                                    whole["weights_sha256"])
                rest = program.run_json(*flags, "--resume", folder)
                self.assertEqual(rest["first_step"], 3)
                self.assertEqual(rest["steps"], 6)
                self.assertEqual(rest["weights_sha256"],
                                 whole["weights_sha256"])
                self.assertEqual(rest["val_loss"], whole["val_loss"])
                self.assertEqual(rest["loss"], whole["loss"])

    def test_another_stage_and_bucket_size_go_on_with_the_same_bits(self):
        folder = self.path("save")
        whole = program.run_json(*self.small, "--zero", 1)
        program.run_json(*self.small, "--zero", 3, "--save", folder,
                         "--stop-after", 2)
        rest = program.run_json(*self.small, "--zero", 2, "--resume", folder,
                                "--bucket-bytes", "64KiB")
        self.assertEqual(rest["weights_sha256"], whole["weights_sha256"])

    def test_another_number_of_ranks_goes_on_with_the_same_curve(self):
        folder = self.path("save")
        whole = program.run_json(*self.small)
        program.run_json(*self.small, "--save", folder, "--stop-after", 3)
        for ranks, zero in ((1, 0), (2, 3), (4, 1)):
            rest = program.run_json(*self.small, "--resume", folder, "--ranks",
                                    ranks, "--zero", zero)
            self.assertAlmostEqual(rest["val_loss"], whole["val_loss"],
                                   places=3)
            self.assertAlmostEqual(rest["loss"], whole["loss"], places=3)

    def test_saving_changes_no_bit_and_keeps_the_last(self):
        folder = self.path("save")
        plain = program.run_json(*self.small)
        saved = program.run_json(*self.small, "--save", folder, "--save-every",
                                 2, "--eval-every", 2)
        self.assertEqual(saved["weights_sha256"], plain["weights_sha256"])
        self.assertEqual(saved["num_saves"], 3)
        names = sorted(os.listdir(folder))
        self.assertEqual(len(names), 5)
        self.assertEqual(names[0], "index.json")
        for name in names[1:]:
            self.assertTrue(name.startswith("step-00000006-"), name)

    def test_an_export_has_the_weights_under_their_names(self):
        folder = self.path("save")
        result = program.run_json(*self.small, "--zero", 3, "--save", folder,
                                  "--export", self.path("model.safetensors"))
        digest, header = weights_sha256(self.path("model.safetensors"))
        self.assertEqual(digest, result["weights_sha256"])
        self.assertEqual(header["wte.weight"]["shape"], [256, 128])
        self.assertEqual(header["h.3.attn.c_attn.weight"]["shape"], [128, 384])
        self.assertEqual(header["ln_f.bias"]["dtype"], "F32")
        done = program.run("--resume", folder, "--export",
                           self.path("again.safetensors"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(weights_sha256(self.path("again.safetensors"))[0],
                         digest)

    def test_an_export_to_a_folder_is_one_that_transformers_loads(self):
        folder = self.path("hf")
        result = program.run_json(*self.small, "--layers", 2, "--save",
                                  self.path("save"), "--export", folder)
        self.assertEqual(sorted(os.listdir(folder)),
                         ["config.json", "model.safetensors"])
        digest, header = weights_sha256(os.path.join(folder,
                                                     "model.safetensors"))
        self.assertEqual(digest, result["weights_sha256"])
        with open(os.path.join(folder, "config.json"),
                  encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual(config["architectures"], ["GPT2LMHeadModel"])
        self.assertEqual(config["n_embd"] % config["n_head"], 0)
        self.assertEqual({name: each["shape"] for name, each in header.items()
                          if name != "__metadata__"}, gpt2_shapes(config))
        # The checkpoint alone knows the sizes, whatever --model says.
        done = program.run("--resume", self.path("save"), "--model", "small",
                           "--export", self.path("again"))
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as first, \
                    open(os.path.join(self.path("again"), name),
                         "rb") as second:
                self.assertEqual(first.read(), second.read(), name)

    def test_grouped_queries_have_no_architecture_of_transformers(self):
        self.expect_failure(2, ["--kv-heads", 2, "--save", self.path("save"),
                                "--export", self.path("hf")],
                            "2 heads of keys and values and 4 of queries",
                            "--kv-heads", ".safetensors")
        program.run_json(*self.small, "--kv-heads", 2, "--save",
                         self.path("save"), "--export",
                         self.path("m.safetensors"))
        self.expect_failure(1, ["--resume", self.path("save"), "--export",
                                self.path("hf")], "--kv-heads")
        self.assertFalse(os.path.exists(self.path("hf")))

    def test_what_cannot_be_resumed_is_said(self):
        folder = self.path("save")
        self.expect_failure(1, ["--resume", folder], "no checkpoint in",
                            folder)
        program.run_json(*self.small, "--save", folder, "--stop-after", 2)
        self.expect_failure(1, ["--resume", folder, "--seed", 2],
                            "'trainer.seed'", "is 1; this run has 2")
        other = program.text_file(self.folder, size=50000)
        self.expect_failure(1, ["--resume", folder, "--data", other],
                            "'trainer.data_sha256'")
        program.text_file(self.folder)
        self.expect_failure(1, ["--resume", folder, "--stop-after", 2],
                            "has taken 2 steps; this run ends after 2")
        self.expect_failure(1, ["--resume", folder, "--model", "mini",
                                "--force"],
                            "tensor 'wte.weight' of the checkpoint has shape "
                            "[256,128]; the parameter has [256,384]")
        part = [name for name in os.listdir(folder) if "rank-00001" in name][0]
        with open(os.path.join(folder, part), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last[0] ^ 1]))
        self.expect_failure(1, ["--resume", folder], part, "checksum")

    def test_another_setting_of_the_run_is_named_unless_forced(self):
        folder = self.path("save")
        program.run_json(*self.small, "--save", folder, "--stop-after", 2)
        for arguments, key, saved, mine in (
                (["--model", "mini"], "model", "nano", "mini"),
                (["--batch", 8], "batch", "4", "8"),
                (["--seq", 8], "seq", "16", "8"),
                (["--micro-batches", 1, "--batch", 12], "batch", "4", "12"),
                (["--ranks", 2, "--micro-batches", 2], "micro_batches", "1",
                 "2"),
                (["--optimizer", "sgd"], "optimizer",
                 "adamw, beta1 0.9, beta2 0.95, epsilon 1e-08, weight decay "
                 "0.1", "sgd, momentum 0.9, weight decay 0.1"),
                (["--clip", 0.5], "clip", "1", "0.5"),
                (["--lr", 0.1], "lr", "0.003", "0.1"),
                (["--steps", 7], "steps", "6", "7"),
                (["--dtype", "bf16"], "dtype", "fp32", "bf16"),
                (["--reduce-dtype", "bf16"], "reduce_dtype", "fp32",
                 "bf16")):
            with self.subTest(key=key, mine=mine):
                self.expect_failure(1, ["--resume", folder, *arguments],
                                    f"'trainer.{key}' of the checkpoint in "
                                    f"'{folder}' is {saved}; this run has "
                                    f"{mine}; --force goes on")
        done = program.run(*self.small, "--resume", folder, "--lr", 0.1,
                           "--seed", 2, "--force")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("'trainer.lr' of the checkpoint", done.stderr)
        self.assertIn("'trainer.seed' of the checkpoint", done.stderr)

    def test_a_checkpoint_of_a_version_that_kept_less_is_resumed(self):
        folder = self.path("save")
        program.run_json(*self.small, "--save", folder, "--stop-after", 2)
        forget(os.path.join(folder, "index.json"), ["trainer.batch",
                                                    "trainer.lr"])
        done = program.run(*self.small, "--resume", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("did not keep trainer.batch, trainer.lr: not compared",
                      done.stderr)
        forget(os.path.join(folder, "index.json"), ["trainer.seed"])
        self.expect_failure(1, ["--resume", folder],
                            "has no 'trainer.seed'; the trainer did not save")

    def test_a_new_run_does_not_replace_the_checkpoint_of_another(self):
        folder = self.path("save")
        first = program.run_json(*self.small, "--save", folder)
        names = sorted(os.listdir(folder))
        self.expect_failure(1, ["--save", folder, "--seed", 2],
                            "has the checkpoint of step 6 of run", folder,
                            "--overwrite")
        self.assertEqual(sorted(os.listdir(folder)), names)
        again = program.run_json(*self.small, "--save", folder, "--seed", 2,
                                 "--overwrite")
        self.assertNotEqual(again["weights_sha256"], first["weights_sha256"])
        self.assertEqual(len(os.listdir(folder)), len(names))
        self.assertFalse(set(os.listdir(folder)) - {"index.json"} &
                         set(names))

    def test_a_second_run_in_a_folder_is_refused_and_names_the_first(self):
        folder = self.path("save")
        arguments = [*self.small, "--save", folder, "--save-every", 1]
        with subprocess.Popen(
                [program.program(), *map(str, arguments), "--steps", "100000"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as first:
            self.addCleanup(first.kill)
            deadline = time.monotonic() + 60
            while not os.path.exists(os.path.join(folder, "index.json")):
                self.assertLess(time.monotonic(), deadline)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.fail(f"exit code {first.wait(timeout=0.01)}")
            self.expect_failure(1, ["--save", folder],
                                f"(process {first.pid} on ", "saves to folder")
            for _ in range(20):  # Beside it, whatever it replaces.
                done = program.run("--resume", folder, "--export",
                                   self.path("beside.safetensors"))
                self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIsNone(first.poll())
            first.kill()
        program.run_json(*self.small, "--save", folder, "--overwrite")

    def test_nothing_that_is_printed_lands_in_a_file(self):
        folder = self.path("save")
        arguments = [*self.small, "--save", folder, "--save-every", 1,
                     "--eval-every", 1]
        done = subprocess.run(
            ["sh", "-c", 'exec "$@" >&- 2>&-', "sh", program.program(),
             *map(str, arguments)], check=False)
        self.assertIn(done.returncode, (0, 1))
        plain = program.run_json(*self.small)
        done = program.run("--resume", folder, "--export",
                           self.path("m.safetensors"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(weights_sha256(self.path("m.safetensors"))[0],
                         plain["weights_sha256"])

    def test_the_digest_is_of_the_masters_also_with_16_bits(self):
        for zero, ranks in ((0, 1), (1, 2), (3, 2)):
            with self.subTest(zero=zero):
                result = program.run_json(
                    *self.small, "--dtype", "bf16", "--zero", zero, "--ranks",
                    ranks, "--save", self.path(f"save{zero}"), "--export",
                    self.path("m.safetensors"))
                self.assertEqual(weights_sha256(self.path("m.safetensors"))[0],
                                 result["weights_sha256"])

    def test_help_lists_the_flags(self):
        done = program.run("--help")
        for flag in ("save save-every resume stop-after export overwrite "
                     "force").split():
            self.assertIn("--" + flag, done.stdout)

    def test_flags_that_need_each_other_are_usage_errors(self):
        self.expect_failure(2, ["--save-every", 2],
                            "--save-every is 2; it goes with --save")
        self.expect_failure(2, ["--export", "x"],
                            "--export is 'x'; it goes with --save or --resume")
        self.expect_failure(2, ["--overwrite"],
                            "--overwrite goes with --save")
        self.expect_failure(2, ["--force"], "--force goes with --resume")
        self.expect_failure(2, ["--stop-after", 7],
                            "--stop-after is 7; it must be 0 to 6")

    def test_a_folder_that_cannot_be_made_is_a_failure(self):
        self.expect_failure(1, ["--save", self.small[1] + "/below_a_file"],
                            "--save: cannot create the folder",
                            "below_a_file")


if __name__ == "__main__":
    program.main(unittest)
