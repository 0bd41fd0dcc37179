"""``python -m tests.conformance PATH...``: a line a failing case, then ``N passed, N failed``; exit 0 if all passed.

Each case is put to the model, and those that bytes can hold to the reader that audits run as well. Before the last line
one says how many were held by bytes, and how many no log can hold.
"""

from __future__ import annotations

import sys

from tests.conformance.cases import case_files, judge, read_cases
from tests.proof import by_bytes
from tests.proof.case_logs import Held


def main(paths: list[str]) -> int:
    """Run every case of ``paths`` (files or directories) and print what failed. Returns the exit status."""
    if not paths:
        print("usage: python -m tests.conformance PATH...", file=sys.stderr)
        return 2
    passed = failed = held = unheld = 0
    for file in case_files(paths):
        try:
            cases = read_cases(file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            failed += 1
            print(f"{file}: not a conformance file: {error!r}")
            continue
        logs = by_bytes.hold([case for case in cases if "id" in case])
        for case in cases:
            log = logs.pop(str(case.get("id")), Held([], "no log"))
            found = judge(case) + [f"by bytes: {line}" for line in log.differences]
            held, unheld = held + (not log.unheld), unheld + bool(log.unheld)
            passed, failed = passed + (not found), failed + bool(found)
            if found:
                print(f"{case.get('id', file)}: {'; '.join(found)}")
        for name, log in logs.items():  # what was found in a log of several cases, and is of none of them
            failed += 1
            print(f"{name}: by bytes: {'; '.join(log.differences)}")
    print(f"{held} of them by bytes too; {unheld} that no log can hold")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
