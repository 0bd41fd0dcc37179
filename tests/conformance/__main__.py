"""``python -m tests.conformance PATH...``: a line a failing case, then ``N passed, N failed``; exit 0 if all passed."""

from __future__ import annotations

import sys

from tests.conformance.cases import case_files, judge, read_cases


def main(paths: list[str]) -> int:
    """Run every case of ``paths`` (files or directories) and print what failed. Returns the exit status."""
    if not paths:
        print("usage: python -m tests.conformance PATH...", file=sys.stderr)
        return 2
    passed = failed = 0
    for file in case_files(paths):
        try:
            cases = read_cases(file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            failed += 1
            print(f"{file}: not a conformance file: {error!r}")
            continue
        for case in cases:
            found = judge(case)
            passed, failed = passed + (not found), failed + bool(found)
            if found:
                print(f"{case.get('id', file)}: {'; '.join(found)}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
