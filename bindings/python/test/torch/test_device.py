"""Calls on CUDA tensors, on stand-ins of CUDA and NCCL."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest
import torch

HERE = pathlib.Path(__file__).resolve().parent
NUM_CHECKS = 9


def test_calls_on_the_device() -> None:
    fake = os.environ.get("COMMSCHED_FAKE_GPU")
    if fake is None:
        pytest.skip("there are no stand-ins: the build found no headers of CUDA")
    if torch.version.cuda is None:
        pytest.skip("this PyTorch has no NCCL in whose place the stand-in could be")
    wheel = importlib.metadata.distribution(
        f"nvidia-nccl-cu{torch.version.cuda.split('.')[0]}")
    major, minor, patch = (int(part) for part in wheel.version.split(".")[:3])
    # The stand-in comes first, and also by NCCL's name. Then comes NCCL itself, which
    # has all functions that PyTorch wants to find.
    preloaded = [fake, os.environ["COMMSCHED_FAKE_NCCL"],
                 str(wheel.locate_file("nvidia/nccl/lib/libnccl.so.2"))]
    environment = {
        **os.environ, "COMMSCHED_CUDART_LIB": fake, "COMMSCHED_NCCL_LIB": fake,
        "FAKE_NCCL_VERSION": f"{major}{minor:02}{patch:02}",
        "LD_PRELOAD": ":".join(preloaded)}
    done = subprocess.run([sys.executable, "-B", HERE / "device_ranks.py"],
                          env=environment, capture_output=True, text=True, timeout=240,
                          check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert done.stdout.count("ok ") == NUM_CHECKS, said
