"""Which errors of a step are shown at the pin, and which findings fail it."""

from __future__ import annotations

import pytest

from vmrag_action import failures, findings
from vmrag_action.runner import Runner
from vmrag_link import errors


@pytest.mark.parametrize(
    ("error", "title", "at_pin"),
    [
        (errors.PinMalformed("x", hint="y"), "PIN_MALFORMED", True),
        (errors.PinMissing("x", hint="y"), "NO_PIN", True),
        (errors.NotInitialized("x", hint="y"), "NOT_INITIALIZED", True),
        (errors.RemoteNotTrusted("x", hint="y"), "REMOTE_NOT_TRUSTED", True),
        (errors.PinRevisionMissing("x", cause="PIN_MISSING_REVISION"), "PIN_MISSING_REVISION", True),
        (
            errors.PinRevisionMissing("x", cause="REMOTE_UNREACHABLE"),
            "The job's environment: REMOTE_UNREACHABLE",
            False,
        ),
        (errors.KnowledgeElsewhere("x", cause="REMOTE_NOT_FOUND"), "The job's environment: REMOTE_NOT_FOUND", False),
        (errors.AuthenticationFailed("x"), "The job's environment: AUTHENTICATION_FAILED", False),
        (errors.HistoryMissing("x"), "The job's environment: GIT_FAILED", False),
        (errors.SchemaTooNew("x"), "The job's environment: SCHEMA_TOO_NEW", False),
        (errors.FileFailed("x"), "The job's environment: FILE_SYSTEM_ERROR", False),
        (errors.Busy("x"), "The job's environment: BUSY", False),
        (errors.UsageInvalid("x"), "INVALID_PARAMETER", False),
        (errors.ConfigInvalid("x"), "CONFIG_INVALID", False),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_what_somebody_could_look_at_is_the_pins_and_all_else_is_not(error, title, at_pin, capsys):
    failures.annotate(Runner(), error)
    said = capsys.readouterr().out
    assert f"title={title.replace(':', '%3A')}" in said
    assert ("file=.dolt-version" in said) == at_pin
    assert (failures.NOT_THE_PIN in said) == title.startswith(failures.ENVIRONMENT)


@pytest.mark.parametrize(
    ("fail_on", "level", "failed"),
    [
        ("error", "error", True),
        ("error", "information", False),
        ("information", "information", True),
        ("information", "error", True),
        ("never", "error", False),
    ],
)
def test_what_fails_a_step_is_what_the_input_names_and_all_that_is_worse(monkeypatch, capsys, fail_on, level, failed):
    monkeypatch.setenv("INPUT_FAIL_ON", fail_on)
    found = [findings.ActionFinding(level, "KNOWLEDGE_DROPPED", "0123456", "It drops some.", "vmrag merge")]
    code = findings.report(Runner(), "Verify", found, "1 finding")
    assert (code == errors.FAILED_CHECK) is failed
    assert ("::error " in capsys.readouterr().out) is failed
