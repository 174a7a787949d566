"""Drives a page in headless Chromium over its debugging pipe."""

import itertools
import json
import os
import shutil
import subprocess

PATH = shutil.which("chromium")


class Page:
    """One page; what it logs, requests and throws is in `events`."""

    def __init__(self, url, folder):
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()

        def descriptors():  # The browser reads 3 and writes 4.
            high = [os.dup2(fd, 90 + k) for k, fd in enumerate((to_child, from_child))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._browser = subprocess.Popen(
            [
                PATH,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--no-first-run",
                f"--user-data-dir={folder}",
                "--window-size=1200,900",
                "--remote-debugging-pipe",
                "about:blank",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=descriptors,
            close_fds=False,
        )
        os.close(to_child)
        os.close(from_child)
        self._ids = itertools.count(1)
        self._received = b""
        self._session = None
        self.events = []
        target = self.send("Target.createTarget", url="about:blank")
        self._session = self.send(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.send(f"{domain}.enable")
        self.send("Page.navigate", url=url)
        while not self.named("Page.loadEventFired"):
            self._take()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        os.close(self._write)
        self._browser.terminate()
        self._browser.wait()
        os.close(self._read)

    def named(self, method):
        return [e["params"] for e in self.events if e["method"] == method]

    def send(self, method, **params):
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._take()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def evaluate(self, expression):
        result = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def mouse(self, kind, x, y, **fields):
        self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **fields)

    def _take(self):
        while b"\0" not in self._received:
            data = os.read(self._read, 1 << 16)
            assert data, "the browser has ended"
            self._received += data
        text, self._received = self._received.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message
