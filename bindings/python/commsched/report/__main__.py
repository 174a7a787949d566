"""`python -m commsched.report`: as `python -m commsched report`."""

from __future__ import annotations

import argparse
import sys

from .command import HELP, add_arguments, main

parser = argparse.ArgumentParser(prog="commsched report", description=HELP)
add_arguments(parser)
sys.exit(main(parser.parse_args()))
