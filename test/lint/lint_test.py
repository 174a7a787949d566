#!/usr/bin/env python3
"""Lints the lint: plants violations in a small tree and looks for each."""

import pathlib
import tempfile
import unittest

import docstrings
import headers
import layers
import text_rules


class PlantedTree(unittest.TestCase):
    """A temporary tree with one file per call of plant()."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def plant(self, path, text):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")


class LayersTest(PlantedTree):

    def refused(self, path, include):
        self.plant(path, f'#include "{include}"\n')
        found = layers.violations(self.root)
        (self.root / path).unlink()
        return any(path in line and include in line for line in found)

    def test_forward_arrows_are_allowed(self):
        self.assertFalse(self.refused("src/plan/a.cc", "graph/graph.h"))
        self.assertFalse(self.refused("src/plan/a.cc", "plan/plan.h"))
        self.assertFalse(self.refused("src/capi/a.cc", "commsched/plan.h"))
        self.assertFalse(self.refused("src/comm/a.cc", "commsched/plugin.h"))
        self.assertFalse(self.refused("test/plan/a.cc", "exec/window.h"))
        self.assertFalse(self.refused("src/engine/a.cc", "engine/layout.h"))

    def test_back_arrows_are_refused(self):
        self.assertTrue(self.refused("src/graph/a.cc", "plan/plan.h"))
        self.assertTrue(self.refused("src/plan/a.h", "device/device.h"))
        self.assertTrue(self.refused("src/session/a.h", "recording/recording.h"))
        self.assertTrue(self.refused("src/plan/verify/a.cc", "plan/lanes.h"))
        self.assertTrue(
            self.refused("src/plan/verify/a.cc", "plan/predict/predict.h"))
        self.assertFalse(
            self.refused("src/plan/verify/a.cc", "plan/verify/verify.h"))
        self.assertTrue(self.refused("src/trace/a.cc", "graph/graph.h"))
        self.assertTrue(self.refused("src/exec/a.cc", "session/session.h"))
        self.assertTrue(self.refused("src/session/a.cc", "sim/sim.h"))

    def test_a_room_outside_the_table_is_refused(self):
        self.assertTrue(self.refused("src/attic/a.cc", "base/log.h"))

    def test_the_core_does_not_know_the_abi(self):
        self.assertTrue(self.refused("src/plan/a.cc", "commsched/plan.h"))
        self.assertTrue(self.refused("src/comm/a.cc", "commsched/session.h"))

    def test_clients_see_public_headers_only(self):
        for path in ("src/engine/a.cc", "examples/x/a.c", "bindings/p/a.cc"):
            self.assertTrue(self.refused(path, "base/log.h"), path)
            self.assertFalse(self.refused(path, "commsched/plan.h"), path)
        self.assertTrue(self.refused("plugins/nccl/a.cc", "commsched/plan.h"))
        self.assertFalse(
            self.refused("plugins/nccl/a.cc", "commsched/plugin.h"))

    def test_nothing_in_src_includes_tests(self):
        self.assertTrue(self.refused("src/exec/a.cc", "test/support/fake.h"))

    def test_public_headers_include_no_room_and_no_library(self):
        self.assertTrue(self.refused("include/commsched/a.h", "base/log.h"))
        self.assertTrue(
            self.refused("include/commsched/a.h", "absl/status/status.h"))
        self.assertFalse(self.refused("include/commsched/a.h", "stdint.h"))

    def test_vendor_headers_stay_in_their_place(self):
        self.assertTrue(self.refused("src/exec/a.cc", "cuda_runtime.h"))
        self.assertFalse(self.refused("src/device/cuda_device.cc",
                                      "cuda_runtime.h"))
        self.assertTrue(self.refused("src/comm/a.cc", "boost/asio.hpp"))
        self.assertTrue(
            self.refused("src/base/a.h", "absl/synchronization/mutex.h"))


class TextRulesTest(PlantedTree):

    def refused(self, path, text):
        self.plant(path, text + "\n")
        found = text_rules.rule_violations(self.root)
        (self.root / path).unlink()
        return any(line.startswith(f"{path}:1:") for line in found)

    def test_sleep_in_a_test_is_refused(self):
        for text in ("std::this_thread::sleep_for(1ms);", "usleep(5);",
                     "sleep (1);", "time.sleep(2)"):
            suffix = "py" if "time." in text else "cc"
            self.assertTrue(self.refused(f"test/x/a.{suffix}", text), text)
        self.assertFalse(self.refused("test/x/a.cc", "asleep(1);"))
        self.assertFalse(self.refused("src/x/a.cc", "sleep_for(1ms);"))

    def test_waits_in_the_step_path_of_the_engine_are_refused(self):
        def waits(name, text):
            self.plant(f"src/engine/{name}", text + "\n")
            found = text_rules.wait_violations(self.root)
            (self.root / "src/engine" / name).unlink()
            return any(f"/{name}:1:" in line for line in found)

        for text in ("std::this_thread::sleep_for(1ms);", "usleep(5);",
                     "std::condition_variable done_;", "std::mutex mutex_;",
                     "done.get_future();  std::future<int> f;",
                     "auto now = std::chrono::steady_clock::now();",
                     "clock_gettime(CLOCK_MONOTONIC, &now);",
                     "timer_settime(id, 0, &at, nullptr);",
                     "done_.wait(lock);", "thread_.join();", "poll(&fd, 1, 9);",
                     "commsched_session_drain(session_.get());",
                     "commsched_stream_synchronize(stream);"):
            self.assertTrue(waits("step.cc", text), text)
        for text in ("clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);",
                     "Run(op);  // Each op waits for what it reads; no sleep.",
                     "commsched_session_before(session, op, stream);",
                     "joined.push_back(stay);"):
            self.assertFalse(waits("step.cc", text), text)
        drain = "commsched_session_drain(session_.get());"
        self.assertFalse(waits("values.cc", drain))
        self.assertTrue(waits("values.cc", f"{drain} usleep(5);"))
        self.assertFalse(waits("saver.cc", "std::mutex mutex_;"))
        lock = "const std::lock_guard<std::mutex> lock(abort_mutex_);"
        self.assertFalse(waits("record.cc", lock))
        self.assertTrue(waits("step.cc", lock))
        self.assertTrue(waits("record.cc", lock.replace("abort_", "other_")))

    def test_std_string_view_in_src_is_refused(self):
        self.assertTrue(self.refused("src/x/a.h", "f(std::string_view s);"))
        self.assertTrue(self.refused("src/x/a.h", "#include <string_view>"))
        self.assertFalse(self.refused("src/x/a.h", "f(absl::string_view s);"))

    def test_printing_to_stdout_is_refused(self):
        self.assertTrue(self.refused("src/plan/a.cc", 'printf("x");'))
        self.assertTrue(self.refused("src/plan/a.cc", "std::cout << 1;"))
        self.assertFalse(self.refused("src/plan/a.cc", 'snprintf(b, 1, "x");'))
        self.assertFalse(self.refused("src/plan/a.cc", 'fprintf(f, "x");'))

    def test_looking_for_headers_in_sources_is_refused(self):
        text = "#if __has_include(<nccl.h>)"
        self.assertTrue(self.refused("src/exec/a.cc", text))
        self.assertTrue(self.refused("plugins/nccl/a.h", text))
        self.assertFalse(self.refused("src/exec/a.cc", "#ifdef HAS_INCLUDE"))

    def test_placeholders_in_pages_are_refused(self):
        self.assertTrue(self.refused("docs/a.md", "see @DEMO@"))
        self.assertTrue(self.refused("README.md", "@TWO_WORDS@"))
        self.assertFalse(self.refused("docs/a.md", "mail a@B.org, @Version@"))
        self.assertFalse(self.refused("cmake/a.pc.in", "prefix=@PREFIX@"))

    def test_machine_paths_and_registries_are_refused(self):
        self.assertTrue(self.refused("README.md", "cd /home/me/commsched"))
        self.assertTrue(self.refused("scripts/x", "ls /tmp/build"))
        self.assertTrue(self.refused("docs/a.md", "from py" + "pi.org"))
        self.assertFalse(self.refused("README.md", "cd src/home/later"))

    def test_pages_outside_the_repository_are_refused(self):
        self.assertTrue(self.refused("src/x/a.h", "// see design.md section 4"))
        self.assertFalse(self.refused("src/x/a.h", "// see docs/layout.md"))

    def test_wrong_include_guard_is_refused(self):
        self.plant("src/exec/window.h", "#ifndef WINDOW_H\n#endif\n")
        self.plant("src/exec/good.h",
                   "#ifndef COMMSCHED_SRC_EXEC_GOOD_H_\n#endif\n")
        self.plant("include/commsched/plan.h",
                   "#ifndef COMMSCHED_PLAN_H_\n#endif\n")
        found = text_rules.guard_violations(self.root)
        self.assertEqual(len(found), 1)
        self.assertIn("COMMSCHED_SRC_EXEC_WINDOW_H_", found[0])

    def test_too_long_a_file_is_refused(self):
        self.plant("src/x/a.cc", "int a;\n" * 801)
        self.plant("src/x/b.cc", "int a;\n" * 800)
        found = text_rules.length_violations(self.root)
        self.assertEqual(len(found), 1)
        self.assertIn("a.cc:801", found[0])


class HeadersTest(PlantedTree):

    def internal_problems(self):
        return headers.violations(self.root, "internal", "cc", "c++")[1]

    def problems(self, text):
        self.plant("include/commsched/a.h", text)
        return headers.violations(self.root, "public", "cc", "c++")[1]

    def test_header_that_leans_on_its_includer_is_refused(self):
        self.assertTrue(self.problems("extern uint32_t x;\n"))
        self.assertFalse(
            self.problems("#include <stdint.h>\nextern uint32_t x;\n"))

    def test_cxx_only_and_c_only_text_is_refused(self):
        self.assertTrue(self.problems("extern bool x;\n"))
        self.assertTrue(self.problems("extern int class;\n"))

    def test_header_without_a_guard_is_refused(self):
        self.assertTrue(self.problems("struct s { int x; };\n"))

    def test_internal_header_is_left_to_the_build_only_if_included_first(self):
        self.plant("src/x/a.h", "extern uint32_t x;\n")
        self.plant("src/x/a.cc", '#include <stdint.h>\n#include "x/a.h"\n')
        self.assertEqual(len(self.internal_problems()), 1)
        self.plant("src/x/a.cc", '#include "x/a.h"\n#include <stdint.h>\n')
        self.assertEqual(self.internal_problems(), [])


class DocstringsTest(unittest.TestCase):

    def problems(self, comment):
        lines = comment.splitlines() + ["COMMSCHED_API commsched_status_t",
                                        "commsched_graph_walk(int x);"]
        return list(docstrings.problems("a.h", lines))

    def test_a_function_without_a_contract_is_refused_by_name(self):
        found = self.problems("/// Walks.\n///\n/// Threads:   any.")
        self.assertEqual(len(found), 1)
        self.assertIn("a.h:4: commsched_graph_walk has no 'Since:'", found[0])
        self.assertEqual(len(self.problems("")), 2)

    def test_a_contract_of_another_function_does_not_count(self):
        above = "/// Threads:   any.\n/// Since:     0.1\nint f(void);\n"
        self.assertEqual(len(self.problems(above + "/// Walks.")), 2)

    def test_a_function_with_a_contract_passes(self):
        self.assertFalse(self.problems("/// Threads:   any.\n/// Since:     0.1"))


if __name__ == "__main__":
    unittest.main()
