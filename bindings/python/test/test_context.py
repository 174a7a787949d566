"""Worlds and contexts: threads, processes, and worlds that are split off."""

import array
import socket

import pytest

import commsched as cs


def test_each_rank_knows_itself(on_ranks):
    assert on_ranks(2, lambda c: (c.rank, c.size, c.local_size, c.backend, c.device[0])
                    ) == [(r, 2, 2, "inproc", cs.DeviceKind.HOST) for r in range(2)]


def test_threads_of_a_process_are_on_one_host(on_ranks):
    assert on_ranks(2, lambda c: c.hosts()) == [[0, 0]] * 2


def test_the_default_profile_of_links(on_ranks):
    assert on_ranks(1, lambda c: c.link_profile().network.bytes_per_s) == [1.25e9]


def test_a_rank_has_one_context():
    world = cs.World(1)
    with world.context(0):
        with pytest.raises(cs.AlreadyExistsError, match="rank 0"):
            world.context(0)
    world.context(0).close()


def test_a_context_that_goes_frees_its_rank():
    world = cs.World(1)
    context = world.context(0)
    del context
    world.context(0)


def test_a_mesh_gives_groups_by_axis(on_ranks):
    def body(context):
        with context.mesh({"pp": 2, "dp": 2}) as mesh:
            return mesh.group("dp").ranks, mesh.group("pp").ranks

    assert on_ranks(4, body)[2] == ((2, 3), (0, 2))


def test_an_axis_that_is_not_there_is_named(on_ranks):
    def body(context):
        with pytest.raises(cs.NotFoundError, match="tp") as caught:
            context.mesh({"dp": 2}).group("tp")
        return caught.value.group

    assert on_ranks(2, body) == ["tp"] * 2


def test_a_world_is_split(on_ranks):
    def body(context):
        if context.rank == 1:
            return None
        with context.split([2, 0], "ends") as ends, cs.Channel(ends) as channel:
            values = array.array("i", [ends.rank])
            channel.broadcast(values, root=0).wait()
            return ends.rank, ends.size, values[0]

    assert on_ranks(3, body) == [(1, 2, 0), None, (0, 2, 0)]


def test_ranks_that_differ_are_named(on_ranks):
    def body(context):
        assert context.agree("settings", {"rate": 0.1}) == 0
        with pytest.raises(cs.FailedPreconditionError,
                           match="rate is 0 on rank 0 and 1 on rank 1"):
            context.agree("settings", {"rate": context.rank})

    on_ranks(2, body)


def test_the_first_failure_that_is_a_ranks_own_is_raised(on_ranks):
    def body(context):
        if context.rank == 1:
            raise OSError("disk")
        raise cs.errors.AbortedError("rank 1 is gone")

    with pytest.raises(OSError, match="disk"):
        on_ranks(2, body)


def test_a_job_of_one_needs_no_environment(python):
    process = python("import commsched as cs; c = cs.Context.join(backend='null');"
                     "print(c.rank, c.size)")
    out, err = process.communicate()
    assert (out, err, process.returncode) == ("0 1\n", "", 0)


def test_rank_and_size_are_given_both(python):
    with pytest.raises(ValueError, match="rank is 0 and size is None"):
        cs.Context.join(rank=0)


_JOB = """
import array, commsched as cs, json
context = cs.Context.join(backend="BACKEND")
values = array.array("d", [context.rank + 1.0])
channel = cs.Channel(context)
channel.all_reduce(values).wait()
print(json.dumps([context.rank, context.size, values[0]]), flush=True)
"""


def _has_ucx():
    backends = cs.library_info()["plugins"]["backend"]
    return any(backend["name"] == "ucx" for backend in backends)


def test_processes_meet_by_what_the_environment_says(python, tmp_path):
    if not _has_ucx():
        pytest.skip("this build has no backend ucx")
    script = tmp_path / "job.py"
    script.write_text(_JOB.replace("BACKEND", "ucx"))
    process = python("import runpy; runpy.run_module('commsched', run_name='__main__')",
                     "run", "-n", "2", "--", str(script))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert sorted(out.splitlines()) == ["[0] [0, 2, 3.0]", "[1] [1, 2, 3.0]"]


def test_nothing_of_the_library_is_released_in_a_child(python):
    process = python("""
import os, commsched as cs
context = cs.World(1).context(0)
channel = cs.Channel(context)
pid = os.fork()
if pid == 0:
    channel.close(); context.close()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
channel.barrier().wait()
print("alive")
""")
    out, err = process.communicate()
    assert (out, process.returncode) == ("alive\n", 0), err


def test_a_program_that_ends_with_an_exception_waits_for_nobody(python):
    process = python("""
import commsched as cs
world = cs.World(2)
contexts = [world.context(r) for r in range(2)]
import threading
made = [None, None]
def make(r): made[r] = cs.Channel(contexts[r])
threads = [threading.Thread(target=make, args=(r,)) for r in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
made[0].recv(bytearray(1), 1)  # Never sent.
raise SystemError("boom")
""")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "boom" in err


def test_a_process_that_an_exception_ends_does_not_keep_the_others_waiting(python):
    if not _has_ucx():
        pytest.skip("this build has no backend ucx")
    code = """
import commsched as cs
with cs.Context.join() as context:
    context.agree("ready", {})
    if context.rank == 1:
        raise OSError("disk")
    try:
        cs.Channel(context)
    except cs.AbortedError as error:
        print(error.rank)
"""
    with socket.socket() as free:  # Held, so that no other job meets here.
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        ranks = [python(code, COMMSCHED_RANK=str(rank), COMMSCHED_WORLD_SIZE="2",
                        COMMSCHED_LOCAL_RANK=str(rank), COMMSCHED_LOCAL_WORLD_SIZE="2",
                        MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
                 for rank in range(2)]
        told = [rank.communicate(timeout=45) for rank in ranks]
    assert told[0][0] == "1\n", told
    assert "disk" in told[1][1] and ranks[1].returncode == 1, told
