"""``auditor completion``: completion scripts for shells, generated from the parsers."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from auditor.base.errors import SHTAB, AuditInputError, install_command
from auditor.commands.arguments import examples

SHELLS = ("bash", "zsh", "fish")
_FOLDERS, _FILES, _RULES = ("DIR",), ("PATH", "FILE"), ("--rule", "--skip-rule")


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the console script's."""
    p = commands.add_parser(
        "completion",
        help="print the completion script for bash, zsh or fish",
        epilog=examples(
            'eval "$(auditor completion bash)"',
            'auditor completion zsh > "${fpath[1]}/_auditor"',
            "auditor completion fish > ~/.config/fish/completions/auditor.fish",
        ),
    )
    p.add_argument("shell", choices=SHELLS, help="bash, zsh or fish")
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
