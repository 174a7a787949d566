"""What calls cost from Python: us each, the median of several rounds.

    PYTHONPATH=bindings/python COMMSCHED_LIB=... python bindings/python/bench/calls.py

On one rank of the backend null, which moves nothing: what is left is the binding and the
library's own work. Look at the difference to `ctypes alone`, the same call of the library
with a description that is ready.
"""

import array
import statistics
import time

import commsched as cs
from commsched import _wait
from commsched import channel as channels

CALLS, ROUNDS = 5000, 15


def measure(bodies):
    """In turns, so that what else the machine does is in all of them."""
    times = {name: [] for name in bodies}
    for _ in range(ROUNDS):
        for name, (body, calls) in bodies.items():
            begin = time.perf_counter()
            for _ in range(calls):
                body()
            times[name].append((time.perf_counter() - begin) / calls * 1e6)
    return {name: statistics.median(each) for name, each in times.items()}


def ready(channel, memory):
    """A submit with nothing to describe."""
    slot = channels._Slot()
    slot.op.count = memory.count
    slot.op.input = slot.op.output = memory.address
    return lambda: channels._submit(channel.handle, slot.op_reference, cs.CALLER.value,
                                    slot.request_reference)


def main():
    context = cs.World(1, backend="null").context(0)
    channel = cs.Channel(context)
    values = array.array("f", [1.0] * 8)
    memory = cs.memory(values)
    at, count = memory.address, memory.count
    done = channel.submit(cs.Collective.ALL_REDUCE, 0, at, at, count)
    channel.wait(done)
    costs = measure({
        "ctypes alone": (ready(channel, memory), CALLS),
        "Channel.submit": (lambda: channel.submit(0, 0, at, at, count), CALLS),
        "all_reduce(Memory)": (lambda: channel.all_reduce(memory), CALLS),
        "all_reduce(array)": (lambda: channel.all_reduce(values), CALLS),
        "memory(array)": (lambda: cs.memory(values), CALLS),
        "Channel.test": (lambda: channel.test(done), CALLS),
        "Channel.wait, finished": (lambda: channel.wait(done), CALLS),
        "a call on another thread": (lambda: _wait.call(lambda: 0), CALLS // 10),
    })
    for name, us in costs.items():
        print(f"{name:26} {us:6.2f}")


if __name__ == "__main__":
    main()
