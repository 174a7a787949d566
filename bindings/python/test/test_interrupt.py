"""Long waits hear ^C, and release the GIL."""

import signal

import pytest

# Each says "waiting" when it is about to wait for what never comes.
_ALONE = """
import commsched as cs
world = cs.World(2)
context = world.context(0)
"""
_WITH_CHANNEL = """
import commsched as cs, threading
world = cs.World(2)
contexts = [world.context(r) for r in range(2)]
made = [None, None]
def make(r): made[r] = cs.Channel(contexts[r])
other = threading.Thread(target=make, args=(1,)); other.start()
make(0); other.join()
"""
_SAY = "print('waiting', flush=True)\n"

WAITS = {
    "request": _WITH_CHANNEL + "request = made[0].recv(bytearray(1), 1)\n" + _SAY +
    "request.wait()",
    "request with a limit": _WITH_CHANNEL +
    "request = made[0].recv(bytearray(1), 1)\n" + _SAY + "request.wait(3600)",
    "before": _WITH_CHANNEL + "request = made[0].recv(bytearray(1), 1)\n" + _SAY +
    "request.before(cs.CALLER)",
    "completions": _ALONE + "queue = cs.Completions()\n" + _SAY + "queue.next()",
    "channel": _ALONE + _SAY + "cs.Channel(context)",
    "split": _ALONE + _SAY + "context.split([0, 1], 'both')",
    "agree": _ALONE + _SAY + "context.agree('facts', {})",
    "run": "import commsched as cs, threading\n" + _SAY +
    "cs.World(1).run(lambda context: threading.Event().wait())",
}


@pytest.mark.parametrize("code", WAITS.values(), ids=WAITS.keys())
def test_a_wait_ends_at_control_c(python, code):
    process = python(code)
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err


@pytest.mark.parametrize("code", WAITS.values(), ids=WAITS.keys())
def test_what_does_not_end_a_sleep_ends_a_wait(python, code):
    """As a signal that comes just before the main thread sleeps."""
    process = python("import _thread, threading\n" + code.replace(
        _SAY, "threading.Timer(0.1, _thread.interrupt_main).start()\n"))
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err


def test_other_threads_run_while_one_waits(python):
    process = python(_WITH_CHANNEL + """
request = made[0].recv(bytearray(1), 1)
def send():
    made[1].send(b"1", 0).wait()
threading.Thread(target=send).start()
request.wait()
print("done", flush=True)
""")
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("done\n", 0), err


def test_a_handler_that_returns_does_not_end_a_wait(python):
    process = python(_WITH_CHANNEL + """
import signal
request = made[0].recv(bytearray(1), 1)
signal.signal(signal.SIGUSR1, lambda *_: made[1].send(b"1", 0))
""" + _SAY + "request.wait(); print('done', flush=True)")
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGUSR1)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("done\n", 0), err


def test_what_comes_of_a_call_that_was_given_up_is_released(python):
    process = python(_ALONE + """
import threading
from commsched import channel
released = threading.Event()
create, destroy = channel._create, channel._destroy
def say(*arguments):
    channel._create = create
    print("waiting", flush=True)
    return create(*arguments)
def note(out):
    destroy(out)
    released.set()
channel._create, channel._destroy = say, note
try:
    cs.Channel(context)
except KeyboardInterrupt:
    print("given up", flush=True)
# The other rank comes, so that the call succeeds, with nobody to give it to.
with world.context(1) as other, cs.Channel(other):
    released.wait()
print("released", flush=True)
""")
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (out, process.returncode) == ("given up\nreleased\n", 0), err
