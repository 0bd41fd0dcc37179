"""auditor.connectors.stores.retries: what a store's refusal means, how long it is asked, and what is raised then."""

from __future__ import annotations

import itertools

import pytest

from auditor.base.errors import StoreTrouble
from auditor.connectors.stores import retries
from auditor.connectors.stores.retries import Meaning

# As pyarrow 26 says them of a server that answers with these codes.
TOKEN = (
    "When listing objects under key 'a/' in bucket 'b': AWS Error UNKNOWN (HTTP status 403) during ListObjectsV2 "
    "operation: Unable to parse ExceptionName: ExpiredToken Message: m"
)
NO_BODY = "AWS Error ACCESS_DENIED during HeadObject operation: No response body."
DENIED = "AWS Error ACCESS_DENIED during ListObjectsV2 operation: Access Denied"
SLOW = "AWS Error SLOW_DOWN during ListObjectsV2 operation: Please reduce your request rate."
TIMEOUT = (
    "AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout was reached; Details: Operation "
    "too slow. Less than 1 bytes/sec transferred the last 3 seconds"
)


@pytest.mark.parametrize(
    ("error", "said", "code"),
    [
        (OSError(TOKEN), Meaning.TROUBLE, "ExpiredToken"),
        (OSError(SLOW), Meaning.TROUBLE, "SLOW_DOWN"),
        (OSError(TIMEOUT), Meaning.TROUBLE, "NETWORK_CONNECTION (curlCode: 28, Timeout was reached)"),
        (OSError(NO_BODY), Meaning.NO_REASON, "ACCESS_DENIED"),
        (OSError(DENIED), Meaning.DENIED, "ACCESS_DENIED"),
        (retries.Coded("AccessDenied"), Meaning.DENIED, "AccessDenied"),
        (retries.Coded("SlowDown"), Meaning.TROUBLE, "SlowDown"),
        (retries.Coded("NoSuchKey"), Meaning.GONE, "NoSuchKey"),
        (FileNotFoundError(2, "No such file or directory"), Meaning.GONE, "No such file or directory"),
        (RuntimeError("connection reset, to user:password@host"), Meaning.TROUBLE, "RuntimeError"),
        (ValueError("no name"), Meaning.NO_NAME, "ValueError"),
    ],
)
def test_what_a_refusal_means(error: Exception, said: Meaning, code: str) -> None:
    assert (retries.meaning(error), retries.code_of(error)) == (said, code)


def tried(*answers: Exception | int, named: Exception | None = None, patience: float = 5.0) -> tuple[object, int]:
    """What comes of a store that answers in turn, the last for ever, and how often it was asked."""
    following = itertools.chain(answers, itertools.repeat(answers[-1]))
    count = 0

    def work() -> int:
        nonlocal count
        count += 1
        answer = next(following)
        if isinstance(answer, Exception):
            raise answer
        return answer

    try:
        return retries.ask(work, lambda: named, lambda why: None, most_s=patience), count
    except (OSError, StoreTrouble) as error:
        return error, count


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that waiting moves on."""
    now = [0.0]
    monkeypatch.setattr(retries.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(retries.time, "sleep", lambda s: now.__setitem__(0, now[0] + s))


def test_what_passes_leaves_nothing() -> None:
    heard: list[str] = []
    with retries.heard_by(heard.append):
        assert tried(OSError(TOKEN), OSError(SLOW), 7) == (7, 3)
    assert heard == ["the store says ExpiredToken: asked again", "the store says SLOW_DOWN: asked again"]


def test_what_lasts_is_raised_with_its_code() -> None:
    error, count = tried(OSError(SLOW))
    assert isinstance(error, StoreTrouble)
    assert error.code == "SLOW_DOWN"
    # Waits of 0.1, 0.2 ... up to 3.2 s, each at half at least, fit into 5 s six or seven times.
    assert 6 <= count <= 8


def test_who_resigned_gets_an_error_with_the_code_and_the_next_is_asked_once() -> None:
    with retries.resigned():
        first, many = tried(OSError(SLOW))
        second, once = tried(OSError(SLOW))
        assert tried(OSError(SLOW), 7) == (first, 1) or retries.gave_up()
    assert [str(getattr(e, "strerror", "")) for e in (first, second)] == ["the store says SLOW_DOWN"] * 2
    assert many > once == 1
    assert isinstance(tried(OSError(SLOW))[0], StoreTrouble)


@pytest.mark.parametrize("error", [FileNotFoundError(2, "gone"), OSError(DENIED), retries.Coded("AccessDenied")])
def test_what_is_said_of_the_file_is_said_once(error: Exception) -> None:
    assert tried(error) == (error, 1)


def test_a_refusal_without_a_reason_is_named_in_another_way() -> None:
    """A HEAD has no body: an expired token looks like what is denied by name, and the list tells them apart."""
    expired, _ = tried(OSError(NO_BODY), named=OSError(TOKEN))
    assert isinstance(expired, StoreTrouble)
    assert expired.code == "ExpiredToken"
    denied, count = tried(OSError(NO_BODY), named=None)
    assert isinstance(denied, OSError)
    assert count == retries.UNNAMED_TRIES + 1  # the list was granted twice
    assert tried(*[OSError(NO_BODY)] * retries.UNNAMED_TRIES, 7, named=None)[0] == 7


def test_refusals_of_other_kinds_before_make_no_denial() -> None:
    """A store that fails at random: what it says without a reason after other refusals says nothing of the file."""
    others = [OSError(SLOW), OSError(TOKEN), retries.Coded("InternalError")] * 2
    # Eight waits of 0.1, 0.2 ... 8 s: 20.7 s at most.
    assert tried(*others, OSError(NO_BODY), OSError(NO_BODY), 7, named=None, patience=30.0) == (7, len(others) + 3)
    assert tried(OSError(NO_BODY), OSError(NO_BODY), 7, named=None) == (7, 3)
