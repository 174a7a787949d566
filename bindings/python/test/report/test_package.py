"""`cs.report` is the function, also once its package has been imported."""

import commsched as cs
import commsched.report.analysis  # noqa: F401
from commsched.report.session import Report


def test_report_is_called_by_the_package_s_name():
    assert isinstance(cs.report(skip=2), Report)


def test_importing_the_package_imports_no_pytorch(python):
    process = python(
        "import sys, commsched, commsched.report.analysis\n"
        "print('torch' in sys.modules)"
    )
    assert process.communicate()[0] == "False\n"
