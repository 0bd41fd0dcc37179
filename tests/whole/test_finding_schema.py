"""The JSON Schema of findings that the package ships, against findings of real logs."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import jsonschema
import pytest

from auditor.rules.seen.view import FIELDS, SEVERITIES
from tests import corpora
from tests.audited import audit_folder

SCHEMA: dict[str, Any] = json.loads(files("auditor.outputs").joinpath("finding.schema.json").read_text("utf-8"))


def test_it_has_the_contracts_fields() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert (tuple(SCHEMA["properties"]), tuple(SCHEMA["required"])) == (FIELDS, FIELDS)
    assert tuple(SCHEMA["properties"]["severity"]["enum"]) == SEVERITIES


@pytest.mark.parametrize("name", ["hanging-36", "altered-41", "replicas-41"])
def test_findings_are_of_it(name: str) -> None:
    check = jsonschema.Draft202012Validator(SCHEMA)
    found = audit_folder(corpora.unpack(name), corpora.manifest(name)["copied_at"])
    assert found
    assert not [error.message for f in found for error in check.iter_errors(json.loads(f.to_json()))]


def test_what_is_no_finding_is_seen() -> None:
    assert list(jsonschema.Draft202012Validator(SCHEMA).iter_errors({"rule": "x"}))
