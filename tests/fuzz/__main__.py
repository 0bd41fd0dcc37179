"""``python -m tests.fuzz``: run mutants; exit 1 if any raises, with what is needed to see it again.

With ``NUMBA_BOUNDSCHECK=1`` in the environment no kernel may read or write outside its arrays. A crash leaves the
mutant's kind and number in ``--last``; one that takes more than a minute of processor time (a directory: five) ends the
process with a stack trace.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.fuzz import every_way, herds, mutate, mutated_directories, patience, seeds
from tests.fuzz.targets import TARGETS

# Mutants of a kind in a round: where the kernels and most of the formats are, most of the work is.
SHARES = {"segment": 4, "__transaction_state": 3, "__consumer_offsets": 3, "__cluster_metadata": 3, "dump": 3,
          "console": 3, "snapshot": 4, "__share_group_state": 2, "__remote_log_metadata": 2}  # fmt: skip
SLOW_S = 1.0  # processor time for a mutant; all are below 64 KiB


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--mutants", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the first mutant's number, to go on where a run ended")
    parser.add_argument("--kind", choices=sorted(TARGETS), help="only mutants of one kind")
    parser.add_argument("--number", type=int, help="with --kind: only this mutant")
    parser.add_argument("--whole", action="store_true", help="mutants of log directories, through the whole audit")
    parser.add_argument(
        "--sealed", action="store_true", help="histories with extreme numbers under right checksums, every way"
    )
    parser.add_argument("--herds", action="store_true", help="the same, hundreds of mutated files in each directory")
    parser.add_argument("--seconds", type=int, default=1 << 30, help="with --sealed: begin none after so many")
    parser.add_argument("--save", type=Path, help="with --number: write the mutant to this file, or folder")
    parser.add_argument("--last", type=Path, help="a file that always says which mutant is at hand")
    args = parser.parse_args()
    if args.whole and args.number is not None:
        mutated_directories.run_one(args.seed, args.number, args.save)
        return 0
    if args.sealed:
        numbers = range(args.start, args.start + args.mutants) if args.number is None else [args.number]
        return run_sealed(numbers, args.seed, args.last, args.save, args.seconds)
    if args.herds:
        if args.number is None:
            return run_herds(args.start, args.mutants, args.seed, args.last)
        print("\n".join(found := herds.run_one(args.seed, args.number, args.save)) or "it does not fail")
        return int(bool(found))
    if args.number is not None:
        data = mutate.mutated(args.kind, seeds.by_kind()[args.kind], args.seed, args.number)
        if args.save:
            args.save.write_bytes(data)
        TARGETS[args.kind](data)
        return 0
    numbers = range(args.start, args.start + args.mutants)
    return run_whole(numbers, args.seed, args.last) if args.whole else run(numbers, args.seed, args.kind, args.last)


def run(numbers: range, seed: int, kind: str | None, last: Path | None) -> int:
    known = seeds.by_kind()
    kinds = [kind] if kind else [name for name in known for _ in range(SHARES.get(name, 1))]
    note = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if last else -1
    for name in known:
        TARGETS[name](known[name][0])  # compiles, so that the first mutant is not slow
    failed = set[str]()  # lines of code that raised, each reported once
    before, slowest, spent = _memory(), (0.0, "", 0), Counter[str]()
    for number in numbers:
        name = kinds[number % len(kinds)]
        if note >= 0:
            os.pwrite(note, f"{name} {number}\n{' ' * 40}".encode(), 0)
        if number % 256 == 0:
            patience.ends_after(60)
        data = mutate.mutated(name, known[name], seed, number)
        began = time.process_time()
        try:
            TARGETS[name](data)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this program looks for
            if (line := str(traceback.extract_tb(error.__traceback__)[-1])) not in failed:
                traceback.print_exc()
                print(f"python -m tests.fuzz --seed {seed} --kind {name} --number {number}", file=sys.stderr)
            failed.add(line)
        took = time.process_time() - began
        spent[name] += round(took * 1e6)
        slowest = max(slowest, (took, name, number))
    patience.ends_after(0)
    times = ", ".join(f"{name} {us // 1000} ms" for name, us in spent.most_common(5))
    what = f"{len(numbers)} mutants of {len(spent)} kinds"
    print(f"{what}, slowest {slowest[0] * 1e3:.0f} ms ({slowest[1]} {slowest[2]}); most time: {times}")
    print(f"memory grew by {(_memory() - before) >> 20} MiB")
    if slowest[0] > SLOW_S:
        print(f"too slow: {slowest}", file=sys.stderr)
    return int(bool(failed) or slowest[0] > SLOW_S)


def run_whole(numbers: range, seed: int, last: Path | None) -> int:
    """Mutated directories through the whole audit; 1 if any raises."""
    run = _Directories("--whole", seed, last)
    for number in numbers:
        run.one(number, partial(mutated_directories.run_one, seed, number))
    return run.end(f"{len(numbers)} directories")


def run_herds(start: int, mutants: int, seed: int, last: Path | None) -> int:
    """Herds through the whole audit until there were so many mutants; 1 if any raises, cut down to what it takes."""
    run, number, done = _Directories("--herds", seed, last), start, 0
    while done < mutants:
        herd = herds.herd(seed, number)
        if not run.one(number, partial(mutated_directories.audit_tree, herd.tree(), number)):
            print("\n".join(herds.run_one(seed, number)), file=sys.stderr)
        number, done = number + 1, done + len(herd.mutants)
        if number % 100 == 0:
            print(f"{done} mutated files in {number - start} directories", flush=True)
    return run.end(f"{done} mutated files in {number - start} directories")


def run_sealed(numbers: Sequence[int], seed: int, last: Path | None, save: Path | None, seconds: int) -> int:
    """Histories under right checksums, every way; 1 if any fails. Each cause is printed whole once, and all at the end
    with the numbers that have it."""
    if len(numbers) > 1:
        every_way.warm_up()
    began, causes, done = time.monotonic(), dict[str, list[int]](), 0
    for number in numbers:
        if time.monotonic() - began > seconds:
            break
        done += 1
        if last:
            last.write_text(f"--sealed {number}\n")
        for failure in every_way.failures(seed, number, save):
            if failure.cause not in causes:
                print(f"python -m tests.fuzz --sealed --seed {seed} --number {number}: {failure.way}", file=sys.stderr)
                print(failure.cause, failure.trace, sep="\n", file=sys.stderr, flush=True)
            causes.setdefault(failure.cause, []).append(number)
    for cause, failed in sorted(causes.items(), key=lambda item: -len(item[1])):
        print(f"{len(set(failed))} of seed {seed}: {cause}: {sorted(set(failed))[:10]}")
    failed = {number for of_cause in causes.values() for number in of_cause}
    print(f"{done} directories, {len(failed)} failed, {time.monotonic() - began:.0f} s")
    return int(bool(failed))


class _Directories:
    """What came of directories through the whole audit, one after the other."""

    def __init__(self, option: str, seed: int, last: Path | None) -> None:
        self.option, self.seed, self.last = option, seed, last
        self.failed = Counter[str]()
        self.before, self.slowest = _memory(), (0.0, 0)

    def one(self, number: int, run: Callable[[], None]) -> bool:
        """Runs one; whether it did not raise. Each line of code that raises is reported once."""
        if self.last:
            self.last.write_text(f"{self.option} {number}\n")
        patience.ends_after(herds.PATIENCE_S)
        began = time.process_time()
        line = ""
        try:
            run()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this program looks for
            if not self.failed[line := str(traceback.extract_tb(error.__traceback__)[-1])]:
                traceback.print_exc()
                print(f"python -m tests.fuzz {self.option} --seed {self.seed} --number {number}", file=sys.stderr)
            self.failed[line] += 1
        self.slowest = max(self.slowest, (time.process_time() - began, number))
        patience.ends_after(0)
        return not line or self.failed[line] > 1

    def end(self, what: str) -> int:
        """Prints the sums; the exit status."""
        print(f"{what}, {self.failed.total()} failed, slowest {self.slowest[0]:.1f} s ({self.slowest[1]})")
        print(f"memory grew by {(_memory() - self.before) >> 20} MiB")
        return int(bool(self.failed))


def _memory() -> int:
    """Bytes of the process at their most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    sys.exit(main())
