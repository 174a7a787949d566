"""What TCP carries between two hosts of hosts.py: a plain stream each way at once.

    scripts/link_rate.py listen|ADDRESS PORT

Each host runs it as a program: the one that listens prints its port, the other one
connects. Both print the bytes per second that they get.
"""

import socket
import subprocess
import sys
import threading
import time

from hosts import address, names

BLOCK = 256 << 10
LIMIT_S = 30  # For a peer that does not come, or is silent.
WARMUP_S = 0.3
SECONDS = 1.0


def measure():
  """Bytes per second in each direction between the first two hosts, on average."""
  programs = []
  try:
    programs.append(start(0, "listen"))
    port = programs[0].stdout.readline().strip()
    programs.append(start(1, address(0), port))
    texts = [program.communicate()[0] for program in programs]
  finally:
    for program in programs:
      program.kill()  # Does nothing where it has ended.
  if any(program.returncode for program in programs):
    raise RuntimeError("the rate of the hosts' links was not measured")
  return sum(map(float, texts)) / len(texts)


def start(host, *arguments):
  return subprocess.Popen(
      ["ip", "netns", "exec", names(host + 1)[host], sys.executable, __file__,
       *arguments], stdout=subprocess.PIPE, text=True)


def send_until_closed(stream):
  block = bytes(BLOCK)
  try:
    while True:
      stream.sendall(block)
  except OSError:
    pass  # The peer has measured.


def receive_until(stream, end, into):
  """Bytes that came, and when the last of them did."""
  num_bytes, now = 0, time.monotonic()
  while now < end:
    got = stream.recv_into(into)
    if got == 0:
      raise OSError("the peer has gone")
    num_bytes, now = num_bytes + got, time.monotonic()
  return num_bytes, now


def exchange(sending, receiving):
  """Bytes per second that come while as many go out."""
  sender = threading.Thread(target=send_until_closed, args=(sending,))
  sender.start()
  into = bytearray(BLOCK)
  _, begin = receive_until(receiving, time.monotonic() + WARMUP_S, into)
  num_bytes, end = receive_until(receiving, begin + SECONDS, into)
  receiving.close()
  sender.join()
  return num_bytes / (end - begin)


def main():
  socket.setdefaulttimeout(LIMIT_S)
  if sys.argv[1] == "listen":
    with socket.create_server((address(0), 0)) as server:
      print(server.getsockname()[1], flush=True)
      streams = [server.accept()[0] for _ in range(2)]
  else:
    where = sys.argv[1], int(sys.argv[2])
    streams = [socket.create_connection(where) for _ in range(2)][::-1]
  print(exchange(*streams))


if __name__ == "__main__":
  main()
