"""Texts that look like credentials. A note must not put them into git by accident."""

from __future__ import annotations

import re
from typing import NamedTuple


class _Credential(NamedTuple):
    kind: str
    marks: tuple[str, ...]
    """A credential contains one of these texts. The pattern is compiled only if a note contains one
    as well.
    """
    pattern: str


_CREDENTIALS = (
    _Credential("a private key", ("PRIVATE KEY",), r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
    _Credential("a GitHub token", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b"),
    _Credential("a GitHub token", ("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{60,255}\b"),
    _Credential(
        "a GitLab token", ("glpat-", "gldt-", "glrt-", "glcbt-"), r"\bgl(?:pat|dt|rt|cbt)-[A-Za-z0-9_-]{20,255}"
    ),
    _Credential("an AWS access key", ("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b"),
    _Credential("a Slack token", ("xox",), r"\bxox[abeoprs]-[A-Za-z0-9-]{10,255}"),
    _Credential("a Slack token", ("xapp-",), r"\bxapp-\d-[A-Za-z0-9-]{10,255}"),
    _Credential(
        "a Slack webhook",
        ("hooks.slack.com",),
        r"hooks\.slack\.com/services/T[A-Za-z0-9]{6,20}/B[A-Za-z0-9]{6,20}/[A-Za-z0-9]{16,40}",
    ),
    _Credential("a Google API key", ("AIza",), r"\bAIza[A-Za-z0-9_-]{35}"),
    _Credential("an Anthropic key", ("sk-ant-",), r"\bsk-ant-[A-Za-z0-9_-]{20,255}"),
    _Credential("an OpenAI key", ("sk-",), r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{40,255}"),
    _Credential("a Stripe key", ("k_live_",), r"\b[rs]k_live_[A-Za-z0-9]{20,255}"),
    _Credential("an npm token", ("npm_",), r"\bnpm_[A-Za-z0-9]{36}\b"),
    _Credential("a PyPI token", ("pypi-AgE",), r"\bpypi-AgE[A-Za-z0-9_-]{40,500}"),
    _Credential("a Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,60}\b"),
)


def find_secret(text: str) -> str:
    """Return what kind of credential a text contains, or an empty text if none is recognized."""
    for kind, marks, pattern in _CREDENTIALS:
        if any(mark in text for mark in marks) and re.search(pattern, text):
            return kind
    return ""
