"""`vmrag adopt` and what it refuses: a fork's knowledge base may hold anything that its owner could
make a database hold.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_travel_tampering import TAMPERING, Data
from tests.support import cli, travel
from tests.support.engines import AUTHOR, DATE, document, guide, head, root, store
from tests.support.repos import Repo
from tests.support.templates import build_once, copy_tree
from tests.support.terminal import Project
from tests.support.travel import DATA_REF, Clone, Pair, git_clone
from vmrag_link import hints
from vmrag_link import pin as pins
from vmrag_link.engines.base import SCHEMA_VERSION, Write
from vmrag_link.engines.doltlite.connection import Connection
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.engines.doltlite.schema import STATEMENTS
from vmrag_link.engines.folder import DOLTLITE_FILE as FILE_NAME
from vmrag_link.engines.limits import USUAL_LIMITS, Limits
from vmrag_link.engines.own_branches import KEEP_BRANCH
from vmrag_link.errors import KnowledgeRefused
from vmrag_link.models import Collection
from vmrag_link.ops import adopt
from vmrag_link.pin import Pin

pytestmark = pytest.mark.hooks("off")

home, pair, _pair = travel.home, travel.pair, travel._pair

TAMPERED = (
    "a segment is missing",
    "two segments are swapped",
    "a byte differs",
    "a byte differs and the manifest says so",
    "a segment is a submodule",
    "the size is absurd",
    "it is zeroes",
    "it is another knowledge base",
)
META = f"INSERT INTO vmrag_meta VALUES ('schema_version', '{SCHEMA_VERSION}')"
COMMIT = "SELECT dolt_commit('-A', '-m', 'x', '--author', 'Eve <eve@example.org>')"


@dataclass
class World:
    """`ada` maintains what is in `hub`; `eve` works in `fork`, which she called so in her clone, on
    top of `known_revision`.
    """

    pair: Pair
    eve: Clone
    fork: Repo

    @property
    def ada(self) -> Clone:
        return self.pair.ada

    @property
    def maintainer(self) -> Project:
        return Project(self.ada.repo.top)

    @property
    def known_revision(self) -> str:
        return head(self.eve.engine, "main")

    def pins(self, revision: str, message: str = "a pull request") -> str:
        """A commit of the code, on the branch `topic` of the fork; returns it."""
        made = self.eve.repo.commit(message, pin=pin_of(revision))
        self.eve.repo.git("push", "-q", "--no-verify", "--force", "fork", "HEAD:refs/heads/topic")
        return made

    def opens(self, *revisions: str) -> str:
        """The pull request: the fork has revisions, and one commit for each pins it; returns the
        last.
        """
        names = {f"pr-{revision[:12]}": revision for revision in revisions}
        for name, revision in names.items():  # our own commands would not push what is not ours
            self.eve.engine.create_branch(name, revision)
        self.eve.push("fork", *names)
        return [self.pins(revision) for revision in revisions][-1]

    def evil(self, *statements: str, base: str = "", name: str = "evil") -> str:
        """Create an evil revision in the clone."""
        return evil(self.eve.engine.folder / FILE_NAME, *statements, base=base or self.known_revision, name=name)

    # -- what must not change

    def ours(self) -> Any:
        """The maintainer's knowledge base, git objects and refs, and what is on the hub."""
        engine = self.ada.engine
        everything = {branch.name: list(engine.read_documents(branch.head)) for branch in engine.list_branches()}
        file = engine.folder / FILE_NAME
        git = self.ada.repo.git("count-objects", "-v"), self.ada.repo.git("for-each-ref")
        return everything, file.read_bytes(), git, self.pair.tip

    def refuses(self, commit: str = "topic", *options: str, code: int = 3) -> dict[str, Any]:
        """The error of `vmrag adopt`, which left no trace."""
        self.ada.fetch()  # which it does anyway
        before = self.ours()
        result = self.maintainer.vmrag("adopt", "../fork.git", commit, *options, "--json", code=code)
        assert self.ours() == before
        assert not self.ada.places.quarantine.exists()
        return result.error

    def adopts(self, commit: str = "topic", *options: str, code: int = 0) -> dict[str, Any]:
        report = self.maintainer.ask("adopt", "../fork.git", commit, *options, code=code)
        assert not self.ada.places.quarantine.exists()
        return report

    def on_hub(self, revision: str) -> bool:
        """Return whether the hub's knowledge base reaches the revision, as seen by a new clone."""
        looker = git_clone(self.pair.hub.top, self.pair.folder / f"looker-{random.randrange(10**9)}")
        assert looker.clone_knowledge()
        result = looker.engine.has_revision(revision)
        looker.close()
        return result


@pytest.fixture(scope="session")
def template(_pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "adopt", lambda folder: build(copy_tree(_pair, folder)))


def build(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_TEMPLATE_DIR", "")
        ada = Clone(folder / "ada")
        (ada.repo.top / ".vmrag.yaml").write_text("embedding:\n  model: hash\n")
        ada.repo.commit("pins", pin=pin_of(head(ada.engine, "main")))
        ada.repo.git("push", "-q", "origin", "main")
        ada.close()
        Repo(folder).git("clone", "-q", "--bare", "hub.git", "fork.git")
        eve = git_clone(folder / "hub.git", folder / "eve")
        eve.repo.git("remote", "set-url", "origin", "../hub.git")  # the folder is going to be copied
        eve.repo.git("remote", "add", "fork", "../fork.git")
        assert eve.clone_knowledge()
        eve.engine.create_branch("main", eve.engine.remote_heads(eve.at().key)["main"])
        eve.close()


@pytest.fixture
def world(template: Path, tmp_path: Path, home: Path) -> Iterator[World]:
    for path in template.iterdir():
        copy_tree(path, tmp_path / path.name)
    ada, bob, eve = (Clone(tmp_path / name) for name in ("ada", "bob", "eve"))
    yield World(Pair(tmp_path, ada, bob, Repo(tmp_path / "hub.git")), eve, Repo(tmp_path / "fork.git"))
    for user in (ada, bob, eve):
        user.close()


def evil(file: Path, *statements: str, base: str, name: str) -> str:
    """Create a revision that vmrag never makes: plain SQL, committed on top of another revision."""
    with Connection(file) as connection:
        connection.execute("SELECT dolt_branch(?, ?)", (name, base))
    with Connection(file, at=name) as connection:
        for statement in statements:
            connection.execute(statement)
        made: str = connection.execute(COMMIT)[0][0]
        return made


def pin_of(revision: str) -> bytes:
    return pins.format_pin(Pin("git:", "topic", revision, DATE))


# -- accepted revisions ----------------------------------------------------------------------------


def test_adopt_makes_pins_of_a_fork_reachable_at_the_base(world):
    one, two = world.eve.record("one"), world.eve.record("two")
    code = world.opens(one, two)
    assert world.adopts() == {
        "source": "../fork.git",
        "commit": code,
        "revision": two,
        "pinned": [two, one],
        "revisions": 2,
        "missing": [],
        "remote": "origin",
        "pushed": True,
    }
    assert world.ada.engine.find_document(two, "guide", "two") == world.eve.engine.find_document(two, "guide", "two")
    assert world.on_hub(one)
    assert world.on_hub(two)
    assert world.ada.engine.find_damage() == ""


def test_adopt_imports_nothing_else_of_the_fork(world):
    other = world.evil("INSERT INTO vmrag_meta VALUES ('a', 'b')")
    expected = world.eve.record("wanted")
    world.opens(expected)
    world.eve.push("fork", "evil", "main")
    before = world.ada.repo.git("for-each-ref"), [branch.name for branch in world.ada.engine.list_branches()]
    world.adopts("topic", "--no-push")
    assert world.ada.engine.has_revision(expected)
    assert not world.ada.engine.has_revision(other)
    names = [branch.name for branch in world.ada.engine.list_branches() if branch.name != KEEP_BRANCH]
    assert (world.ada.repo.git("for-each-ref"), names) == before
    with Connection(world.ada.engine.folder / FILE_NAME, access="read") as connection:
        assert [name for (name,) in connection.execute("SELECT name FROM dolt_remotes")] == [
            f"at-{world.ada.at('origin').key}"
        ]


def test_adopt_of_a_local_commit_needs_no_branch_of_the_fork(world):
    code = world.opens(world.eve.record("one"))
    world.ada.repo.git("fetch", "-q", "../fork.git", "topic:pr-12")
    world.fork.git("update-ref", "-d", "refs/heads/topic")
    assert world.adopts("pr-12")["commit"] == code
    world.ada.repo.git("switch", "-q", "pr-12")
    assert world.adopts("HEAD")["pinned"] == []


def test_adopt_reads_the_branch_of_the_fork_without_its_code(world):
    code = world.opens(world.eve.record("one"))
    world.adopts()
    assert world.ada.repo.run("cat-file", "-e", code).returncode != 0
    assert (
        world.maintainer.vmrag("adopt", "../fork.git", "nowhere", "--json", code=3).error["code"]
        == "GIT_COMMIT_NOT_FOUND"
    )


def test_adopt_without_news_still_requires_a_fork(world):
    revision = world.eve.record("one")
    code = world.opens(revision)
    world.ada.repo.git("fetch", "-q", "../fork.git", "topic")
    world.adopts(code)
    world.fork.git("update-ref", "-d", DATA_REF)
    report = world.adopts(code)
    assert (report["pinned"], report["revisions"], report["pushed"]) == ([], 0, False)
    assert world.maintainer.vmrag("adopt", "../fork.git", code).out == f"origin has what {code[:7]} pins.\n"
    world.fork.top.rename(world.fork.top.with_name("gone.git"))
    assert world.refuses(code)["message"] == "no git repository at ../fork.git."


@pytest.mark.parametrize("named", ["fork", "../fork.git", "{fork}", "file://{fork}", "git+file://{fork}"])
@pytest.mark.sample(1)
def test_fork_is_named_as_git_fetch_takes_it(world, named):
    world.opens(world.eve.record("one"))
    world.ada.repo.git("remote", "add", "fork", "../fork.git")
    result = world.maintainer.vmrag("adopt", named.format(fork=world.fork.top), "topic", "--json")
    assert result.json["pushed"]


@pytest.mark.parametrize("name", ["nobranch", "two words", "a:b", "a*", "refs/x..y"])
@pytest.mark.sample(2)
def test_adopt_rejects_unknown_commit_or_branch(world, name):
    error = world.refuses(name)
    assert error["code"] == "GIT_COMMIT_NOT_FOUND"
    assert repr(name) in error["message"]
    [command] = hints.list_commands(error["hint"])
    assert command.startswith("git ls-remote --heads ")
    assert error["message"].endswith(f"nor a branch of {command.removeprefix('git ls-remote --heads ')}.")


def test_adopt_path_is_relative_to_the_current_directory(world):
    world.opens(world.eve.record("one"))
    (world.ada.repo.top / "deep" / "er").mkdir(parents=True)
    assert world.maintainer.vmrag("-C", "deep/er", "adopt", "../../../fork.git", "topic").code == 0


def test_adopt_without_push_stays_local_until_a_push(world):
    revision = world.eve.record("one")
    world.opens(revision)
    tip = world.pair.tip
    report = world.adopts("topic", "--no-push")
    assert (report["remote"], report["pushed"]) == (None, False)
    assert world.pair.tip == tip
    heads = world.ada.engine.remote_heads(world.ada.at().key).values()
    assert world.ada.engine.find_unreachable([revision], heads=heads) == [revision]
    assert world.ada.engine.has_revision(revision)
    world.ada.engine.collect_garbage()
    assert world.ada.engine.has_revision(revision)
    assert world.adopts()["pushed"]
    assert world.on_hub(revision)


def test_adopt_checks_revisions_that_were_already_fetched(world):
    """A maintainer may have fetched from the fork manually, so an existing revision is not
    trusted.
    """
    bad = world.evil("CREATE TABLE extra(x)")
    world.evil("DROP TABLE extra", base=bad, name="mended")  # no head of a branch has it
    world.eve.push("fork", "mended")
    world.pins(bad)
    world.ada.repo.git("remote", "add", "fork", "../fork.git")
    world.ada.fetch("fork")
    assert world.ada.engine.has_revision(bad)
    assert world.refuses()["code"] == "KNOWLEDGE_REFUSED"


def test_adopt_accepts_a_merge_with_concurrent_changes(world):
    ours = world.ada.record("ours")
    world.ada.push()
    world.eve.fetch("origin")
    theirs = world.eve.record("theirs")
    merged = world.eve.engine.commit_onto(
        theirs, [Write(put_documents=[document("ours")])], joining=ours, message="m", author=AUTHOR, date=DATE
    )
    world.opens(merged)
    assert world.adopts()["revisions"] == 2
    assert world.ada.engine.is_ancestor(ours, merged)


def test_earlier_pin_lost_by_the_fork_is_named_without_stopping(world):
    lost, kept = world.evil("DELETE FROM documents", name="lost"), world.eve.record("kept")
    world.eve.push("fork", revisions=(kept,))
    world.pins(lost)
    world.pins(kept)
    report = world.adopts(code=1)
    assert (report["pinned"], report["missing"]) == ([kept], [lost])
    assert world.on_hub(kept)


def test_adopt_reports_fork_without_the_pinned_revision(world):
    world.eve.push("fork", revisions=(world.eve.record("pushed"),))
    world.pins(world.eve.record("kept at home"))
    error = world.refuses(code=1)
    assert error["code"] == "PIN_MISSING_REVISION"
    assert "vmrag push" in error["hint"]


def test_adopt_reports_fork_without_knowledge_base(world):
    world.pins(world.eve.record("one"))
    error = world.refuses()
    assert error["code"] == "REMOTE_NOT_FOUND"
    assert error["message"].endswith("fork.git has no knowledge base.")


def test_adopt_reports_commit_with_missing_or_malformed_pin(world):
    world.eve.repo.commit("no pin", pin=None)
    world.eve.repo.git("push", "-q", "--no-verify", "fork", "HEAD:refs/heads/topic")
    assert world.refuses(code=1)["code"] == "NO_PIN"
    world.eve.repo.commit("broken", pin="{")
    world.eve.repo.git("push", "-q", "--no-verify", "fork", "HEAD:refs/heads/topic")
    assert world.refuses(code=1)["code"] == "PIN_MALFORMED"


def test_base_repository_is_never_the_fork_itself(world):
    world.opens(world.eve.record("one"))
    world.ada.repo.git("remote", "rename", "origin", "fork")
    error = world.maintainer.vmrag("adopt", "fork", "HEAD", "--json", code=2).error
    assert error["code"] == "INVALID_PARAMETER"
    world.ada.repo.git("remote", "set-url", "fork", "../fork.git")
    assert world.maintainer.ask("adopt", "fork", "topic", "--no-push")["remote"] is None


@pytest.mark.parametrize("source", ["ext::sh -c touch% pwned", "-oProxyCommand=touch pwned", "fd::3"])
@pytest.mark.sample(2)
def test_source_that_would_run_a_program_is_refused(world, source):
    result = world.maintainer.vmrag("adopt", "--json", "--", source, "topic", code=None)
    assert result.code in (2, 3)
    assert not list(world.pair.folder.rglob("*pwned*"))


def test_fetch_into_the_quarantine_runs_no_hook(world):
    hooks = world.pair.folder / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "post-merge"):
        (hooks / name).write_text(f"#!/bin/sh\necho {name} >> {hooks}/ran\n")
        (hooks / name).chmod(0o755)
    world.opens(world.eve.record("one"))
    world.ada.fetch()
    world.ada.repo.git("config", "core.hooksPath", str(hooks))
    world.adopts("topic", "--no-push")
    assert not (hooks / "ran").exists()


# -- what is refused -------------------------------------------------------------------------------

SCHEMAS = {
    "an extra table": "CREATE TABLE extra(x)",
    "a table without a name": 'CREATE TABLE ""(x)',
    "a view": "CREATE VIEW seen AS SELECT * FROM documents",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON documents BEGIN DELETE FROM documents;END",
    "an index": "CREATE INDEX i ON documents(title)",
    "a virtual table": "CREATE VIRTUAL TABLE words USING fts5(x)",
    "a column more": "ALTER TABLE documents ADD COLUMN more",
    "a column less": "ALTER TABLE documents DROP COLUMN source",
    "a table less": "DROP TABLE collections",
    "statistics": "ANALYZE",
    "another version": "UPDATE vmrag_meta SET value = '1'",
    "an old version": "UPDATE vmrag_meta SET value = '0'",
    "no version": "DELETE FROM vmrag_meta",
    "a further setting": "INSERT INTO vmrag_meta VALUES ('x', 'y')",
    "no tables": "DROP TABLE collections; DROP TABLE documents; DROP TABLE vmrag_meta",
}

ONE = "WHERE doc_id = 'long'"
ROWS = {
    "a text that is not UTF-8": f"UPDATE documents SET content = CAST(x'ff41' AS TEXT) {ONE}",
    "a title that is not UTF-8": f"UPDATE documents SET title = CAST(x'c328' AS TEXT) {ONE}",
    "bytes for a text": f"UPDATE documents SET content = x'ff41' {ONE}",
    "nothing for a text": f"UPDATE documents SET source = NULL {ONE}",
    "a NUL": f"UPDATE documents SET title = 'a' || char(0) || 'b' {ONE}",
    "a hash of something else": f"UPDATE documents SET content = 'other' {ONE}",
    "no hash": f"UPDATE documents SET content_hash = '' {ONE}",
    "metadata that is no JSON": f"UPDATE documents SET metadata = '{{' {ONE}",
    "metadata that is no object": f"UPDATE documents SET metadata = '[]' {ONE}",
    "metadata that is not canonical": f"""UPDATE documents SET metadata = '{{"a": 1}}' {ONE}""",
    "a key twice in metadata": f"""UPDATE documents SET metadata = '{{"a":1,"a":1}}' {ONE}""",
    "metadata without end": f"UPDATE documents SET metadata = printf('%.*c', 5000, '[') {ONE}",
    "a number that is none": f"""UPDATE documents SET metadata = '{{"a":NaN}}' {ONE}""",
    "a reserved key": f"""UPDATE documents SET metadata = '{{"chunk_index":1}}' {ONE}""",
    "a document name with a control character": f"UPDATE documents SET doc_id = char(27) || '[2J' {ONE}",
    "a document without a name": f"UPDATE documents SET doc_id = '' {ONE}",
    "a document name that is too long": f"UPDATE documents SET doc_id = printf('%.*c', 256, 'x') {ONE}",
    "a number for a time": f"UPDATE documents SET updated_at = x'00' {ONE}",
    "a collection that is a path": "UPDATE documents SET collection_name = '../../x'",
    "an illegal collection": "UPDATE collections SET collection_name = 'a b'",
    "an unknown distance": "UPDATE collections SET distance = 'manhattan'",
    "an unknown model": "UPDATE collections SET embedding_function = 'https://example.org/model'",
    "an unknown way of cutting": """UPDATE collections SET chunking = '{"strategy":"program"}'""",
    "pieces without a length": """UPDATE collections SET chunking = '{"size":0,"overlap":0}'""",
    "pieces that never end": """UPDATE collections SET chunking = '{"size":5,"overlap":5}'""",
    "no way of cutting": "UPDATE collections SET chunking = NULL",
    "words for a number": "UPDATE collections SET embedding_dimensions = 'many'",
    "metadata of a collection that is no object": "UPDATE collections SET metadata = '7'",
}


@dataclass
class Strangers:
    """`ours`, and `theirs`: a copy of it in which anything may have been done, on top of the
    revision `known_revision`.
    """

    folder: Path
    ours: DoltliteEngine
    known_revision: str

    @property
    def theirs(self) -> Path:
        return self.folder / "theirs" / FILE_NAME

    def evil(self, *statements: str, base: str = "", name: str = "evil") -> str:
        return evil(self.theirs, *statements, base=base or self.known_revision, name=name)

    def vet(self, *revisions: str, limits: Limits = USUAL_LIMITS) -> list[str]:
        into = self.folder / "vetted.doltlite"
        return self.ours.vet_revisions(
            f"file://{self.theirs}",
            revisions,
            known_heads=[self.known_revision],
            into=into,
            limits=limits,
            check_row=adopt.check_row,
        )

    def refuses(self, *revisions: str, limits: Limits = USUAL_LIMITS) -> str:
        with pytest.raises(KnowledgeRefused) as caught:
            self.vet(*revisions, limits=limits)
        assert caught.value.message.isprintable()
        assert str(self.folder) not in caught.value.message
        return caught.value.message


@pytest.fixture(scope="session")
def _beginning(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("beginning")
    engine = DoltliteEngine.create(folder / "ours", author=AUTHOR, date=DATE)
    engine.create_branch("main", root(engine))
    engine.write("main", Write(put_collections=[guide()]), expected=root(engine))
    revision = store(engine, "main", document("long"), document("other"))
    engine.close()
    return folder / "ours", revision


@pytest.fixture
def strangers(_beginning: tuple[Path, str], tmp_path: Path) -> Iterator[Strangers]:
    folder, known_revision = _beginning
    shutil.copytree(folder, tmp_path / "theirs")
    engine = DoltliteEngine.open(folder)
    yield Strangers(tmp_path, engine, known_revision)
    engine.close()


@pytest.mark.parametrize("flaw", [*SCHEMAS, *ROWS])
def test_adopt_rejects_revisions_that_vmrag_never_makes(strangers, flaw):
    bad = strangers.evil(*(SCHEMAS | ROWS)[flaw].split("; "))
    assert strangers.refuses(bad).startswith(f"refused revision {bad[:12]}, nothing was imported: ")


@pytest.mark.parametrize("flaw", ["an extra table", "a text that is not UTF-8", "an unknown distance", "a NUL"])
@pytest.mark.sample(2)
def test_adopt_rejects_a_bad_revision_that_a_later_one_repairs(strangers, flaw):
    bad = strangers.evil((SCHEMAS | ROWS)[flaw])
    cure = ["DROP TABLE extra"] if flaw in SCHEMAS else ["DELETE FROM documents", "DELETE FROM collections"]
    mended = strangers.evil(*cure, base=bad, name="mended")
    assert bad[:12] in strangers.refuses(mended)


def test_bad_revision_on_the_other_side_of_a_merge_is_refused(strangers):
    bad = strangers.evil("CREATE TABLE extra(x)")
    good = strangers.evil("UPDATE documents SET title = 'good'", name="good")
    merged = strangers.evil(
        f"SELECT dolt_merge('--no-ff', '-m', 'm', '{bad}')", "DROP TABLE extra", base=good, name="merged"
    )
    assert bad[:12] in strangers.refuses(merged)


def test_adopt_checks_each_of_many_revisions_once(strangers):
    revision, made = strangers.known_revision, []
    for number in range(20):
        revision = strangers.evil(f"UPDATE documents SET title = '{number}'", base=revision, name=f"r{number}")
        made.append(revision)
    assert sorted(strangers.vet(revision, made[3])) == sorted(made)
    assert strangers.vet(strangers.known_revision) == []


def test_vet_leaves_out_missing_revisions(strangers):
    good = strangers.evil("UPDATE documents SET title = 'good'")
    assert strangers.vet("ab" * 20, good) == [good]


def test_vet_accepts_revisions_of_vmrag_commands(strangers):
    engine = DoltliteEngine.open(strangers.theirs.parent)
    texts = ["", "\x1b[2J", "e\u0301 \U0001f600", "a" * 100_000, "{}", "\r\n"]
    rows = [document(f"doc/{number} ü", text, metadata='{"a":[1,2.5,true,"x"]}') for number, text in enumerate(texts)]
    engine.create_branch("own", strangers.known_revision)
    revision = store(engine, "own", *rows)
    engine.close()
    assert strangers.vet(revision) == [revision]


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(revisions=2), "more than 2 new revisions"),
        (Limits(documents=1), "more than 1 documents"),
        (Limits(text_bytes=100_000), "too big"),
    ],
)
def test_more_than_the_limits_is_refused(strangers, limits, said):
    revision = strangers.known_revision
    for name in ("one", "two", "three"):
        revision = strangers.evil(
            f"UPDATE documents SET title = '{name}' || printf('%.*c', 200000, 'x')", base=revision, name=name
        )
    assert said in strangers.refuses(revision, limits=limits)
    assert len(strangers.vet(revision)) == 3


def test_adopt_rejects_an_unrelated_knowledge_base(strangers):
    """On top of the engine's own first commit, which both have, instead of our root."""
    start = root(strangers.ours)
    first = strangers.ours.map_parents([start])[start][0]
    beside = evil(strangers.theirs, *STATEMENTS[SCHEMA_VERSION], META, base=first, name="beside")
    assert "no common history" in strangers.refuses(beside)


def test_byte_changed_anywhere_is_noticed_or_was_not_needed(strangers):
    """The engine leaves out what follows the last commit that is whole, as after a power cut."""
    good = strangers.evil("UPDATE documents SET title = 'good'")
    content, taken = strangers.theirs.read_bytes(), 0
    for at in range(0, len(content), 97):
        strangers.theirs.write_bytes(content[:at] + bytes([content[at] ^ 0x20]) + content[at + 1 :])
        (strangers.folder / "vetted.doltlite").unlink(missing_ok=True)
        with contextlib.suppress(KnowledgeRefused):
            assert strangers.vet(good) == [good]
            taken += 1
            with Connection(strangers.folder / "vetted.doltlite", at=good, access="read") as connection:
                assert connection.execute("SELECT doc_id, title FROM documents") == [
                    ("long", "good"),
                    ("other", "good"),
                ]
    assert taken < 5


def test_vet_rejects_files_other_than_knowledge_bases(strangers):
    for content in (b"", b"\0" * 4096, b"SQLite format 3\0" + b"\0" * 5000, random.Random(1).randbytes(9000)):
        strangers.theirs.write_bytes(content)
        strangers.refuses(strangers.known_revision[::-1])


# -- the same through the command: nothing arrives -------------------------------------------------


@pytest.mark.parametrize(
    "flaw", ["a trigger", "a view", "another version", "a text that is not UTF-8", "a hash of something else"]
)
@pytest.mark.sample(1)
def test_rejected_revisions_leave_nothing(world, flaw):
    bad = world.evil((SCHEMAS | ROWS)[flaw])
    world.opens(bad)
    error = world.refuses()
    assert error["code"] == "KNOWLEDGE_REFUSED"
    assert bad[:12] in error["message"]


def test_adopt_rejects_newer_schema_with_upgrade_hint(world):
    world.opens(world.evil(f"UPDATE vmrag_meta SET value = '{SCHEMA_VERSION + 1}'"))
    error = world.refuses()
    assert error["code"] == "SCHEMA_TOO_NEW"
    assert "pip install --upgrade" in error["hint"]


def test_rows_that_are_hidden_behind_a_view_are_not_read(world):
    world.opens(
        world.evil(
            "ALTER TABLE documents RENAME TO hidden",
            "CREATE VIEW documents AS SELECT * FROM hidden, (SELECT dolt_branch('pwned'))",
        )
    )
    assert "documents" in world.refuses()["message"]


def test_unrelated_knowledge_base_is_rejected(world):
    other = Clone(world.pair.folder / "other", create=True)
    other.repo.git("remote", "add", "fork", str(world.fork.top))
    other.engine.create_branch("main", root(other.engine))
    strange = other.record("strange")
    other.push("fork", revisions=(strange,))
    world.pins(strange)
    assert "no common history" in world.refuses()["message"]
    other.close()


def test_revision_on_top_of_an_anchor_is_refused(world):
    """Anchors have no tables, so the changes since such a revision are unknown."""
    kept = world.ada.record("given up", branch="gone")
    world.ada.engine.delete_branch("gone", expected=kept)
    world.ada.record("more", branch="gone")
    more = head(world.ada.engine, "gone")
    world.ada.engine.delete_branch("gone", expected=more)
    world.ada.push("origin", revisions=(kept,))
    world.ada.push("origin", revisions=(more,))
    world.eve.fetch("origin")
    anchor = world.eve.engine.remote_heads(world.eve.at().key)[KEEP_BRANCH]
    world.opens(world.evil(*STATEMENTS[SCHEMA_VERSION], META, base=anchor))
    assert world.refuses()["code"] == "KNOWLEDGE_REFUSED"


@pytest.mark.parametrize("kind", TAMPERED)
@pytest.mark.sample(1)
def test_tampered_file_is_refused(world, kind):
    world.opens(world.eve.record("one"))
    data = Data.of(world.fork)
    TAMPERING[kind](data)
    data.publish()
    assert world.refuses()["code"] in ("REMOTE_DAMAGED", "KNOWLEDGE_REFUSED")


# -- what it would cost others ---------------------------------------------------------------------


PAID_MODEL = "openai text-embedding-3-small 1536 unit v1"


def with_service(world: World, name: str, doc_id: str) -> str:
    """A revision of Eve's with a document in a collection that a paid service embeds."""
    paid = Collection(name, embedding_function="openai", embedding_model=PAID_MODEL, embedding_dimensions=1536)
    engine = world.eve.engine
    engine.write("main", Write(put_collections=[paid]), expected=head(engine, "main"))
    return store(engine, "main", document(doc_id, collection=name))


def test_collection_with_a_paid_service_needs_explicit_permission(world):
    revision = with_service(world, "costly", "one")
    world.opens(revision)
    error = world.refuses()
    assert error["code"] == "KNOWLEDGE_REFUSED"
    assert "'costly'" in error["message"]
    assert "--allow-service openai" in error["hint"]
    assert world.refuses("topic", "--allow-service", "cohere")["details"]["service"] == "openai"
    assert world.adopts("topic", "--allow-service", "openai")["pinned"] == [revision]
    again = store(world.eve.engine, "main", document("two", collection="costly"))
    world.opens(again)
    assert world.adopts()["pinned"] == [again]  # the project has that collection now
    world.opens(with_service(world, "another", "three"))
    assert "'another'" in world.refuses()["message"]


@pytest.mark.parametrize("chunking", ['{"size":1,"overlap":0}', '{"size":100000,"overlap":99999}'])
def test_collection_with_an_oversized_index_is_rejected(strangers, chunking):
    pieces = f"""UPDATE collections SET chunking = '{chunking[:-1]},"strategy":"characters"}}'"""
    assert "many times as large" in strangers.refuses(strangers.evil(pieces))


# -- limits ----------------------------------------------------------------------------------------


def test_oversized_file_is_rejected_with_the_option_that_accepts_it(world):
    world.opens(world.eve.record("big", random.Random(2).randbytes(600_000).hex()))
    error = world.refuses("topic", "--max-mb", "1")
    assert error["code"] == "KNOWLEDGE_REFUSED"
    [options] = hints.list_commands(error["hint"])
    option, size = options.split()
    assert world.adopts("topic", option, size)["pushed"]


# -- kills, and others at work ---------------------------------------------------------------------

DEATHS = {
    "while it fetches": "from vmrag_link.transport import segments\nsegments.restore_file = die",
    "while it looks": "from vmrag_link.ops import adopt\nadopt.check_row = die",
    "before what came is anchored": "from vmrag_link.engines.doltlite.engine import DoltliteEngine\nDoltliteEngine.anchor_revision = die",
    "before it pushes": "from vmrag_link.ops import adopt\nadopt.publish_to = die",
}


@pytest.mark.parametrize("moment", sorted(DEATHS))
@pytest.mark.sample(1)
def test_kill_leaves_nothing_that_the_next_run_does_not_clear(world, moment):
    revision = world.eve.record("one")
    world.opens(revision)
    assert cli.run_patched(world.maintainer, DEATHS[moment], "adopt", "../fork.git", "topic").code == -9
    assert world.adopts()["pushed"]
    assert world.on_hub(revision)


def test_gc_removes_remains_of_a_killed_process(world):
    world.opens(world.eve.record("one"))
    cli.run_patched(world.maintainer, DEATHS["before what came is anchored"], "adopt", "../fork.git", "topic")
    assert list(world.ada.places.quarantine.iterdir())
    assert "quarantine" in str(world.maintainer.ask("gc")["leftovers"]["files"])
    world.ada.engine.commit_onto(
        world.known_revision, [Write(put_collections=[guide(distance="l2")])], message="m", author=AUTHOR, date=DATE
    )
    world.maintainer.ask("gc", "--apply")
    assert not world.ada.places.quarantine.exists()
    with Connection(world.ada.engine.folder / FILE_NAME, access="read") as connection:
        assert [name for (name,) in connection.execute("SELECT name FROM dolt_remotes")] == [
            f"at-{world.ada.at('origin').key}"
        ]


def test_two_at_once_take_turns(world):
    one, two = world.eve.record("one"), None
    world.opens(one)
    two = store(world.eve.engine, "second", document("two"))
    world.eve.push("fork", revisions=(two,))
    world.eve.repo.commit("another", pin=pin_of(two))
    world.eve.repo.git("push", "-q", "--no-verify", "fork", "HEAD:refs/heads/second")
    running = [cli.start(world.maintainer, "adopt", "../fork.git", name) for name in ("topic", "second")]
    assert [process.done().code for process in running] == [0, 0]
    assert world.on_hub(one)
    assert world.on_hub(two)


# -- other kinds of clones -------------------------------------------------------------------------


@pytest.mark.parametrize("options", [["--depth", "1"], ["--filter=blob:none"], ["--filter=tree:0"]])
@pytest.mark.sample(1)
def test_maintainers_clone_may_lack_history_or_contents(world, options):
    world.pair.hub.git("config", "uploadpack.allowFilter", "true")
    world.ada.repo.commit("later")
    world.ada.repo.git("push", "-q", "origin", "main")
    revision = world.eve.record("one")
    world.opens(revision)
    small = git_clone(f"file://{world.pair.hub.top}", world.pair.folder / "small", *options)
    assert small.clone_knowledge()
    result = Project(small.repo.top).vmrag("adopt", f"file://{world.fork.top}", "topic", "--json")
    assert result.json["pinned"] == [revision]
    small.close()


def test_linked_work_tree_adopts_for_all(world):
    revision = world.eve.record("one")
    world.opens(revision)
    world.ada.repo.git("worktree", "add", "-q", "../linked")
    assert Project(world.pair.folder / "linked").ask("adopt", "../fork.git", "topic")["pushed"]
    assert world.ada.engine.has_revision(revision)
