"""Hosts are compared by what they are, not by how they are spelled."""

from __future__ import annotations

import time

import pytest

from vmrag_link import endpoint, hosts
from vmrag_link.engines.dolt.access import DoltAccess, is_local
from vmrag_link.errors import UsageInvalid
from vmrag_link.toolsets.libraries.web.urls import parse_url

HERE = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "0177.0.0.1",
    "0x7f.1",
    "0x7F000001",
    "2130706433",
    "017700000001",
    "127.0.0.1.",
]


@pytest.mark.parametrize("host", HERE)
def test_every_spelling_of_an_address_is_that_address(host):
    assert hosts.normalize_host(host) == "127.0.0.1"
    assert hosts.is_loopback(host)
    assert parse_url(f"http://{host}/x").text == "http://127.0.0.1/x"
    assert endpoint.is_private(f"http://{host}:8000")
    assert is_local(DoltAccess(server=f"{host}:3306"))


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("Example.ORG.", "example.org"),
        ("LocalHost.", "localhost"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("127.example.org", "127.example.org"),
        ("0x7f.example", "0x7f.example"),
    ],
)
def test_host_has_one_form(host, expected):
    assert hosts.normalize_host(host) == expected


def test_names_that_only_look_like_this_machine_are_others():
    for host in ("127.example.org", "localhost.example.org", "10.0.0.1", "[fe80::1]", "0.0.0.1", ""):
        assert not hosts.is_loopback(host)
    assert not endpoint.is_private("http://127.example.org/")


@pytest.mark.parametrize(
    "host", ["256.0.0.1", "1.2.3.4.5", "08.1", "0x100000000", "4294967296", "docs.1", "1.2.3.256", "a..b"]
)
def test_invalid_numeric_hosts_are_rejected(host):
    with pytest.raises(UsageInvalid):
        parse_url(f"http://{host}/")


@pytest.mark.parametrize("host", ["a" * 26 + "!", "a-" * 14, "a" * 64, "a." * 13 + "-b", "a" * 254])
def test_invalid_host_names_are_rejected_quickly(host):
    """A redirection, a sitemap and an agent name hosts: letters are not tried in all ways."""
    since = time.process_time()
    with pytest.raises(UsageInvalid):
        parse_url(f"http://{host}/")
    assert time.process_time() - since < 1


@pytest.mark.parametrize("host", ["a", "x_1.example.org", "a-b.c--d.example", "a" * 63 + ".org", ".".join(["ab"] * 84)])
def test_names_of_hosts_are_taken(host):
    assert parse_url(f"http://{host}/").host == host
