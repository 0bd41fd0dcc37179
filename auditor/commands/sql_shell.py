"""The shell of ``auditor sql``: one start, many questions, each ended by a semicolon.

The terminal's own line editor (readline) keeps the history and completes words: it comes with Python, and what a shell
needs beyond it does not pay for a dependency (docs/decisions/012-python-and-packages.md).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from auditor.base.errors import AuditInputError

if TYPE_CHECKING:
    import pyarrow as pa

    from auditor.pipeline.whole_audit import Audit

PROMPT, MORE = "sql> ", "...> "
ENDS = ("exit", "quit", "\\q")
KEYWORDS = ("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "LIMIT", "DESCRIBE", "SHOW TABLES", "count(*)")


def run(audit: Audit, show: Callable[[pa.Table], None]) -> None:
    """Answers questions until the input ends. A wrong one is one line, and the shell stays open.

    Errors: :class:`AuditInputError` for a wrong path, before the first question.
    """
    _ = audit.inventory
    asked = sys.stdin.isatty()
    if asked:
        sys.stdout.write(
            "SHOW TABLES lists the tables, DESCRIBE name the columns; a semicolon ends a question, exit all.\n"
        )
    with _edited(audit) if asked else contextlib.nullcontext():
        for text in questions(asked):
            try:
                show(audit.query(text))
            except AuditInputError as error:
                sys.stderr.write(f"auditor: {error}\n")


def questions(asked: bool) -> Iterator[str]:
    """The texts between semicolons; ``asked``: of somebody at a terminal, who is given a prompt."""
    lines: list[str] = []
    while True:
        try:
            line = input((MORE if lines else PROMPT) if asked else "")
        except EOFError:
            break
        except KeyboardInterrupt:  # the line is given up, not the shell
            sys.stdout.write("\n")
            lines = []
            continue
        if not lines and line.strip().rstrip(";").lower() in ENDS:
            return
        if line.strip():
            lines.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


def words(payload: bool) -> list[str]:
    """What can be completed: keywords, tables, columns."""
    from auditor.pipeline.table_parts import schemas

    known = schemas(payload)
    return sorted({*KEYWORDS, *known, *(column for columns in known.values() for column in columns.names)})


@contextlib.contextmanager
def _edited(audit: Audit) -> Iterator[None]:
    """The line editor with the history of earlier shells, where this Python has one."""
    try:
        import readline
    except ImportError:
        yield
        return
    history = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state", "auditor", "sql_history")
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    known = words(audit.options.include_payload)

    def complete(start: str, at: int) -> str | None:
        found = [word for word in known if word.lower().startswith(start.lower())]
        return found[at] if at < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" \t\n,()=<>.;")
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(1000)
            readline.write_history_file(history)
