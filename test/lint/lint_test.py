#!/usr/bin/env python3
"""Lints the lint: plants violations in a small tree and looks for each."""

import contextlib
import fnmatch
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import re
import tempfile
import unittest
import unittest.mock

import docstrings
import headers
import json_keys
import layers
import shape
import text_rules
import versions


def load_script(name):
    """A program of scripts/ as a module."""
    path = pathlib.Path(__file__).resolve().parents[2] / "scripts" / name
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(path))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


docs_check = load_script("docs-check")
summarize_tests = load_script("summarize-tests")
write_abi_table = load_script("write-abi-table")


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
        self.assertFalse(self.refused("src/engine/a.cc", "engine/step_plan/layout.h"))

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

    def test_checkpoints_know_no_engine(self):
        for header in ("engine/model/model.h", "commsched/engine.h",
                       "kernels/element.h", "base/log.h"):
            self.assertTrue(self.refused("src/checkpoint/a.cc", header), header)
        self.assertFalse(self.refused("src/checkpoint/a.cc", "commsched/status.h"))
        self.assertFalse(self.refused("src/engine/a.cc", "checkpoint/saver.h"))

    def test_folders_of_the_engine_look_down_only(self):
        for path, header in (("tables/a.cc", "engine/tables/a.h"),
                             ("step_plan/a.cc", "engine/model/a.h"),
                             ("state/a.h", "engine/step_plan/a.h"),
                             ("state/a.h", "engine/tables/a.h"),
                             ("update/a.cc", "engine/state/a.h"),
                             ("capi/a.cc", "engine/run/a.h"),
                             ("capi/a.cc", "engine/engine.h"),
                             ("model/a.cc", "checkpoint/status.h"),
                             ("a.cc", "engine/update/a.h")):
            self.assertFalse(self.refused(f"src/engine/{path}", header), path)
        for path, header in (("model/a.cc", "engine/step_plan/a.h"),
                             ("step_plan/a.cc", "engine/tables/a.h"),
                             ("state/a.h", "engine/update/a.h"),
                             ("tables/a.cc", "engine/state/a.h"),
                             ("update/a.cc", "engine/run/a.h"),
                             ("run/a.cc", "engine/capi/a.h"),
                             ("run/a.cc", "engine/engine.h"),
                             ("model/a.cc", "engine/record.h"),
                             ("attic/a.cc", "engine/model/a.h"),
                             ("model/a.cc", "base/log.h")):
            self.assertTrue(self.refused(f"src/engine/{path}", header), path)

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

    def test_plugins_share_their_support_alone(self):
        for path in ("plugins/ucx/a.cc", "plugins/nccl/a.h",
                     "plugins/skeleton/backend/a.cc", "plugins/support/a.h"):
            self.assertFalse(self.refused(path, "support/outcome.h"), path)
            self.assertFalse(self.refused(path, "commsched/plugin.h"), path)
        self.assertFalse(self.refused("plugins/ucx/a.cc", "ucx/host/segment.h"))
        self.assertFalse(self.refused("plugins/nccl/a.cc", "comm.h"))
        self.assertTrue(self.refused("plugins/nccl/a.cc", "ucx/comm.h"))
        for header in ("ucx/host/segment.h", "kernels/bodies.h", "comm.h"):
            self.assertTrue(self.refused("plugins/support/a.h", header), header)

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


class ShapeTest(PlantedTree):

    def class_of(self, name, methods):
        return (f"class {name} {{\n public:\n" +
                f"  {name}(const {name}&) = delete;\n" +
                "  Status f() const { return g(1); }\n" * (methods // 2) +
                "  std::vector<int> g(std::function<void(int)> f);\n" *
                (methods - methods // 2) +
                "  std::function<void(int)> member_ = nullptr;\n"
                "  int other_ = f(2);\n};\n")

    def problems(self, path, text):
        self.plant(path, text)
        found = shape.violations(self.root)
        (self.root / path).unlink()
        return found

    def test_a_friend_is_refused(self):
        for text in ("class A { friend class B; };",
                     "struct A { friend bool operator==(A, A) = default; };"):
            self.assertEqual(self.problems("src/checkpoint/a.h", text),
                             ["src/checkpoint/a.h: has a friend"])
        self.assertEqual(self.problems("src/engine/run/a.h", "// A friend."), [])
        self.assertEqual(self.problems("src/exec/a.h", "friend class B;"), [])

    def test_what_is_below_run_does_not_name_the_engine(self):
        for text in ("void F(Engine* engine);", '#include "engine/engine.h"',
                     "void F(commsched_engine_t*);", '#include "commsched/engine.h"',
                     '#include "engine/run/engine.h"'):
            for folder in shape.BELOW_RUN:
                self.assertEqual(len(self.problems(
                    f"src/engine/{folder}/a.h", text)), 1, text)
            self.assertEqual(self.problems("src/engine/run/a.h", text), [])
        for text in ("// The Engine's.", "commsched_engine_kernels_t table;",
                     '#include "commsched/engine_types.h"',
                     '#include "checkpoint/status.h"', 'x = "Engine";'):
            self.assertEqual(self.problems("src/engine/model/a.h", text), [], text)

    def test_a_folder_has_a_few_nouns(self):
        for number in range(shape.MAX_NOUNS):
            for suffix in (".h", ".cc"):
                self.plant(f"src/engine/run/noun_{number}{suffix}", "")
        self.assertEqual(shape.violations(self.root), [])
        self.assertEqual(self.problems("src/engine/run/more.cc", ""),
                         ["src/engine/run: 11 nouns; at most 10"])

    def test_a_class_has_a_few_methods(self):
        self.assertEqual(self.problems("src/engine/run/a.h",
                                       self.class_of("Large", 40)), [])
        large = self.class_of("Large", 41)
        for text in (large, large.replace("Large {", "Large : public Base<int> {"),
                     "template <class T>\n" + large.replace("class", "struct")):
            self.assertEqual(self.problems("src/engine/run/a.h", text),
                             ["src/engine/run/a.h: Large has 41 methods; at most 40"])

    def test_a_file_is_read_in_one_sitting(self):
        self.assertEqual(self.problems("src/engine/run/a.cc", "int x;\n" * 400), [])
        self.assertEqual(self.problems("src/engine/run/a.cc", "int x;\n" * 401),
                         ["src/engine/run/a.cc: 401 lines; at most 400"])


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
            self.assertTrue(waits("step_calls.cc", text), text)
        for text in ("clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);",
                     "Run(op);  // Each op waits for what it reads; no sleep.",
                     "commsched_session_before(session, op, stream);",
                     "joined.push_back(stay);"):
            self.assertFalse(waits("step_calls.cc", text), text)
        drain = "commsched_session_drain(session_.get());"
        self.assertFalse(waits("bound_step.cc", drain))
        self.assertTrue(waits("bound_step.cc", f"{drain} usleep(5);"))
        self.assertFalse(waits("session_watch.cc", "std::mutex mutex_;"))
        lock = "const std::lock_guard<std::mutex> lock(abort_mutex_);"
        self.assertFalse(waits("bound_step.cc", lock))
        for name in ("step_calls.cc", "step_passes.cc", "pass_run.cc", "cursor.cc"):
            self.assertTrue(waits(name, lock), name)
        self.assertTrue(waits("bound_step.cc", lock.replace("abort_", "other_")))

    def test_files_of_the_step_path_that_are_gone_are_named(self):
        self.assertEqual(
            text_rules.missing_files(pathlib.Path(__file__).parents[2]), [])
        self.plant("src/engine/run/step_calls.cc", "")
        found = "\n".join(text_rules.missing_files(self.root))
        self.assertIn("no file of src/engine is called pass_run.cc", found)
        self.assertNotIn("step_calls.cc", found)

    def test_threads_in_src_are_started_in_one_place(self):
        for text in ("t_ = std::thread([this] { Run(); });",
                     "std::thread worker(Run);", "std::async(Run);"):
            self.assertTrue(self.refused("src/x/a.cc", text), text)
        for text in ("return std::thread(std::move(body));",
                     "std::thread thread_;", "std::this_thread::yield();",
                     "std::thread::hardware_concurrency();"):
            self.assertFalse(self.refused("src/x/a.cc", text), text)

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

    def test_comments_that_begin_in_mid_sentence_are_refused(self):
        def refused(path, text):
            self.plant(path, text + "\n")
            found = text_rules.fragment_violations(self.root)
            (self.root / path).unlink()
            return found

        fragment = "  // Of the pass that has begun.\n  int a;"
        for path in ("src/engine/run/a.h", "src/checkpoint/a.cc"):
            self.assertEqual(refused(path, "int b;\n" + fragment), [
                f"{path}:2: a comment is a sentence: // Of the pass that has begun."])
        for text in ("// The ops of a pass\n// And of its module.", "// Often.",
                     "int bytes;  // Of all buckets.\n"
                     "            // And of what is sent."):
            self.assertEqual(refused("src/engine/a.h", text), [], text)
        at_most = text_rules.FRAGMENTS["plan"]
        self.assertEqual(refused("src/plan/a.h", (fragment + "\n") * at_most), [])
        self.assertEqual(
            len(refused("src/plan/a.h", (fragment + "\n") * (at_most + 1))),
            at_most + 1)

    def test_no_room_has_fewer_fragments_than_its_limit(self):
        root = pathlib.Path(__file__).parents[2]
        with unittest.mock.patch.dict(
                text_rules.FRAGMENTS,
                {room: most - 1 for room, most in text_rules.FRAGMENTS.items()}):
            found = text_rules.fragment_violations(root)
        self.assertEqual({line.split("/")[1] for line in found},
                         set(text_rules.FRAGMENTS))

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


class JsonKeysTest(PlantedTree):

    def test_keys_that_the_page_lacks_are_refused(self):
        self.plant("docs/plan_json.md", "`known`\n")
        self.plant("src/plan/explain/a.cc",
                   'Json AJson() {\n  json["known"] = {{"new", 1}};\n}\n'
                   'Row ATable() {\n  return {"title", 1};\n}\n')
        self.assertEqual(json_keys.violations(self.root),
                         ["src/plan/explain/a.cc:2: the key 'new' is not in "
                          "docs/plan_json.md"])


class WriteAbiTableTest(unittest.TestCase):

    def abi(self, text):
        abi = write_abi_table.Abi()
        abi.add_header("a.h", text)
        return abi

    def row(self, text):
        return write_abi_table.table_entry(write_abi_table.compact(text))

    def test_fields_have_their_types(self):
        abi = self.abi("typedef struct commsched_a {\n"
                       "  uint64_t struct_size;  ///< Set; by _init().\n"
                       "  const char* const* names;\n"
                       "  uint64_t begin, count;\n"
                       "  uint8_t fingerprint[16];\n"
                       "  void* (*make)(void* user, uint64_t bytes);\n"
                       "} commsched_a_t;\n")
        fields = abi.structs[0]["fields"]
        self.assertEqual(
            [(f["name"], f["type"]) for f in fields],
            [("struct_size", "uint64_t"), ("names", "const char* const*"),
             ("begin", "uint64_t"), ("count", "uint64_t"),
             ("fingerprint", "uint8_t"), ("make", "void* (*)(void*, uint64_t)")])
        self.assertEqual(fields[1]["target"], "char*")
        self.assertEqual(fields[4]["length"], write_abi_table.number("16"))
        self.assertEqual([p["name"] for p in fields[5]["callback"]["parameters"]],
                         ["user", "bytes"])

    def test_defaults_are_what_init_assigns(self):
        abi = self.abi("typedef struct commsched_a { uint64_t struct_size; "
                       "int32_t rank; } commsched_a_t;\n"
                       "static inline commsched_a_t commsched_a_init(void) {\n"
                       "  commsched_a_t a;\n  memset(&a, 0, sizeof(a));\n"
                       "  a.struct_size = sizeof(a);\n  a.rank = -1;\n"
                       "  return a;\n}\n")
        self.assertEqual([f["default"] for f in abi.structs[0]["fields"]],
                         ["@sizeof(commsched_a_t)@", "@-1@"])
        self.assertIn('"default":#}],"init":"commsched_a_init"})json",\n'
                      "     {sizeof(commsched_a_t),\n", self.row(abi.structs[0]))

    def test_an_enum_belongs_to_the_type_declared_before_it(self):
        abi = self.abi("typedef uint32_t commsched_kind_t;\n"
                       "enum { COMMSCHED_A = 1, COMMSCHED_B = 2 };\n"
                       "enum { COMMSCHED_MAX = 1 << 4 };\n"
                       "#define COMMSCHED_AUTO UINT64_MAX\n")
        self.assertEqual([c.get("type") for c in abi.constants],
                         ["commsched_kind_t", None, None])
        self.assertEqual([list(c["values"]) for c in abi.constants],
                         [["COMMSCHED_A", "COMMSCHED_B"], ["COMMSCHED_MAX"],
                          ["COMMSCHED_AUTO"]])

    def test_what_is_not_understood_is_refused(self):
        for text in ("typedef union commsched_a { int a; } commsched_a_t;",
                     "typedef struct commsched_a { int a : 3; } commsched_a_t;",
                     "COMMSCHED_API int commsched_a(int (*fn)(void));",
                     "COMMSCHED_API int commsched_a(void)",
                     "extern int commsched_a;", "enum { OTHER = 1 };"):
            with self.assertRaises(write_abi_table.NotUnderstood, msg=text):
                self.abi(text)


class VersionsTest(PlantedTree):

    def found(self, changelog, header="0.2.0"):
        self.plant("CMakeLists.txt", "project(a VERSION 0.2.0 LANGUAGES C)\n")
        numbers = zip(("MAJOR", "MINOR", "PATCH"), header.split("."))
        self.plant("include/commsched/version.h",
                   "\n".join(f"COMMSCHED_VERSION_{n} = {v}," for n, v in numbers))
        self.plant("CHANGELOG.md", changelog)
        return versions.violations(self.root)

    def test_releases_stand_below_what_is_unreleased(self):
        self.assertEqual(self.found("## Unreleased\n## 0.1.0 (2026-01-02)\n"), [])
        self.assertEqual(self.found("## 0.2.0 (2026-01-03)\n"), [])
        self.assertTrue(self.found("## 0.3.0 (2026-01-03)\n"))
        self.assertTrue(self.found("## 0.1.0 (2026-01-02)\n## Unreleased\n"))
        self.assertTrue(self.found("## Unreleased\n## 0.1.0\n"))

    def test_the_header_has_the_same_version(self):
        self.assertTrue(self.found("## Unreleased\n", header="0.1.0"))

    def test_the_python_package_has_the_same_version(self):
        package = "bindings/python/commsched/_version.py"
        self.plant(package, '__version__ = "0.2.0"\n')
        self.assertEqual(self.found("## Unreleased\n"), [])
        self.plant(package, '__version__ = "0.1.0"\n')
        self.assertEqual(self.found("## Unreleased\n"),
                         [f"{package}:1: has version 0.1.0, CMakeLists.txt 0.2.0"])

    def test_docs_and_consumers_name_the_version_that_is_linked_with(self):
        self.plant("docs/abi.md", "`libcommsched.so.0.2` and\n"
                   "`libcommsched_engine.so.0.2`\n")
        self.plant("test/consumer/project/CMakeLists.txt",
                   "find_package(commsched 0.2 REQUIRED)\n")
        self.assertEqual(self.found("## Unreleased\n"), [])
        self.plant("docs/abi.md", "`libcommsched.so.0.2` and\n"
                   "`libcommsched_engine.so.0.1`\n")
        self.plant("test/consumer/project/CMakeLists.txt",
                   "find_package(commsched 0.1 REQUIRED)\n")
        self.assertEqual(self.found("## Unreleased\n"),
                         ["docs/abi.md:2: has version 0.1, CMakeLists.txt 0.2",
                          "test/consumer/project/CMakeLists.txt:1: has version "
                          "0.1, CMakeLists.txt 0.2"])


class MinutesTest(PlantedTree):
    """Two steps are granted 10 minutes each, and 20 together."""

    budget = {"steps": {"release/build": 10, "release/tests": 10}, "total": 20}

    def took(self, **minutes):
        """(whether they are within the budget, what is printed)."""
        lines = "".join(f"release/{step}\t0\t{60 * taken}\n"
                        for step, taken in minutes.items())
        self.plant("minutes.tsv", lines)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            within = summarize_tests.print_minutes(
                self.root / "minutes.tsv", self.budget)
        return within, printed.getvalue()

    def test_a_step_may_be_slow_if_others_are_fast(self):
        within, printed = self.took(build=4, tests=14)
        self.assertTrue(within)
        self.assertIn("release/tests: 14.0 min of 10  a busy machine", printed)

    def test_a_step_may_not_take_half_as_much_again(self):
        within, printed = self.took(build=4, tests=15.5)
        self.assertFalse(within)
        self.assertIn("release/tests: 15.5 min of 10  ABOVE", printed)

    def test_all_together_may_not_exceed_the_total(self):
        within, printed = self.took(build=9, tests=12)
        self.assertFalse(within)
        self.assertIn("all of it: 21.0 min of 20  ABOVE", printed)

    def test_a_step_that_is_not_granted_anything_is_refused(self):
        self.assertFalse(self.took(other=1)[0])

    def test_the_steps_of_the_tree_keep_within_its_total(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        budget = summarize_tests.read_budget(root / "test" / "budget.toml")
        self.assertIn("release/build", budget["steps"])


class StepTest(PlantedTree):
    """What ctest and the parts of a test binary wrote of a step."""

    def read(self, *cases, **parts):
        """(passed, failed, skipped) of `cases`, pairs of name and status, and
        `parts`, tests as GoogleTest writes them."""
        self.plant("junit-tests.xml", "<testsuite time='2'>" + "".join(
            f"<testcase name='{name}' status='{status}'/>"
            for name, status in cases) + "</testsuite>")
        for name, tests in parts.items():
            self.plant(f"gtest/{name}.json", json.dumps(
                {"testsuites": [{"name": "Suite", "testsuite": tests}]}))
        *names, seconds = summarize_tests.read_step(self.root / "junit-tests.xml")
        self.assertEqual(seconds, 2)
        return tuple(names)

    passes = {"name": "Passes", "result": "COMPLETED"}
    skips = {"name": "Skips", "result": "SKIPPED"}
    fails = {"name": "Fails", "result": "COMPLETED", "failures": [{}]}
    filtered = {"name": "Filtered", "result": "SUPPRESSED"}

    def test_each_test_of_a_part_counts(self):
        self.assertEqual(
            self.read(("test_a", "run"), ("alone", "run"),
                      test_a=[self.passes, self.skips, self.filtered]),
            (["Suite.Passes", "alone"], [], ["Suite.Skips"]))

    def test_a_part_that_fails_names_its_tests(self):
        self.assertEqual(
            self.read(("test_a", "fail"), test_a=[self.passes, self.fails]),
            (["Suite.Passes"], ["Suite.Fails"], []))

    def test_a_part_that_ends_early_fails_by_its_own_name(self):
        self.assertEqual(self.read(("test_a", "fail"), ("test_b", "fail"),
                                   test_b=[self.passes]),
                         (["Suite.Passes"], ["test_a", "test_b"], []))

    def test_a_step_without_tests_fails(self):
        self.assertEqual(self.read()[1], ["no test ran"])
        self.assertEqual(self.read(("test_a", "run"), test_a=[self.filtered])[1],
                         ["no test ran"])


class SanitizerFilterTest(unittest.TestCase):

    def test_each_pattern_leaves_out_a_test_that_there_is(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        text = "".join(path.read_text() for path in (root / "test").rglob("*.cc"))
        names = {f"{suite}.{name}" for suite, name in re.findall(
            r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", text)}
        self.assertGreater(len(names), 1000)
        for line in (root / "test/sanitizer_filter.txt").read_text().splitlines():
            # A number of ranks, and what is behind a slash, names a case.
            if line and line[0] != "#" and not line.startswith("*_n"):
                self.assertTrue(fnmatch.filter(names, line.split("/")[0]), line)


class DocsCheckTest(PlantedTree):

    def lint(self, page, text):
        self.plant("README.md", "[page](docs/page.md)\n")
        self.plant("docs/page.md", "")
        self.plant(page, text)
        return docs_check.read_tree(self.root)

    def refused(self, text, line, reason):
        _, problems = self.lint("docs/page.md", text)
        return any(problem.startswith(f"docs/page.md:{line}:") and
                   reason in problem for problem in problems)

    def test_marked_fences_are_accepted(self):
        blocks, problems = self.lint(
            "docs/page.md", "```sh\ntrue\n```\n- item:\n  ```c\n  int i;\n  ```\n")
        self.assertEqual(problems, [])
        self.assertEqual([b[1:] for b in blocks],
                         [(1, "sh", "true\n", ""), (5, "c", "int i;\n", "")])

    def test_fences_without_a_mark_or_an_end_are_refused(self):
        self.assertTrue(self.refused("text\n```\ntrue\n```\n", 2, "marked ''"))
        self.assertTrue(self.refused("```bash\ntrue\n```\n", 1, "'bash'"))
        self.assertTrue(self.refused("```sh\ntrue\n", 1, "never closed"))

    def test_blocks_by_indentation_are_refused_outside_of_lists(self):
        self.assertTrue(self.refused("text\n\n    true\n", 3, "indentation"))
        self.assertFalse(self.refused("- text\n\n    more\n", 3, "indentation"))

    def test_a_reason_keeps_a_block_from_running(self):
        blocks, problems = self.lint(
            "docs/page.md",
            "<!-- docs-check: not run: needs Slurm -->\n```sh\nsrun\n```\n")
        self.assertEqual(problems, [])
        self.assertEqual(blocks[0].reason, "needs Slurm")

    def test_reasons_that_belong_to_nothing_are_refused(self):
        reason = "<!-- docs-check: not run: needs Slurm -->\n"
        self.assertTrue(self.refused(reason + "\n```sh\n```\n", 1, "no fence"))
        self.assertTrue(self.refused(reason + "```c\n```\n", 2, "not sh"))
        self.assertTrue(
            self.refused("<!-- docs-check: skip -->\n```sh\n```\n", 1, "REASON"))

    def test_ten_blocks_may_have_a_reason(self):
        one = "<!-- docs-check: not run: why not -->\n```sh\ntrue\n```\n"
        self.assertEqual(self.lint("docs/page.md", 10 * one)[1], [])
        self.assertTrue(self.refused(11 * one, 42, "11 blocks"))

    def test_pages_and_links_that_lead_nowhere_are_refused(self):
        self.assertIn("README.md:1: does not link to docs/other.md",
                      self.lint("docs/other.md", "")[1])
        self.assertTrue(self.refused("[a](gone.md#x)\n", 1, "gone.md"))

    def test_a_reader_meets_readme_then_pages_then_examples(self):
        self.plant("README.md", "[e](examples/README.md) [b](docs/b.md) "
                   "[a](docs/a.md)\n")
        pages = ["CHANGELOG.md", "README.md", "docs/a.md", "docs/b.md",
                 "examples/1/README.md", "examples/README.md"]
        self.assertEqual(docs_check.in_reading_order(self.root, pages),
                         ["README.md", "docs/b.md", "docs/a.md",
                          "examples/README.md", "examples/1/README.md",
                          "CHANGELOG.md"])

    def run_page(self, text):
        blocks, _ = docs_check.parse("docs/page.md", text)
        return docs_check.run_blocks(self.root, blocks)

    def test_blocks_of_a_page_share_folder_and_environment(self):
        self.assertTrue(self.run_page(
            "```sh\nmkdir -p build\ncd build\nexport MINE=1\n```\n"
            "```sh\ntest $MINE = 1\ntest -d ../build\n```\n"))

    def test_a_command_that_fails_fails_its_block(self):
        self.assertFalse(self.run_page("```sh\nfalse\ntrue\n```\n"))
        self.assertFalse(self.run_page("```sh\nfalse | true\n```\n"))

    def test_a_block_that_leaves_a_file_in_the_tree_fails(self):
        self.assertFalse(self.run_page("```sh\ntouch left\n```\n"))
        self.assertTrue(self.run_page("```sh\nmkdir build\ntouch build/f\n```\n"))

if __name__ == "__main__":
    unittest.main()
