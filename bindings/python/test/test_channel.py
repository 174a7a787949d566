"""Channels: what is submitted happens, on the caller's memory."""

import array
import threading

import pytest

import commsched as cs


def floats(*values):
    return array.array("f", values)


def test_an_all_reduce_is_in_place(on_ranks):
    def body(context):
        values = floats(context.rank + 1, 10)
        at = values.buffer_info()[0]
        with cs.Channel(context) as channel:
            channel.all_reduce(values).wait()
        return list(values), values.buffer_info()[0] == at

    assert on_ranks(3, body) == [([6, 30], True)] * 3


@pytest.mark.parametrize("op, result", [
    ("sum", 6), ("avg", 2), ("min", 1), ("max", 3), ("prod", 6)])
def test_reductions(on_ranks, op, result):
    def body(context):
        output = floats(0)
        with cs.Channel(context) as channel:
            channel.all_reduce(output, floats(context.rank + 1), op=op).wait()
        return output[0]

    assert on_ranks(3, body) == [result] * 3


def test_inputs_are_scaled_before_they_are_added(on_ranks):
    def body(context):
        values = floats(context.rank + 1)
        with cs.Channel(context) as channel:
            channel.all_reduce(values, op="premul_sum", scale=0.5).wait()
        return values[0]

    assert on_ranks(2, body) == [1.5, 1.5]


def test_parts_of_a_sum_and_a_gathering_of_them(on_ranks):
    def body(context):
        part, whole = floats(0), floats(0, 0)
        with cs.Channel(context) as channel:
            channel.reduce_scatter(part, floats(1, 2 + context.rank)).wait()
            channel.all_gather(whole, part).wait()
        return list(whole)

    assert on_ranks(2, body) == [[2, 5]] * 2


def test_uneven_parts(on_ranks):
    def body(context):
        mine = floats(*([context.rank + 1] * (context.rank + 1)))
        whole = floats(0, 0, 0)
        with cs.Channel(context) as channel:
            channel.all_gather(whole, mine, counts=[1, 2]).wait()
            channel.reduce_scatter(mine, whole, counts=[1, 2]).wait()
        return list(whole), list(mine)

    assert on_ranks(2, body) == [([1, 2, 2], [2]), ([1, 2, 2], [4, 4])]


def test_all_to_all_with_counts_of_its_own(on_ranks):
    def body(context):
        send = [1, 2] if context.rank == 0 else [0, 1]
        receive = [1, 0] if context.rank == 0 else [2, 1]
        got = floats(*([0] * sum(receive)))
        source = floats(*[10 * context.rank + i for i in range(sum(send))])
        with cs.Channel(context) as channel:
            channel.all_to_all(got, source, send=send, receive=receive).wait()
        return list(got)

    assert on_ranks(2, body) == [[0], [1, 2, 10]]


def test_rooted_kinds(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            seen = floats(context.rank + 5)
            channel.broadcast(seen, root=1).wait()
            total = floats(0)
            channel.reduce(total, floats(1), root=1).wait()
            gathered = floats(0, 0) if context.rank == 1 else None
            channel.gather(gathered, floats(context.rank), root=1).wait()
            part = floats(0)
            channel.scatter(part, floats(7, 8) if context.rank == 1 else None,
                            root=1).wait()
        return seen[0], total[0], gathered and list(gathered), part[0]

    assert on_ranks(2, body) == [(6, 0, None, 7), (6, 2, [0, 1], 8)]


def test_sends_meet_receives_by_tag(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            if context.rank == 0:
                seven = channel.send(floats(1), 1, tag=7)
                channel.send(floats(2), 1, tag=3).wait()
                seven.wait()
                return None
            three, seven = floats(0), floats(0)
            channel.recv(three, 0, tag=3).wait()
            channel.recv(seven, 0, tag=7).wait()
            return three[0], seven[0]

    assert on_ranks(2, body)[1] == (2, 1)


def test_a_ring_in_one_batch(on_ranks):
    def body(context):
        got = floats(-1)
        with cs.Channel(context) as channel:
            right, left = (context.rank + 1) % 3, (context.rank - 1) % 3
            channel.batch([cs.Send(floats(context.rank), right),
                           cs.Recv(got, left)]).wait()
        return got[0]

    assert on_ranks(3, body) == [2, 0, 1]


def test_a_barrier_waits_for_all(on_ranks):
    came = []

    def body(context):
        with cs.Channel(context) as channel:
            came.append(context.rank)
            channel.barrier().wait()
            return len(came)

    assert on_ranks(3, body) == [3] * 3


def test_a_channel_of_a_group_numbers_its_members(on_ranks):
    def body(context):
        if context.rank == 1:
            return None
        group = context.group([2, 0], axis="pair")
        values = floats(context.rank)
        with cs.Channel(context, group) as channel:
            channel.broadcast(values, root=0).wait()
        return values[0], group.rank, group.ranks

    assert on_ranks(3, body) == [(2, 1, (2, 0)), None, (2, 0, (2, 0))]


def test_a_request_finishes_by_itself(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            request = channel.all_reduce(floats(1))
            while not request.done():
                pass
            return request.number

    assert on_ranks(2, body) == [1, 1]


def test_memory_is_kept_until_a_request_has_finished(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            late = channel.recv(bytearray(4), 1 - context.rank)
            kept = channel.held
            channel.barrier().wait()
            channel.send(b"1234", 1 - context.rank).wait()
            late.wait()
            return kept, channel.held

    assert on_ranks(2, body) == [(1, 0)] * 2


def test_memory_of_requests_that_nobody_asks_for_is_let_go(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            for _ in range(300):
                channel.all_reduce(floats(1))
                channel.batch([cs.Send(b"1", 1 - context.rank),
                               cs.Recv(bytearray(1), 1 - context.rank)]).wait()
            return channel.held

    assert max(on_ranks(2, body)) < 200


def test_a_wait_ends_when_its_time_is_up(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            if context.rank == 0:
                request = channel.recv(bytearray(1), 1)
                with pytest.raises(cs.DeadlineExceededError):
                    request.wait(timeout=0.01)
                channel.barrier().wait()
                request.wait()
            else:
                channel.barrier().wait()
                channel.send(b"1", 0).wait()

    on_ranks(2, body)


def test_an_abort_fails_all_members_and_names_the_rank(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            if context.rank == 1:
                channel.abort("out of data")
                return None
            with pytest.raises(cs.AbortedError, match="out of data") as caught:
                channel.all_reduce(floats(1)).wait()
            assert isinstance(channel.status(), cs.AbortedError)
            return caught.value.rank, caught.value.group

    assert on_ranks(2, body)[0] == (1, "world")


def test_an_exception_in_a_with_fails_the_others(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            if context.rank == 1:
                raise KeyError("mine")
            channel.barrier().wait()

    with pytest.raises(KeyError, match="mine"):
        on_ranks(2, body)


def test_an_error_names_op_and_group(on_ranks):
    def body(context):
        with cs.Channel(context, context.group(axis="dp")) as channel:
            with pytest.raises(cs.InvalidArgumentError) as caught:
                channel.broadcast(floats(1), root=5)
            return caught.value.op, caught.value.group

    assert on_ranks(1, body) == [("broadcast", "dp")]


def test_arguments_that_do_not_fit_are_refused_before_they_are_submitted(on_ranks):
    def body(context):
        with cs.Channel(context) as channel:
            with pytest.raises(ValueError, match="1 and 2 elements"):
                channel.all_reduce(floats(1, 2), floats(1))
            with pytest.raises(ValueError, match="the output is read-only"):
                channel.all_reduce(b"1234")
            with pytest.raises(ValueError, match="input is F32 and the output F64"):
                channel.reduce_scatter(array.array("d", [0]), floats(1, 2))
            with pytest.raises(ValueError, match="3 elements of memory for counts"):
                channel.all_gather(floats(0, 0, 0), floats(1, 1))
            with pytest.raises(ValueError, match="1 counts for a group of 2"):
                channel.all_gather(floats(0, 0), floats(1), counts=[1])
            with pytest.raises(ValueError, match="is one of sum, avg"):
                channel.all_reduce(floats(1), op="mean")
            return channel.barrier().number

    assert on_ranks(2, body) == [1, 1]


def test_a_closed_channel_is_refused(on_ranks):
    def body(context):
        channel = cs.Channel(context)
        channel.close()
        channel.close()
        with pytest.raises(cs.InvalidArgumentError, match="'channel' is NULL"):
            channel.barrier()

    on_ranks(1, body)


def test_work_of_a_stream_comes_first(on_ranks):
    def body(context):
        with cs.HostStream(context) as stream, cs.Channel(context) as channel:
            values = floats(1)
            request = channel.all_reduce(values, stream=stream)
            request.before(stream)
            stream.synchronize()
            assert request.done()
            return values[0]

    assert on_ranks(2, body) == [2, 2]


def test_completions_tell_of_many_channels(on_ranks):
    def body(context):
        with cs.Completions() as completions:
            group = context.group(axis="a")
            with cs.Channel(context, group, completions=completions) as one, \
                    cs.Channel(context, context.group(axis="b"), key=9,
                               completions=completions) as other:
                one.all_reduce(floats(1), user=5)
                other.all_reduce(floats(1), user=6)
                seen = []
                while len(seen) < 2:
                    seen += completions.next()
                return sorted((c.key == one.key, c.key == 9, c.request, c.user,
                               c.status) for c in seen), one.held, other.held

    expected = [(False, True, 1, 6, cs.Status.OK), (True, False, 1, 5, cs.Status.OK)]
    assert on_ranks(2, body) == [(expected, 0, 0)] * 2


def test_completions_are_woken():
    completions = cs.Completions()
    got = []
    thread = threading.Thread(target=lambda: got.append(completions.next()))
    thread.start()
    completions.wake()
    thread.join()
    assert got == [[]]
    completions.wake()
    assert completions.next() == []
    assert completions.next(timeout=0) == []


def test_a_key_is_that_of_one_channel(on_ranks):
    def body(context):
        with cs.Completions() as completions, \
                cs.Channel(context, completions=completions, key=3):
            with pytest.raises(ValueError, match="key 3 is that of another channel"):
                cs.Channel(context, completions=completions, key=3)

    on_ranks(1, body)
