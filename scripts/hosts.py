"""Hosts on one machine: network namespaces with links of a given rate and delay.

For the scripts beside it. Needs root and iproute2.
"""

import argparse
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

PREFIX = "commsched-host"
SWITCH = "commsched-switch"
NETWORK = "10.67.0"
MAX_HOSTS = 200
MAX_RANKS = 4096
# What a switch and a card hold back: 1 ms of 1 Gbit/s, and 20 ms of queue.
BURST = "128kb"
QUEUE = "20ms"
UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}
ROUND_ROBIN = ":round-robin"
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def ip(*arguments):
  subprocess.run(["ip", *arguments], check=True)


def output_of(*arguments):
  return subprocess.run(["ip", *arguments], capture_output=True, text=True,
                        check=True).stdout


def existing():
  """Namespaces of this file, also those that another run has left."""
  listed = [line.split()[0] for line in output_of("netns", "list").splitlines()]
  return [name for name in listed
          if name == SWITCH or name.startswith(PREFIX)]


def processes(name):
  return [int(pid) for pid in output_of("netns", "pids", name).split()]


def names(count):
  return [f"{PREFIX}{i}" for i in range(count)]


def address(host):
  return f"{NETWORK}.{host + 1}"


def bits_per_s(rate):
  """Of "1gbit", "200mbit", "none" (0), as tc has it."""
  if rate == "none":
    return 0
  found = re.fullmatch(r"([0-9.]+)([kmg]?)bit", rate)
  if not found:
    raise ValueError(f"rate {rate!r} is not as 1gbit, 200mbit or none")
  return int(float(found[1]) * UNITS[found[2]])


def block_order(counts):
  return [host for host, count in enumerate(counts) for _ in range(count)]


def round_robin_order(counts):
  """A rank on each host that has room, in turns."""
  return [host for turn in range(max(counts))
          for host, count in enumerate(counts) if turn < count]


class Layout:
  """Which host each rank is on, from a text as add_layout_option() has it."""

  def __init__(self, text):
    self.text = text
    counts_text = text.removesuffix(ROUND_ROBIN)
    if re.fullmatch(r"\d+x\d+", counts_text):
      num_hosts, per_host = map(int, counts_text.split("x"))
      counts = [per_host] * min(num_hosts, MAX_RANKS + 1)
    elif re.fullmatch(r"\d+(\+\d+)+", counts_text):
      counts = [int(count) for count in counts_text.split("+")]
    else:
      raise argparse.ArgumentTypeError(
          f"{text!r} is not as 2x4, 3+1 or 2x4{ROUND_ROBIN}")
    if (not 2 <= len(counts) <= MAX_HOSTS or min(counts) < 1 or
        sum(counts) > MAX_RANKS):
      raise argparse.ArgumentTypeError(
          f"{text!r} is not 2 to {MAX_HOSTS} hosts, a rank or more on each, and "
          f"{MAX_RANKS} at most in all")
    order = round_robin_order if text.endswith(ROUND_ROBIN) else block_order
    self.num_hosts = len(counts)
    self.host_of = order(counts)  # By rank.
    self.num_ranks = len(self.host_of)

  def run_command(self, binaries):
    """`commsched run` with these ranks; a rank's command follows."""
    hosts = names(self.num_hosts)
    return ["ip", "netns", "exec", hosts[0], str(binaries / "commsched"), "run",
            "-n", str(self.num_ranks), "--prefix", "off", "--address",
            address(0), "--hosts",
            ",".join(f"{hosts[host]}:1" for host in self.host_of), "--agent",
            "ip netns exec {host}", "--"]


def add_layout_option(parser):
  parser.add_argument(
      "--layout", action="append", type=Layout,
      help="ranks of the hosts: 2x4 is two hosts of four ranks, 3+1 a host of "
      "three and a host of one. Ranks fill one host after the other, with "
      f"{ROUND_ROBIN} behind it they are dealt out in turns. May be repeated; "
      "4x1")


def check_root(parser):
  if os.geteuid() != 0:
    parser.error("makes network namespaces, and so needs root")


class Hosts:
  """Namespaces that last as long as the `with` block.

  SIGTERM, SIGHUP and SIGINT end the program by SystemExit, so that the block
  ends; what still runs in the namespaces then is killed.

  With a round trip the switch between them is a program (bench_delay_switch of
  `build_dir`), since not every kernel has netem; else the kernel's.
  """

  def __init__(self, count, rate, rtt_us=0, build_dir=None):
    self.count = count
    self.rate = rate
    self.rtt_us = rtt_us
    self.build_dir = build_dir
    self.switch = None
    self.handlers = {}  # Those of END_SIGNALS, outside of the block.

  def __enter__(self):
    self.refuse_if_used()
    for number in END_SIGNALS:
      self.handlers[number] = signal.getsignal(number)
    self.handle_signals(lambda number, _: sys.exit(128 + number))
    try:
      self.remove()
      self.connect()
    except BaseException:
      self.__exit__()
      raise
    return self

  def __exit__(self, *failure):
    self.handle_signals(signal.SIG_IGN)
    if self.switch is not None:
      self.switch.terminate()
      self.switch.wait()
    self.remove()
    for number, handler in self.handlers.items():
      signal.signal(number, handler)

  def handle_signals(self, handler):
    for number, usual in self.handlers.items():
      if usual != signal.SIG_IGN:  # As behind nohup.
        signal.signal(number, handler)

  def connect(self):
    ip("netns", "add", SWITCH)
    for host in names(self.count):
      ip("netns", "add", host)
      ip("-n", host, "link", "set", "lo", "up")
    if self.rtt_us:
      self.connect_by_program()
    else:
      self.connect_by_bridge()

  def connect_by_program(self):
    program = pathlib.Path(self.build_dir) / "bin/bench_delay_switch"
    self.switch = subprocess.Popen(
        ["ip", "netns", "exec", SWITCH, str(program), "port", str(self.count),
         str(bits_per_s(self.rate)), str(self.rtt_us // 2)],
        stdout=subprocess.PIPE, text=True)
    if self.switch.stdout.readline() != "ready\n":
      raise RuntimeError("bench_delay_switch did not start")
    try:
      # Ranks compute on the same cores; a real switch would not wait for them.
      os.sched_setscheduler(self.switch.pid, os.SCHED_FIFO, os.sched_param(50))
    except PermissionError:
      pass  # Delays are longer under load then.
    for i, host in enumerate(names(self.count)):
      ip("-n", SWITCH, "link", "set", f"port{i}", "netns", host, "name", "eth0")
      ip("-n", host, "link", "set", "eth0", "address",
         f"02:00:00:00:00:{i:02x}")
      ip("-n", host, "addr", "add", f"{address(i)}/24", "dev", "eth0")
      ip("-n", host, "link", "set", "eth0", "up")

  def connect_by_bridge(self):
    ip("-n", SWITCH, "link", "add", "br0", "type", "bridge")
    ip("-n", SWITCH, "link", "set", "br0", "up")
    for i, host in enumerate(names(self.count)):
      ip("-n", SWITCH, "link", "add", f"p{i}", "type", "veth", "peer", "name",
         "eth0", "netns", host)
      ip("-n", SWITCH, "link", "set", f"p{i}", "master", "br0", "up")
      ip("-n", host, "addr", "add", f"{address(i)}/24", "dev", "eth0")
      ip("-n", host, "link", "set", "eth0", "up")
      self.shape(host, "eth0")
      self.shape(SWITCH, f"p{i}")

  def switch_s(self):
    """Time of the processor that the program has taken."""
    if self.switch is None:
      return 0.0
    words = pathlib.Path(f"/proc/{self.switch.pid}/stat").read_text().rsplit(
        ")", 1)[1].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

  def shape(self, host, device):
    if self.rate == "none":
      return
    subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "add", "dev",
                    device, "root", "tbf", "rate", self.rate, "burst", BURST,
                    "latency", QUEUE], check=True)

  def refuse_if_used(self):
    for name in existing():
      if pids := processes(name):
        raise RuntimeError(
            f"network namespace {name} is in use by processes "
            f"{', '.join(map(str, pids))}: another run, or what one has left")

  def remove(self):
    for name in existing():
      for pid in processes(name):
        with contextlib.suppress(ProcessLookupError):
          os.kill(pid, signal.SIGKILL)
      ip("netns", "del", name)
