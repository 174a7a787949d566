"""Subcommands of `python -m commsched`, a module each, which has

HELP                         one line;
add_arguments(parser)        declares its arguments;
main(options) -> int         does it, and returns the exit code: 0, or 1 if it failed.
"""
