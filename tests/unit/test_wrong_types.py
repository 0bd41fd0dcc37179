"""Arguments of another type than their hints say are wrong calls, said in one line with what to give."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import auditor
from auditor.api.open_options import OpenOptions, audit_options, check
from auditor.api.opened import OpenedAudit

TEXTS = "give a text or a list of texts"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topic": 5}, f"topic is 5; {TEXTS}"),
        ({"topic": [1]}, f"topic is [1]; {TEXTS}"),
        ({"topic": None}, f"topic is None; {TEXTS}"),
        ({"rule": None}, f"rule is None; {TEXTS}"),
        ({"skip_rule": {"a"}}, "skip_rule is {'a'}; " + TEXTS),
        ({"only_partition": None}, "only_partition is None; give a text, a list of texts or a whole number"),
        ({"only_partition": [1]}, "only_partition is [1]; give a text, a list of texts or a whole number"),
        ({"only_broker": None}, "only_broker is None; give a whole number or a list of whole numbers"),
        ({"only_broker": "1"}, "only_broker is '1'; give a whole number or a list of whole numbers"),
        ({"only_broker": True}, "only_broker is True; give a whole number or a list of whole numbers"),
        ({"remote": 5}, "remote is 5; give a text, a path or a list of paths"),
        ({"baseline": 5}, "baseline is 5; give a text, a path or None"),
        ({"work": 3}, "work is 3; give a text, a path or None"),
        ({"clusters": 5}, "clusters is 5; give a dict by texts, a text or a path"),
        ({"clusters": {5: "a"}}, "clusters is {5: 'a'}; give a dict by texts, a text or a path"),
        ({"cluster_name": 5}, "cluster_name is 5; give a text or None"),
        ({"max_findings": "x"}, "max_findings is 'x'; give a whole number"),
        ({"split_size": "x"}, "split_size is 'x'; give a whole number"),
        ({"max_batch_bytes": "x"}, "max_batch_bytes is 'x'; give a whole number"),
        ({"max_batch_ratio": 1.5}, "max_batch_ratio is 1.5; give a whole number"),
        ({"records": "no"}, "records is 'no'; give True or False"),
        ({"policy": None}, "policy is None; give a text"),
        ({"as_of": 1.5}, "as_of is 1.5; give a text, a whole number, a datetime or None"),
        ({"fail_on": 1}, "fail_on is 1; give 'critical', 'error', 'warning', 'info' or 'never'"),
        ({"master": 5}, "master is 5; give a text or None"),
        ({"bootstrap_server": ["a:1"]}, "bootstrap_server is ['a:1']; give a text or None"),
        ({"client_config": "x"}, "client_config is 'x'; give a dict by texts or None"),
        ({"progress": "yes"}, "progress is 'yes'; give True or False or None"),
    ],
)
def test_what_is_of_another_type_is_said(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with pytest.raises(auditor.AuditInputError) as raised:
        auditor.open(tmp_path, **given)
    assert str(raised.value) == says


def test_a_long_value_is_cut_and_on_one_line() -> None:
    with pytest.raises(auditor.AuditInputError) as raised:
        audit_options(("x",), {"work": type("Wide", (), {"__repr__": lambda _: "wide\n" * 400})()})
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_every_option_takes_what_its_hint_says() -> None:
    """One of each kind that docs name, and every hint has words."""
    now = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
    given = {
        "topic": ["a", "b"], "only_partition": 3, "only_broker": (1, 2), "since": now, "as_of": "now", "rule": (),
        "skip_rule": ("late-start",), "records": True, "policy": "auto", "at_once": False, "whole": True,
        "remote": [Path("r")], "fail_on": "never", "fail_on_unsure": True, "baseline": None, "max_findings": 7,
        "cluster_name": "prod", "clusters": {"id": "a", "other": {"name": "b", "labels": {}}}, "include_payload": True,
        "work": Path("w"), "resume": True, "split_size": 1 << 20, "max_batch_bytes": 1 << 20, "max_batch_ratio": 10,
    }  # fmt: skip
    assert given.keys() == OpenOptions.__annotations__.keys()
    options = audit_options(("x",), given)
    assert (options.remote, options.work, options.only_partitions) == (("r",), "w", ("3",))
    for name, hint in get_type_hints(OpenOptions).items():
        with pytest.raises(auditor.AuditInputError, match=f"{name} is .*; give "):
            check({name: object()}, {name: hint})


def test_filters_frames_and_what_is_written_are_held_against_theirs(tmp_path: Path) -> None:
    wrong: list[tuple[Any, dict[str, Any]]] = [
        (auditor.Findings([], None).where, {"rule": None}),  # type: ignore[arg-type]
        (auditor.Findings([], None).where, {"broker": "1"}),  # type: ignore[arg-type]
        (auditor.Findings([], None).where, {"condition": "error"}),  # type: ignore[arg-type]
        (lambda **given: auditor.replay_batches(None, **given), {"compacted": 5}),
        (lambda **given: auditor.replay_batches(None, **given), {"rule": None}),
    ]
    (tmp_path / "t-0").mkdir()
    with auditor.open(tmp_path, master="inline[1]") as audit:
        assert isinstance(audit, OpenedAudit)
        wrong += [
            (audit.timeline, {"topic": 5}),
            (lambda **given: audit.write(tmp_path / "out", **given), {"run_id": 1}),
        ]
        wrong += [(audit.what_if, {"duplicate_window": "x"}), (audit.write, {"out": 5})]
        for call, given in wrong:
            (name,) = given
            with pytest.raises(auditor.AuditInputError, match=f"^{name} is .*; give "):
                call(**given)
