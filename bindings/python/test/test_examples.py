"""The examples print what they are said to print."""

import pathlib
import runpy

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "python"


@pytest.mark.parametrize("name", ["plan_and_run"])
def test_an_example_prints_what_is_expected(name, capsys):
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out == (EXAMPLES / "expected.txt").read_text()
