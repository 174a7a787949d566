"""`python -m commsched report SCRIPT ARGS`, as ranks run it. Needs PyTorch."""

import json
import multiprocessing
import signal
import sys

import pytest

torch = pytest.importorskip("torch")

from commsched.__main__ import main  # noqa: E402

torch.set_num_threads(1)

SCRIPT = """
import os, signal, sys
import torch
import torch.distributed as dist

rank, store, wish = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
dist.init_process_group("gloo", store=dist.FileStore(store, 2), rank=rank, world_size=2)
parameter = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for step in range(4):
    dist.all_reduce(torch.ones(100))
    parameter.square().backward()
    optimizer.step()
if wish == ["--exit"]:
    sys.exit(3)
if wish == ["--raise"] and rank == 1:
    raise ValueError("bad batch")
if wish == ["--terminated"]:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    dist.all_reduce(torch.ones(1))
"""


def _rank(rank, folder, wish):
    sys.stdout = open(folder / f"out{rank}", "w")
    sys.stderr = open(folder / f"err{rank}", "w")
    files = ["--json", folder / "json", "--html", folder / "html"]
    script = [folder / "train.py", rank, folder / "store", *wish]
    arguments = ["report", *files, "--trace", folder / "traces", *script]
    sys.exit(main([str(a) for a in arguments]))


def run(folder, *wish):
    (folder / "train.py").write_text(SCRIPT)
    context = multiprocessing.get_context("fork")
    ranks = [
        context.Process(target=_rank, args=(rank, folder, wish))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    return [process.exitcode for process in ranks], (folder / "out0").read_text()


def test_the_script_runs_with_its_arguments_and_rank_0_reports(tmp_path):
    codes, text = run(tmp_path, "--no-such-option-of-the-report")
    assert codes == [0, 0]
    assert text.startswith("commsched report: 2 ranks, 2 steps\n")
    assert (tmp_path / "out1").read_text() == ""
    document = json.loads((tmp_path / "json").read_text())
    assert document["format"] == "commsched-report/1"
    assert document["summary"]["groups"][0]["bytes"] == 400
    assert document["prediction"]["collectives"] == 1
    assert "all_reduce 1 of default_pg" in (tmp_path / "html").read_text()
    traces = sorted(path.name for path in (tmp_path / "traces").iterdir())
    assert traces == ["rank_0.json", "rank_1.json"]


def test_the_script_s_exit_code_is_kept(tmp_path):
    codes, text = run(tmp_path, "--exit")
    assert codes == [3, 3] and "commsched report: 2 ranks" in text


def test_a_script_that_fails_is_reported_on_and_fails(tmp_path):
    codes, text = run(tmp_path, "--raise")
    assert codes == [0, 1]
    assert "rank 1 ended with ValueError: bad batch" in text
    assert "ValueError: bad batch" in (tmp_path / "err1").read_text()


def test_a_rank_that_is_terminated_still_hands_in_its_trace(tmp_path):
    codes, text = run(tmp_path, "--terminated")
    assert codes[1] == 128 + signal.SIGTERM
    assert "rank 1 ended with Terminated: 143" in text
