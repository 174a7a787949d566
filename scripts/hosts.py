"""Hosts on one machine: network namespaces with links of a given rate and delay.

For the scripts beside it. Needs root and iproute2.
"""

import os
import pathlib
import re
import subprocess

PREFIX = "commsched-host"
SWITCH = "commsched-switch"
NETWORK = "10.67.0"
# What a switch and a card hold back: 1 ms of 1 Gbit/s, and 20 ms of queue.
BURST = "128kb"
QUEUE = "20ms"
UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


def ip(*arguments):
  subprocess.run(["ip", *arguments], check=True)


def names(count):
  return [f"{PREFIX}{i}" for i in range(count)]


def bits_per_s(rate):
  """Of "1gbit", "200mbit", "none" (0), as tc has it."""
  if rate == "none":
    return 0
  found = re.fullmatch(r"([0-9.]+)([kmg]?)bit", rate)
  if not found:
    raise ValueError(f"rate {rate!r} is not as 1gbit, 200mbit or none")
  return int(float(found[1]) * UNITS[found[2]])


class Hosts:
  """Namespaces that last as long as the `with` block.

  With a round trip the switch between them is a program (bench_delay_switch of
  `build_dir`), since not every kernel has netem; else the kernel's.
  """

  def __init__(self, count, rate, rtt_us=0, build_dir=None):
    self.count = count
    self.rate = rate
    self.rtt_us = rtt_us
    self.build_dir = build_dir
    self.switch = None

  def __enter__(self):
    self.remove()
    ip("netns", "add", SWITCH)
    for host in names(self.count):
      ip("netns", "add", host)
      ip("-n", host, "link", "set", "lo", "up")
    if self.rtt_us:
      self.connect_by_program()
    else:
      self.connect_by_bridge()
    return self

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
      ip("-n", host, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "eth0")
      ip("-n", host, "link", "set", "eth0", "up")

  def connect_by_bridge(self):
    ip("-n", SWITCH, "link", "add", "br0", "type", "bridge")
    ip("-n", SWITCH, "link", "set", "br0", "up")
    for i, host in enumerate(names(self.count)):
      ip("-n", SWITCH, "link", "add", f"p{i}", "type", "veth", "peer", "name",
         "eth0", "netns", host)
      ip("-n", SWITCH, "link", "set", f"p{i}", "master", "br0", "up")
      ip("-n", host, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "eth0")
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

  def __exit__(self, *failure):
    if self.switch is not None:
      self.switch.terminate()
      self.switch.wait()
    self.remove()

  def shape(self, host, device):
    if self.rate == "none":
      return
    subprocess.run(["ip", "netns", "exec", host, "tc", "qdisc", "add", "dev",
                    device, "root", "tbf", "rate", self.rate, "burst", BURST,
                    "latency", QUEUE], check=True)

  def remove(self):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True,
                            text=True, check=True).stdout
    for line in listed.splitlines():
      name = line.split()[0]
      if name == SWITCH or name.startswith(PREFIX):
        ip("netns", "del", name)
