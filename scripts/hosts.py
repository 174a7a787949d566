"""Hosts on one machine: network namespaces with links of a given rate.

For the scripts beside it. Needs root and iproute2.
"""

import subprocess

PREFIX = "commsched-host"
SWITCH = "commsched-switch"
NETWORK = "10.67.0"
# What a switch and a card hold back: 1 ms of 1 Gbit/s, and 20 ms of queue.
BURST = "128kb"
QUEUE = "20ms"


def ip(*arguments):
  subprocess.run(["ip", *arguments], check=True)


def names(count):
  return [f"{PREFIX}{i}" for i in range(count)]


class Hosts:
  """Namespaces that last as long as the `with` block."""

  def __init__(self, count, rate):
    self.count = count
    self.rate = rate

  def __enter__(self):
    self.remove()
    ip("netns", "add", SWITCH)
    ip("-n", SWITCH, "link", "add", "br0", "type", "bridge")
    ip("-n", SWITCH, "link", "set", "br0", "up")
    for i, host in enumerate(names(self.count)):
      ip("netns", "add", host)
      ip("-n", SWITCH, "link", "add", f"p{i}", "type", "veth", "peer", "name",
         "eth0", "netns", host)
      ip("-n", SWITCH, "link", "set", f"p{i}", "master", "br0", "up")
      ip("-n", host, "addr", "add", f"{NETWORK}.{i + 1}/24", "dev", "eth0")
      ip("-n", host, "link", "set", "eth0", "up")
      ip("-n", host, "link", "set", "lo", "up")
      self.shape(host, "eth0")
      self.shape(SWITCH, f"p{i}")
    return self

  def __exit__(self, *failure):
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
