"""Recordings: eager steps that become a plan."""

import array
import signal

import pytest

import commsched as cs


def floats(*values):
    return array.array("f", values)


class Program:
    """One bucket in memory that stays, one in memory that moves."""

    def __init__(self, context, **options):
        self.grads = floats(0, 0)
        self.recording = r = cs.Recording(context, [context.group(axis="dp")],
                                          **options)
        self.bucket = r.buffer("grads", self.grads)
        self.moving = r.late_buffer("moving", "f32", 2)
        self.backward = r.compute("backward", writes=[self.bucket])
        self.reduce = r.collective("reduce", "all_reduce", input=self.bucket)
        self.reduce_moving = r.collective("reduce_moving", "all_reduce",
                                          input=self.moving)
        self.update = r.compute("update", reads=[self.bucket])

    def step(self, value):
        moving = floats(value, 0)
        with self.recording.step():
            with self.recording.op(self.backward):
                self.grads[0] = value
            self.recording.submit(self.reduce)
            self.recording.submit(self.reduce_moving, {self.moving: moving})
            self.recording.wait(self.reduce_moving)
            with self.recording.op(self.update):
                seen = self.grads[0], moving[0]
        return seen


def test_steps_are_recorded_then_replayed(on_ranks):
    def body(context):
        program = Program(context)
        with program.recording:
            seen = [program.step(context.rank + step) for step in range(5)]
            return seen, program.recording.info, program.recording.plan().info

    for seen, info, plan in on_ranks(2, body):
        assert seen == [(1 + 2 * step, 1 + 2 * step) for step in range(5)]
        assert (info.phase, info.steps_recorded, info.plans) == (
            cs.Phase.FROZEN, 2, 1)
        assert plan["num_collectives"] >= 2


def test_memory_that_stays_is_not_copied(on_ranks):
    def body(context):
        program = Program(context)
        with program.recording:
            for step in range(3):
                program.step(1)
            return program.grads.buffer_info()[0], program.grads[0]

    for _, value in on_ranks(2, body):
        assert value == 2


def test_a_buffer_moves_between_steps(on_ranks):
    def body(context):
        program = Program(context)
        with program.recording:
            for step in range(3):
                program.step(1)
            program.grads = floats(0, 0)
            program.recording.move_buffer(program.bucket, program.grads)
            return [program.step(4) for _ in range(3)]

    assert on_ranks(2, body) == [[(8, 8)] * 3] * 2


def test_what_is_removed_may_be_declared_anew(on_ranks):
    def body(context):
        program = Program(context)
        r = program.recording
        with r:
            program.step(1)
            r.remove_op(program.reduce_moving)
            r.remove_buffer(program.moving)
            program.moving = r.late_buffer("moving", "f32", 2)
            program.reduce_moving = r.collective("reduce_moving", "all_reduce",
                                                 input=program.moving, op="max")
            return [program.step(context.rank + 1) for _ in range(3)]

    assert on_ranks(2, body) == [[(3, 2)] * 3] * 2


def test_an_op_that_is_refused_is_named(on_ranks):
    def body(context):
        program = Program(context)
        with program.recording as r:
            r.step_begin()
            with pytest.raises(cs.FailedPreconditionError) as caught:
                r.submit(program.reduce_moving)
            r.abort("over")
            return caught.value.op

    assert on_ranks(1, body) == ["reduce_moving"]


def test_a_submission_with_counts_of_its_own(on_ranks):
    def body(context):
        r = cs.Recording(context, [context.group(axis="dp")])
        part, whole = r.late_buffer("part", "f32", 2), r.late_buffer("whole", "f32", 4)
        gather = r.collective("gather", "all_gather", input=part, output=whole,
                              counts=[2, 2], own_counts=True)
        mine = floats(*([context.rank + 1] * (context.rank + 1)))
        target = floats(0, 0, 0)
        with r:
            with r.step():
                r.submit(gather, {part: cs.Bound(mine, [1, 2]),
                                  whole: cs.Bound(target, [1, 2])})
                r.wait(gather)
        return list(target)

    assert on_ranks(2, body) == [[1, 2, 2]] * 2


def test_an_exception_in_a_step_aborts_it_for_all(on_ranks):
    def body(context):
        program = Program(context)
        with program.recording as r:
            if context.rank == 0:
                with pytest.raises(cs.AbortedError, match="no data"):
                    while True:
                        program.step(1)
                return None
            program.step(1)
            with r.step():
                raise LookupError("no data")

    with pytest.raises(LookupError):
        on_ranks(2, body)


def test_a_step_that_waits_for_others_hears_control_c(python):
    process = python("""
import array, commsched as cs
context = cs.World(2).context(0)
recording = cs.Recording(context, [context.group()])
recording.buffer("b", array.array("f", [1]))
print("waiting", flush=True)
recording.step_begin()
""")
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, err


def test_completions_tell_of_each_submission(on_ranks):
    def body(context):
        with cs.Completions() as completions:
            program = Program(context, completions=completions, key=4)
            told = []
            with program.recording as recording:
                for step in range(4):
                    program.step(step)
                    while len(told) < 2 * (step + 1):
                        told += completions.next(timeout=20)
                names = [(recording.op_names[each.user], each.request)
                         for each in told]
                recording.release(program.bucket)
                with pytest.raises(cs.NotFoundError, match="buffer 99"):
                    recording.release(99)
            return names, {each.key for each in told}, {each.status for each in told}

    for names, keys, statuses in on_ranks(2, body):
        assert sorted(request for _, request in names) == list(range(1, 9))
        assert sorted(name for name, _ in names) == ["reduce"] * 4 + [
            "reduce_moving"] * 4
        assert (keys, statuses) == ({4}, {cs.Status.OK})
