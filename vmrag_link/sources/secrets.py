"""Texts that look like credentials, which a note must not carry into git by accident."""

from __future__ import annotations

import re

_PATTERNS = {
    "a private key": r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{60,255})\b",
    "a GitLab token": r"\bgl(?:pat|ptt|dt|rt|cbt)-[A-Za-z0-9_-]{20,255}",
    "an AWS access key": r"\b(?:AKIA|ASIA)[A-Z2-7]{16}\b",
    "a Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,255}|\bxapp-\d-[A-Za-z0-9-]{10,255}",
    "a Slack webhook": r"hooks\.slack\.com/services/T[A-Za-z0-9]{6,20}/B[A-Za-z0-9]{6,20}/[A-Za-z0-9]{16,40}",
    "a Google API key": r"\bAIza[A-Za-z0-9_-]{35}",
    "an Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{20,255}",
    "an OpenAI key": r"\bsk-(?:proj-|svcacct-)?[A-Za-z0-9_-]{40,255}",
    "a Stripe key": r"\b[rs]k_live_[A-Za-z0-9]{20,255}",
    "an npm token": r"\bnpm_[A-Za-z0-9]{36}\b",
    "a PyPI token": r"\bpypi-AgE[A-Za-z0-9_-]{40,500}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,60}\b",
}
_SECRETS = {name: re.compile(pattern) for name, pattern in _PATTERNS.items()}


def find_secret(text: str) -> str:
    """Return what kind of credential a text contains, or an empty text if none is recognized."""
    return next((name for name, pattern in _SECRETS.items() if pattern.search(text)), "")
