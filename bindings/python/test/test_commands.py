"""python -m commsched."""

import json
import sys

import pytest

import commsched as cs
from commsched import __main__ as program, _info
from commsched.commands import _program


def test_info_says_what_there_is(capsys):
    assert program.main(["info"]) == 0
    told = capsys.readouterr().out
    assert f"commsched {cs.__version__} for Python" in told
    assert f"library: {cs.library_path()}" in told
    assert "inproc" in told


def test_info_in_json(capsys):
    assert program.main(["info", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["format"] == "commsched-info/1"
    assert told["python_package"]["package"] == told["version"] == cs.__version__


def test_help_names_every_command(capsys):
    with pytest.raises(SystemExit) as ended:
        program.main(["--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    assert all(name in told for name in ["info", *program.OF_THE_PROGRAM])


@pytest.mark.parametrize("wrong", [[], ["fly"], ["info", "--yaml"]])
def test_a_wrong_call_is_2(capsys, wrong):
    with pytest.raises(SystemExit) as ended:
        program.main(wrong)
    assert ended.value.code == 2
    assert "usage: python -m commsched" in capsys.readouterr().err


def test_a_failure_is_1_and_has_the_librarys_message(capsys, monkeypatch):
    def fail(options):
        raise cs.UnavailableError("the disk is full")

    monkeypatch.setattr("commsched.commands.info.main", fail)
    assert program.main(["info"]) == 1
    assert capsys.readouterr().err == (
        "commsched info: UNAVAILABLE: the disk is full\n")


def test_without_the_program_run_says_where_it_was_looked_for(capsys, monkeypatch):
    monkeypatch.setattr(_program, "program", lambda: None)
    assert program.main(["run", "-n", "2", "--", "x.py"]) == 1
    assert "neither in the package nor beside" in capsys.readouterr().err


def test_a_python_file_is_run_by_this_python():
    def arguments(*given):
        return _program.arguments_of("run", given, "py")

    assert arguments("-n", "2", "--", "a.py", "b") == [
        "run", "-n", "2", "--", "py", "a.py", "b"]
    assert arguments("--", "-m", "mod") == ["run", "--", "py", "-m", "mod"]
    assert arguments("-n", "2", "--", "./a.out") == ["run", "-n", "2", "--", "./a.out"]
    assert arguments("--help") == ["run", "--help"]


def test_the_exit_code_of_run_is_that_of_the_rank_that_failed(python):
    if _info.program() is None:
        pytest.skip("this build has no program commsched")
    process = python("import runpy; runpy.run_module('commsched', run_name='__main__')",
                     "run", "-n", "2", "--", sys.executable, "-c",
                     "raise SystemExit(7)")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 7, err
