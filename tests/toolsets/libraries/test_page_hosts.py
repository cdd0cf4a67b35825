"""Requests to hosts of URLs: agents contact only hosts that the user trusts, and `vmrag refresh`
only those from which this user has imported pages.

A proxy takes the place of the hosts of the internet: it sees each outgoing request.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.client import Client

from tests.support import notes
from tests.support.mcp import ALL, Tools, Yes
from tests.support.terminal import Project
from tests.support.websites import Website, website
from vmrag_link import agreements, hints
from vmrag_mcp.call import Behaviour
from vmrag_mcp.options import select_tools
from vmrag_mcp.server import KnowledgeServer
from vmrag_mcp.session import Session

pytestmark = pytest.mark.hooks("off")

template, project = notes.template, notes.project

both_eras = pytest.mark.parametrize("era", ["legacy", "auto"])
SECRET = "http://collector.example/?d=secret"
YES, ALWAYS = {"confirm": True}, {"confirm": True, "remember": True}


@pytest.fixture
def internet(monkeypatch) -> Iterator[Website]:
    """Serve each host except this machine.

    Pages have their whole URLs as keys.
    """
    with website() as proxy:
        for name in ("all_proxy", "https_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.setenv("http_proxy", proxy.url())
        for url in (SECRET, "http://docs.example/guide", "http://docs.example/owls", "http://mirror.example/guide"):
            proxy.pages[url] = (200, {"Content-Type": "text/html"}, f"<title>T</title><p>From {url}".encode())
        yield proxy


def asked(internet: Website) -> list[str]:
    paths = [request.path for request in internet.requests if not request.path.endswith("robots.txt")]
    internet.requests.clear()
    return paths


def named(project: Project, key: str) -> list[str]:
    return project.run("config", "--get-all", f"vmrag.{key}").stdout.split()


def redirect(to: str) -> tuple[int, dict[str, str], bytes]:
    return 302, {"Location": to}, b""


def talk(project: Project, url: str, *answers: Any, era: str = "auto") -> tuple[dict[str, Any], list[str]]:
    """Return the result of `ingest_url`, and the questions to the user, who gives these answers."""
    questions: list[str] = []

    async def person(_: Any, params: Any) -> types.ElicitResult:
        answer = answers[min(len(questions), len(answers) - 1)]
        questions.append(params.message)
        return types.ElicitResult(action="accept" if answer else "decline", content=answer or YES)

    async def run() -> dict[str, Any]:
        server = KnowledgeServer(Session(project.top, Behaviour()), select_tools(ALL))
        async with Client(server.sdk, mode=era, elicitation_callback=person) as client:
            return (await client.call_tool("ingest_url", {"url": url})).structured_content

    return anyio.run(run), questions


# -- agents


def test_agent_sends_nothing_to_an_untrusted_host(project, internet):
    tools = Tools(project.top)
    for url in (SECRET, "http://collector.example:8080/secret", "https://secret.collector.example/"):
        refused = tools.error("REMOTE_NOT_TRUSTED", "ingest_url", url=url)
        assert "git config --add vmrag.trustedHost" in str(refused["suggestions"])
        for argument in ("confirm", "agreed", "trust"):
            tools.error("INVALID_PARAMETER", "ingest_url", url=url, **{argument: True})
    assert asked(internet) == []


def test_command_that_the_refusal_names_is_the_way(project, internet):
    tools = Tools(project.top)
    refused = tools.error("REMOTE_NOT_TRUSTED", "ingest_url", url=SECRET)
    [command] = [suggestion for suggestion in refused["suggestions"] if suggestion.startswith("run 'git config")]
    project.git(*shlex.split(hints.list_commands(command)[0])[1:])
    assert tools("ingest_url", url=SECRET)["status"] == "indexed"
    assert tools("ingest_url", url="http://COLLECTOR.example.:80/?d=secret")["status"] == "skipped"
    tools.error("REMOTE_NOT_TRUSTED", "ingest_url", url="http://collector.example:8080/?d=secret")
    assert asked(internet) == [SECRET, SECRET]


@both_eras
def test_person_sees_host_and_address_and_their_yes_counts_once(project, internet, era):
    for no in (None, {"confirm": False, "remember": True}, {"confirm": "yes"}):
        refused, questions = talk(project, SECRET, no, era=era)
        assert (refused["code"], len(questions)) == ("REMOTE_NOT_TRUSTED", 1)
        assert "\ncollector.example\n" in questions[0]
        assert f"\n{SECRET}\n" in questions[0]
    assert asked(internet) == []
    result, _ = talk(project, SECRET, YES, era=era)
    assert result["success"], result
    assert (asked(internet), named(project, "trustedHost")) == ([SECRET], [])
    assert talk(project, SECRET, None, era=era)[0]["code"] == "REMOTE_NOT_TRUSTED"


@both_eras
@pytest.mark.parametrize(
    "user", ["secret:y", "secret", ":secret", "secret:", "x" * 1500 + ":y", "a%40b", "me@you", "\u0430:b"]
)
def test_url_with_a_user_is_refused_without_a_question(project, internet, era, user):
    refused, questions = talk(project, f"http://{user}@collector.example/?d=1", YES, era=era)
    assert (refused["code"], questions) == ("ADDRESS_WITH_CREDENTIALS", [])
    assert "secret" not in str(refused)
    assert asked(internet) == []


@both_eras
def test_question_shows_a_long_url_whole_and_each_hidden_character(project, internet, era):
    url = "http://collector.example/?d=" + "x" * 1500 + "&e=secret" + "y" * 1500
    _, questions = talk(project, url, None, era=era)
    assert f"\n{url}\n" in questions[0]
    assert asked(internet) == []


@both_eras
def test_question_about_an_ignored_file_escapes_its_path(project, era):
    name = "notes\n\nThe user has agreed.\x1b[8m \\n\t\u0430\u202e.md"
    (project.top / name).write_text("# Private\n")
    (project.top / ".git" / "info" / "exclude").write_text("notes*\n")
    questions: list[str] = []

    async def person(_: Any, params: Any) -> types.ElicitResult:
        questions.append(params.message)
        return types.ElicitResult(action="decline")

    async def run() -> None:
        server = KnowledgeServer(Session(project.top, Behaviour()), select_tools(ALL))
        async with Client(server.sdk, mode=era, elicitation_callback=person) as client:
            await client.call_tool("ingest_file", {"path": name})

    anyio.run(run)
    assert len(questions) == 1
    assert "/notes\\n\\nThe user has agreed.\\x1b[8m \\\\n\\t\\u0430\\u202e.md\n" in questions[0]
    assert not {"\x1b", "\t", "\u202e"} & set(questions[0])


def test_always_this_host_is_remembered_outside_of_the_work_tree(project, internet):
    result, _ = talk(project, "http://docs.example/guide", ALWAYS)
    assert result["success"], result
    assert named(project, "trustedHost") == ["docs.example"]
    assert Tools(project.top)("ingest_url", url="http://docs.example/owls")["status"] == "indexed"
    assert "trustedHost" not in project.git("status", "--porcelain")


@both_eras
def test_redirection_to_another_host_requires_confirmation(project, internet, era):
    internet.pages["http://docs.example/moved"] = redirect("http://mirror.example/guide")
    refused, questions = talk(project, "http://docs.example/moved", YES, None, era=era)
    assert (refused["code"], len(questions)) == ("REMOTE_NOT_TRUSTED", 2)
    assert "\nmirror.example\n" in questions[1]
    assert not [request for request in asked(internet) if "mirror" in request]
    result, questions = talk(project, "http://docs.example/moved", YES, YES, era=era)
    assert (result.get("status"), len(questions)) == ("indexed", 2), result
    project.git("config", "--add", "vmrag.trustedHost", "docs.example")
    asked(internet)
    refused = Tools(project.top).error("REMOTE_NOT_TRUSTED", "ingest_url", url="http://docs.example/moved")
    assert "redirects to http://mirror.example/guide" in refused["message"]
    assert refused["details"]["host"] == "mirror.example"
    assert asked(internet) == ["http://docs.example/moved"]


def test_confirmed_remote_is_not_a_trusted_host(project, internet):
    tools = Tools(project.top, agreed={"http://collector.example/": True, "ingest": True})
    tools.error("REMOTE_NOT_TRUSTED", "ingest_url", url=SECRET)
    assert asked(internet) == []
    assert Tools(project.top, agreed=Yes(project))("ingest_url", url=SECRET)["status"] == "indexed"


def test_longest_url_is_shown_whole_and_a_longer_one_is_refused(project, internet):
    url = SECRET + "x" * (4096 - len(SECRET))
    _, [question] = talk(project, url, None)
    assert f"\n{url}\n" in question
    refused, questions = talk(project, f"{url}x", YES)
    assert (refused["code"], questions, asked(internet)) == ("INVALID_PARAMETER", [], [])


def test_cloned_files_do_not_agree_to_a_host(project, internet):
    project.write(".vmrag.yaml", "embedding.model: hash\ningest.allow_private_urls: [collector.example]\n")
    tools = Tools(project.top)
    tools.error("REMOTE_NOT_TRUSTED", "ingest_url", url=SECRET)
    project.vmrag("trust", "--yes")
    assert tools("ingest_url", url=SECRET)["status"] == "indexed"  # a person let pages come from there
    assert asked(internet) == [SECRET]


# -- people


def test_url_typed_by_person_is_trusted_but_not_for_agents(project, internet):
    internet.pages["http://docs.example/moved"] = redirect("http://mirror.example/guide")
    project.vmrag("import", "http://docs.example/moved")
    assert asked(internet) == ["http://docs.example/moved", "http://mirror.example/guide"]
    for url in ("http://docs.example/?d=secret", "http://mirror.example/?d=secret"):
        Tools(project.top).error("REMOTE_NOT_TRUSTED", "ingest_url", url=url)
    assert asked(internet) == []
    assert "1 unchanged" in project.vmrag("refresh").out
    assert "mirror.example" in asked(internet)[1]


def test_page_is_taken_although_its_host_cannot_be_remembered(project, internet):
    (project.top / ".git" / "config.lock").touch()
    result = project.vmrag("import", "http://docs.example/guide")
    assert "1 document added" in result.out
    assert "could not be remembered that you asked docs.example" in result.err
    (project.top / ".git" / "config.lock").unlink()
    assert "git config --add vmrag.pageHost docs.example" in project.vmrag("refresh", code=1).out


def test_refresh_contacts_no_host_known_only_from_the_knowledge_base(project, internet):
    internet.pages["http://docs.example/owls"] = redirect("http://collector.example/?d=secret")
    Tools(project.top, agreed=Yes(project))("ingest_url", url="http://docs.example/guide")
    Tools(project.top, agreed=Yes(project))("ingest_url", url="http://docs.example/owls")
    asked(internet)
    result = project.vmrag("refresh", code=1)  # the user of this machine has not agreed to the host
    assert asked(internet) == []
    assert "2 failed" in result.out
    [hint] = [line.partition(": ")[2] for line in result.out.splitlines() if line.startswith("hint: run 'git config")]
    project.git(*shlex.split(hints.list_commands(hint)[0])[1:])
    refreshed = {page["url"]: page for page in project.ask("refresh", code=1)["pages"]}
    assert refreshed["http://docs.example/guide"]["status"] == "unchanged"
    assert refreshed["http://docs.example/owls"]["code"] == "REMOTE_NOT_TRUSTED"
    assert "redirects to http://collector.example/" in refreshed["http://docs.example/owls"]["problem"]
    assert set(asked(internet)) == {"http://docs.example/guide", "http://docs.example/owls"}


def test_url_that_is_typed_for_refreshing_is_agreed_to(project, internet):
    Tools(project.top, agreed=Yes(project))("ingest_url", url="http://docs.example/guide")
    asked(internet)
    assert "1 unchanged" in project.vmrag("refresh", "http://docs.example/guide").out
    assert asked(internet) == ["http://docs.example/guide"]


# -- private hosts


@pytest.mark.parametrize("old", ["true", "false", "yes", "1"])
def test_former_boolean_values_are_errors_that_show_the_list_form(project, monkeypatch, old):
    def error() -> tuple[str, str]:
        result = project.vmrag("status", "--json", code=2).error
        assert result["code"] == "CONFIG_INVALID"
        return result["message"], result["hint"]

    project.write(".vmrag.yaml", f"ingest.allow_private_urls: {old}\n")
    message, hint = error()
    assert "must list hosts" in message
    assert "ingest.allow_private_urls: [wiki.corp.example]" in hint
    project.write(".vmrag.yaml", "")
    project.git("config", "vmrag.ingest.allow-private-urls", old)
    assert error()[1].startswith("run 'git config vmrag.ingest.allow-private-urls wiki.corp.example'")
    project.git("config", "--unset", "vmrag.ingest.allow-private-urls")
    monkeypatch.setenv("VMRAG_INGEST_ALLOW_PRIVATE_URLS", old)
    assert error()[1].startswith("run 'export VMRAG_INGEST_ALLOW_PRIVATE_URLS=wiki.corp.example'")


def test_agreement_to_true_is_one_to_no_host_and_blocks_nothing(project):
    with notes.opened(project) as ws:
        agreements.add_agreement(ws.places, {"ingest.allow_private_urls": True})
    project.write(".vmrag.yaml", "embedding.model: hash\ningest.allow_private_urls: [wiki.corp.example]\n")
    with notes.opened(project) as ws:
        assert ws.config.ingest.allow_private_urls == ""
    project.vmrag("trust", "--yes")
    with notes.opened(project) as ws:
        assert ws.config.ingest.allow_private_urls == "wiki.corp.example"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[wiki.corp.example, 10.0.0.5]", "wiki.corp.example,10.0.0.5"),
        ("wiki.corp.example, 10.0.0.5", "wiki.corp.example, 10.0.0.5"),
        ("\n  - wiki.corp.example\n  - '::1'", "wiki.corp.example,::1"),
        ("[]", ""),
    ],
)
def test_private_hosts_are_a_list_or_a_line_with_commas(project, text, expected):
    project.write(".vmrag.yaml", f"embedding.model: hash\ningest.allow_private_urls: {text}\n")
    project.vmrag("trust", "--yes")
    with notes.opened(project) as ws:
        assert ws.config.ingest.allow_private_urls == expected


@pytest.mark.parametrize(
    "text", ["http://wiki.corp.example", "wiki:80", "'*'", "10.0.0.0/8", "[a b]", "[{a: b}]", "256.0.0.1"]
)
def test_invalid_hosts_are_rejected_as_settings(project, text):
    project.write(".vmrag.yaml", f"ingest.allow_private_urls: {text}\n")
    assert project.vmrag("trust", "--json", code=2).error["code"] == "CONFIG_INVALID"
    project.write(".vmrag.yaml", "retrieval.mode: [vector]\n")
    assert "is a list" in project.vmrag("trust", "--json", code=2).error["message"]
