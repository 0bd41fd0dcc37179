"""``auditor completion``: what a shell needs to complete commands, options and their values, made of the parsers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from auditor.base.errors import SHTAB, AuditInputError, install_command
from auditor.commands.arguments import examples

SHELLS = ("bash", "zsh")
_FOLDERS, _FILES, _RULES = ("DIR",), ("PATH", "FILE"), ("--rule", "--skip-rule")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "completion",
        help="what bash or zsh need to complete commands, options and rules",
        epilog=examples('eval "$(auditor completion bash)"', 'auditor completion zsh > "${fpath[1]}/_auditor"'),
    )
    p.add_argument("shell", choices=SHELLS, help="the shell that it is for")
    p.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code. ``args.top`` is the parser of all commands."""
    try:
        import shtab
    except ImportError:
        raise AuditInputError(
            f"completion needs shtab, which is not installed; run: {install_command((SHTAB,))}"
        ) from None
    from auditor.rules.catalogue import registry

    rules = sorted({*registry.load(), *registry.kinds()})
    for parser in dict(args.commands).values():
        for action in parser._actions:  # argparse has no public list of them
            if action.metavar in _FOLDERS:
                action.complete = shtab.DIRECTORY
            elif action.metavar in _FILES or action.type is Path:
                action.complete = shtab.FILE
            elif action.metavar == "ID" and (not action.option_strings or action.option_strings[-1] in _RULES):
                action.choices = rules
    sys.stdout.write(shtab.complete(args.top, args.shell) + "\n")
    return 0
