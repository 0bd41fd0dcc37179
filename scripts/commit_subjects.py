"""Check commit subjects of BASE..HEAD: ``python scripts/commit_subjects.py``; BASE is from the environment.

Without BASE it is the commit where HEAD left origin/main. Nothing is checked where neither exists, or no git. A subject
is an imperative of at most 60 characters: "Report missing segment files", not "Reports", "Reported" or "Reporting".
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAX_CHARACTERS = 60


def words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# Imperatives that end like another form of a verb.
IMPERATIVES = words("bring embed exceed feed need ping proceed seed shed speed spring string succeed")
# Verbs whose form with -s is found by it; of other words in -s most are nouns, or imperatives such as "Pass".
VERBS = words(
    "accept add allow answer apply ask avoid build bump call carry catch change check clean close compare compile copy "
    "correct count cover cut declare decode delete describe do document draw drop end exclude explain fail find fix "
    "fold forbid format get give go group handle have hide hold ignore improve include introduce is join judge keep "
    "let limit list load look lower make mark match measure mend merge move name open order parse pass pin print put "
    "raise read record reduce refuse remove rename replace report require restore return reuse run say scan search see "
    "send set share show skip sort split start state stop store support take tell test tidy try turn update upgrade "
    "use verify wait warn work wrap write"
)
# First words that begin a sentence about something.
NO_VERBS = words(
    "a an the this that these those no not one two it its they there what where when which who why how if with without "
    "for from of on in at by to and or but also only all every each some more less new old docs wip"
)


def without_s(word: str) -> set[str]:
    """The verbs of which a word may be the form with -s."""
    verbs = {word[:-1]} if word.endswith("s") else set()
    verbs |= {word[:-2]} if word.endswith(("ses", "shes", "ches", "xes", "zes", "oes")) else set()
    return verbs | ({word[:-3] + "y"} if word.endswith("ies") else set())


def flaw(subject: str) -> str | None:
    """What is wrong with a subject; None if nothing is."""
    if len(subject) > MAX_CHARACTERS:
        return f"{len(subject)} characters, at most {MAX_CHARACTERS}"
    first = subject.split(" ")[0].rstrip(":,")
    word = first.lower()
    if not first[:1].isupper():
        return "begins with a small letter"
    if word in NO_VERBS:
        return f"begins with {first!r}, no imperative"
    if word not in IMPERATIVES and word.endswith(("ed", "ing")):
        return f"begins with {first!r}, no imperative"
    if word not in VERBS and VERBS & without_s(word):
        return f"begins with {first!r}, no imperative"
    return "ends with a full stop" if subject.endswith(".") else None


def git(root: Path, *arguments: str) -> str | None:
    """What git prints; None where it fails."""
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def base(root: Path, environment: dict[str, str]) -> str | None:
    """The commit that the checked ones follow: BASE, or where HEAD left origin/main; None for neither."""
    return environment.get("BASE") or git(root, "merge-base", "HEAD", "origin/main")


def subjects(root: Path, since: str) -> list[str]:
    """Abbreviated hash and subject of each commit since one, without merges."""
    listed = git(root, "log", "--no-merges", "--format=%h %s", f"{since}..HEAD")
    if listed is None:
        raise SystemExit(f"commit subjects: git knows no commit {since}; set BASE to one that HEAD follows")
    return listed.splitlines()


def main(root: Path = ROOT) -> int:
    """Print a line per subject that breaks a rule; exit code 1 for any."""
    if shutil.which("git") is None or not (root / ".git").exists():
        print("commit subjects: no git here, nothing checked")
        return 0
    since = base(root, dict(os.environ))
    if since is None:
        print("commit subjects: no BASE and no origin/main, nothing checked")
        return 0
    lines = subjects(root, since)
    flaws = [f"{line}: {wrong}" for line in lines if (wrong := flaw(line.partition(" ")[2]))]
    print("\n".join([*flaws, f"commit subjects: {len(lines)} checked, {len(flaws)} break a rule"]))
    return int(bool(flaws))


if __name__ == "__main__":
    sys.exit(main())
