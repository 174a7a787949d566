#!/usr/bin/env python3
"""What scripts/draw-timeline reads of a trace, and draws: draw_timeline_test.py"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts/draw-timeline"


def kernel(name, begin, length, collective=None):
    args = {"Collective name": collective} if collective else {}
    return {"ph": "X", "cat": "kernel", "name": name, "ts": begin, "dur": length,
            "args": args}


def trace(lengths):
    """Steps of these lengths in us; the second half of each is a launch of which
    a fifth of the step runs beside compute."""
    events, at = [], 1000
    for number, length in enumerate(lengths):
        events.append({"ph": "X", "cat": "user_annotation", "ts": at,
                       "dur": length, "name": f"ProfilerStep#{number}"})
        events.append(kernel("forward[0].a", at, 7 * length // 10))
        events.append(kernel("r", at + length // 2, length // 2, "allreduce"))
        at += length
    return {"traceEvents": events}


class DrawTimelineTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def plant(self, name, lengths):
        path = self.folder / name
        path.write_text(json.dumps(trace(lengths)), encoding="utf-8")
        return path

    def draw(self, *arguments):
        picture = self.folder / "images" / "step.svg"
        done = subprocess.run(
            [sys.executable, "-B", str(SCRIPT), "--out", str(picture),
             *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        root = ElementTree.parse(picture).getroot()
        return [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]

    def refused(self, *arguments):
        done = subprocess.run(
            [sys.executable, "-B", str(SCRIPT), "--out",
             str(self.folder / "step.svg"), *map(str, arguments)],
            capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr

    def test_the_median_of_complete_steps_is_drawn(self):
        # The first two and the last are not among them.
        path = self.plant("a.json", [9000, 9000, 30000, 10000, 20000, 90000])
        self.assertIn("20 ms per step, of which 6 ms are communication while "
                      "nothing is computed", self.draw(f"a={path}"))

    def test_any_complete_step_can_be_named(self):
        path = self.plant("a.json", [9000, 9000, 30000, 10000, 20000, 90000])
        self.assertTrue(any("30 ms per step" in text for text in
                            self.draw(f"a={path}", "--step", 2)))
        self.assertIn("step 5", self.refused(f"a={path}", "--step", 5))

    def test_steps_share_a_scale_and_the_difference_is_said(self):
        slow = self.plant("slow.json", 4 * [80000])
        fast = self.plant("fast.json", 4 * [50000])
        texts = self.draw(f"slow={slow}", f"fast={fast}", "--caption", "a < b")
        self.assertIn("30 ms sooner", texts)
        self.assertIn("80 ms", texts)  # The axis.
        self.assertIn("a < b", texts)

    def test_a_trace_without_a_complete_step_is_refused(self):
        path = self.plant("a.json", [9000])
        self.assertIn("no complete step", self.refused(f"a={path}"))


if __name__ == "__main__":
    unittest.main()
