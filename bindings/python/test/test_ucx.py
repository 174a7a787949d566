"""Which UCX a process has, and what becomes of ranks with two versions of it.

COMMSCHED_TEST_OTHER_UCX is a folder with another UCX than the system's
(scripts/newest-ucx); without it tests that need one are left out.
"""

import os
import pathlib
import socket

import pytest

import commsched as cs
from commsched import _ucx

_JOB = """
import array, commsched as cs
try:
    context = cs.Context.join()
    channel = cs.Channel(context)
    channel.all_reduce(array.array("f", [1])).wait()
    print("summed")
except cs.CommschedError as error:
    print(error)
"""


def has_ucx():
    backends = cs.library_info()["plugins"]["backend"]
    return any(backend["name"] == "ucx" for backend in backends)


@pytest.fixture
def other_ucx():
    folder = os.environ.get("COMMSCHED_TEST_OTHER_UCX")
    if not folder or not has_ucx():
        pytest.skip("needs the backend ucx and COMMSCHED_TEST_OTHER_UCX")
    return pathlib.Path(folder) / "libucp.so.0"


def test_a_file_that_is_named_has_to_be_there():
    # A process that has one already looks for no other.
    with pytest.raises(cs.LibraryError, match="COMMSCHED_UCX_LIB is .*none/libucp.so"):
        _ucx.load_beside(pathlib.Path("none/libucp.so"))


def test_only_the_backend_ucx_loads_it():
    _ucx.prepare("inproc", {"COMMSCHED_UCX_LIB": "none/libucp.so"})


def test_the_ucx_that_is_named_is_the_one_of_the_process(python, other_ucx):
    process = python("""
import commsched as cs
cs.Context.join().close()
print({line.split()[-1] for line in open("/proc/self/maps") if "libucp" in line})
""", COMMSCHED_UCX_LIB=str(other_ucx))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert str(other_ucx.parent) in out


def test_ranks_with_two_versions_are_told_both(python, other_ucx):
    with socket.socket() as free:  # Held, so that no other job meets here.
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        ranks = [python(_JOB, COMMSCHED_RANK=str(rank), COMMSCHED_WORLD_SIZE="2",
                        COMMSCHED_LOCAL_RANK=str(rank), COMMSCHED_LOCAL_WORLD_SIZE="2",
                        MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
                        COMMSCHED_UCX_LOCAL="net",
                        **({"COMMSCHED_UCX_LIB": str(other_ucx)} if rank else {}))
                 for rank in range(2)]
        told = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert any("has UCX 1." in each for each in told), told
    assert not any("summed" in each for each in told), told
