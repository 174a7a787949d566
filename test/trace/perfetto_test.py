"""Our Perfetto traces, read with Perfetto's own message definitions.

Skipped (exit code 77) where they cannot be imported. To run it, install them by
`scripts/install-deps --with all`, or name a Python that has them:
`cmake -DCOMMSCHED_PERFETTO_PYTHON=VENV/bin/python ...`

Usage: perfetto_test.py KINETO_WRITER
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
except ImportError as error:
    print(f"SKIPPED: Perfetto's message definitions are not there ({error})")
    sys.exit(77)

WRITER = None
RANKS = 2


class PerfettoTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        subprocess.run(
            [WRITER, folder.name, str(RANKS), "10", "1", "5"], check=True
        )
        paths = sorted(pathlib.Path(folder.name).glob("*.pftrace"))
        self.assertEqual(len(paths), RANKS)
        self.trace = pb.Trace()
        # Several ranks in one: the files one behind the other.
        self.trace.ParseFromString(b"".join(p.read_bytes() for p in paths))

    def tracks(self):
        return {
            packet.track_descriptor.uuid: packet.track_descriptor
            for packet in self.trace.packet
            if packet.HasField("track_descriptor")
        }

    def test_no_field_is_unknown_to_perfetto(self):
        self.assertGreater(len(self.trace.packet), 100)
        size = self.trace.ByteSize()
        self.trace.DiscardUnknownFields()
        self.assertEqual(self.trace.ByteSize(), size)

    def test_each_rank_is_a_process_with_tracks_of_its_own(self):
        tracks = self.tracks()
        processes = {
            track.process.process_name: uuid
            for uuid, track in tracks.items()
            if track.HasField("process")
        }
        self.assertEqual(sorted(processes), ["rank 0", "rank 1"])
        for uuid, track in tracks.items():
            if not track.HasField("process"):
                self.assertIn(track.parent_uuid, processes.values())

    def test_slices_nest_and_counters_end_at_zero(self):
        tracks = self.tracks()
        depth = {}
        counter = {}
        names = set()
        for packet in self.trace.packet:
            if not packet.HasField("track_event"):
                continue
            event = packet.track_event
            self.assertIn(event.track_uuid, tracks)
            if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
                depth[event.track_uuid] = depth.get(event.track_uuid, 0) + 1
                # A slice on a lane has the lane for itself.
                self.assertEqual(depth[event.track_uuid], 1)
                names.add(event.name)
            elif event.type == pb.TrackEvent.TYPE_SLICE_END:
                depth[event.track_uuid] -= 1
            else:
                self.assertEqual(event.type, pb.TrackEvent.TYPE_COUNTER)
                counter[event.track_uuid] = event.counter_value
        self.assertTrue(all(value == 0 for value in depth.values()))
        self.assertEqual(len(counter), 2 * RANKS)
        self.assertTrue(all(value == 0 for value in counter.values()))
        self.assertIn("forward h.0", names)


if __name__ == "__main__":
    WRITER = sys.argv.pop()
    unittest.main(verbosity=2)
