"""A history is made again in another engine: the same contents, messages, authors, dates and
parents, and equal revisions wherever it is done.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

import pytest

from tests.support import dolt
from tests.support.engines import AUTHOR, DATE, MAKERS, document, guide, head, knowledge, log, root, store
from tests.support.long import examples
from vmrag_link.engines import contents, migrated, opening
from vmrag_link.engines.base import Engine, Write
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.engines.folder import EngineName
from vmrag_link.engines.own_branches import MIGRATED_BRANCH, ROOT_BRANCH
from vmrag_link.errors import EngineFailed, KnowledgeRefused, Uncommitted
from vmrag_link.models import Collection, Project, RevisionInfo
from vmrag_link.ops.migrate import references
from vmrag_link.ops.migrate.copy_revisions import CopiedRevisions, copy_revisions
from vmrag_link.ops.migrate.plan import MigrationPlan, plan_migration
from vmrag_link.pin import Pin
from vmrag_link.progress import QUIET
from vmrag_link.workspace.remotes import revision_map

OTHER: dict[str, EngineName] = {"doltlite": "dolt", "dolt": "doltlite"}
PEOPLE = ["Ada <ada@example.org>", "Grace H. <grace@example.org>", "Étienne <e@example.org>"]
LINES = ["one\n", "two\n", "drei\n", "四\n", 'it\'s \\ "quoted"\n']


@pytest.fixture(params=["doltlite", "dolt"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    dolt.require()
    with closing(MAKERS[request.param].create(tmp_path / "old" / "kb", author=AUTHOR, date=DATE)) as engine:
        yield engine


class History:
    """Random revisions with one or two parents, of rows of every table, on two branches; some are
    only anchored.
    """

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine, self.dice, self.number = engine, random.Random(seed), itertools.count()
        first = self.made([root(engine)], Write(put_collections=[guide()]))
        revisions = [first]
        with engine.write_lock("a history"):
            for _ in range(self.dice.randint(6, 9)):
                parents = self.dice.sample(revisions, min(len(revisions), self.dice.choice([1, 1, 2])))
                contained = len(parents) == 2 and engine.is_ancestor(parents[1], parents[0])
                revisions.append(self.made(parents[:1] if contained else parents, self.edit()))
            self.heads = self.dice.sample(revisions, 3)
            engine.create_branch("main", self.heads[0])
            engine.create_branch("topic/ä" if engine.is_legal_branch_name("topic/ä") else "topic/a", self.heads[1])
            engine.anchor_revision(self.heads[2], reason="pinned")

    def made(self, parents: list[str], rows: Write) -> str:
        number = next(self.number)
        date = f"2026-02-{1 + number:02}T03:04:05Z"
        return self.engine.recreate_revision(
            parents,
            [rows],
            message=f"{number}\n\n{self.dice.choice(LINES)}",
            author=self.dice.choice(PEOPLE),
            date=date,
        )

    def edit(self) -> Write:
        dice = self.dice
        texts = ["".join(dice.choices(LINES, k=dice.randint(1, 4))) for _ in range(4)]
        put = [document(f"d{dice.randint(1, 9)}", text, updated_at=f"2026-01-0{dice.randint(1, 9)}") for text in texts]
        put += [log(f"i{dice.randint(1, 3)}", texts[0], issue_number=dice.randint(1, 9))]
        put += [knowledge(f"k{dice.randint(1, 3)}", texts[1], tool_name=dice.choice("ab"))]
        keys = {row.key for row in put}
        gone = {("guide", f"d{dice.randint(1, 9)}") for _ in range(3)} - keys
        return Write(
            put_documents=list({row.key: row for row in put}.values()),
            remove_documents=sorted(gone),
            put_collections=[Collection(dice.choice(["guide", "spare"]), metadata=f'{{"n":{dice.randint(1, 3)}}}')],
            remove_collections=["spare"] if dice.random() < 0.2 else [],
            put_projects=[Project(dice.choice("pq"), dice.choice(PEOPLE))],
            remove_projects=["r"],
        )


def planned(engine: Engine) -> MigrationPlan:
    return plan_migration(engine, [])


def carried(old: Engine, folder: Path, *, to: EngineName | None = None) -> tuple[Engine, CopiedRevisions]:
    """The history in a new knowledge base of the other engine."""
    what = planned(old)
    info = old.read_revision(what.root)
    if opening.engine_exists(folder):
        new = opening.open_engine(folder)
    else:
        new = opening.create_engine(to or OTHER[old.name], folder, author=info.author, date=info.date, origin=what.root)
    result = copy_revisions(old, new, what, folder.with_name(f"{folder.name}.made"), QUIET)
    references.transfer_names(old, new, what, result.by_name)
    return new, result


def signature(info: RevisionInfo) -> tuple[str, str, str]:
    return info.message, info.author, info.date


def rows(engine: Engine, revision: str) -> object:
    return (
        engine.list_collections(revision),
        list(engine.read_documents(revision)),
        list(engine.read_projects(revision)),
    )


@pytest.mark.parametrize("seed", range(examples(6)))
def test_migrated_history_has_equal_revisions_in_both_directions(old: Engine, tmp_path: Path, seed: int) -> None:
    history = History(old, seed)
    migrated, result = carried(old, tmp_path / "there")
    with closing(migrated):
        back, again = carried(migrated, tmp_path / "back")
        with closing(back):
            assert set(planned(old).revisions) | {root(old)} == set(result.by_name)
            assert set(history.heads) <= set(result.by_name)
            for name, entry in result.by_name.items():
                last = again.by_name[entry.revision]
                assert rows(old, name) == rows(migrated, entry.revision) == rows(back, last.revision)
                assert (
                    contents.read_row_set(migrated, entry.revision).fingerprint == entry.fingerprint == last.fingerprint
                )
                if name == root(old):
                    continue
                infos = (
                    old.read_revision(name),
                    migrated.read_revision(entry.revision),
                    back.read_revision(last.revision),
                )
                assert len(set(map(signature, infos))) == 1
                mapped = tuple(result.by_name[parent].revision for parent in infos[0].parents)
                assert mapped == infos[1].parents
                assert tuple(again.by_name[parent].revision for parent in mapped) == infos[2].parents
            heads = {branch.name: branch.head for branch in old.list_branches() if not branch.name.startswith("vmrag")}
            for name, head in heads.items():
                assert migrated.find_branch(name).head == result.by_name[head].revision  # type: ignore[union-attr]
            assert migrated.find_unreachable(entry.revision for entry in result.by_name.values()) == []
            # Both earlier names of a revision are also mapped.
            assert revision_map.read_map(back).keys() == {*again.by_name, *result.by_name}


def test_equal_histories_become_equal_revisions_on_two_machines(old: Engine, tmp_path: Path) -> None:
    History(old, 7)
    found_values = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        new, result = carried(old, folder)
        with closing(new):
            branches = {branch.name: branch.head for branch in new.list_branches() if branch.name != "vmrag_keep"}
            found_values.append((result.by_name, branches))
    assert found_values[0] == found_values[1]


def test_different_knowledge_base_migrates_to_an_unrelated_one(old: Engine, tmp_path: Path) -> None:
    twin = MAKERS[old.name].create(tmp_path / "twin" / "kb", author=AUTHOR, date="2026-01-02T03:04:06Z")
    with closing(twin):
        made = [carried(engine, tmp_path / f"new-{number}")[0] for number, engine in enumerate((old, twin))]
    assert root(made[0]) != root(made[1])
    for engine in made:
        engine.close()


def test_run_that_was_stopped_is_gone_on_with(old: Engine, tmp_path: Path) -> None:
    History(old, 3)

    class Stopping:
        def __init__(self, steps: int) -> None:
            self.left = steps

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def task(self, *_: object, **__: object) -> Stopping:
            return self

        def note(self, sentence: str) -> None: ...

        def advance(self, steps: int = 1) -> None:
            self.left -= steps
            if self.left < 0:
                raise KeyboardInterrupt

    whole, expected = carried(old, tmp_path / "whole")
    whole.close()
    what, notes = planned(old), tmp_path / "kb.made"
    info = old.read_revision(what.root)
    new = opening.create_engine(OTHER[old.name], tmp_path / "kb", author=info.author, date=info.date, origin=what.root)
    with closing(new):
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                copy_revisions(old, new, what, notes, Stopping(0))
            with notes.open("a") as file:
                file.write("0123 cut o")
        result = copy_revisions(old, new, what, notes, QUIET)
    assert result.by_name == expected.by_name
    assert result.made == len(what.revisions) - 2


def test_second_migration_carries_only_new_revisions(old: Engine, tmp_path: Path) -> None:
    History(old, 5)
    new, first = carried(old, tmp_path / "new")
    new.close()
    head = old.find_branch("main").head  # type: ignore[union-attr]
    old.write("main", Write(put_documents=[document("later")]), expected=head)
    later = old.commit("main", message="later", author=AUTHOR, date=DATE, expected=head)
    topic = next(branch for branch in old.list_branches() if branch.name.startswith("topic"))
    old.delete_branch(topic.name, expected=topic.head)
    new, second = carried(old, tmp_path / "new")
    with closing(new):
        assert new.find_branch(topic.name) is None
        assert new.find_unreachable([second.by_name[topic.head].revision]) == []
        assert (second.made, second.by_name.keys() - first.by_name.keys()) == (1, {later})
        assert new.find_branch("main").head == second.by_name[later].revision  # type: ignore[union-attr]
        assert revision_map.read_map(new) == second.by_name


def test_uncommitted_documents_stop_it_by_name(old: Engine) -> None:
    History(old, 1)
    old.write("main", Write(put_documents=[document("new")]), expected=old.find_branch("main").head)  # type: ignore[union-attr]
    with pytest.raises(Uncommitted, match="'main'"):
        planned(old)


def test_revision_that_came_out_otherwise_is_not_taken(
    old: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    History(old, 2)
    what, info = planned(old), old.read_revision(root(old))
    new = opening.create_engine(OTHER[old.name], tmp_path / "kb", author=info.author, date=info.date, origin=what.root)
    monkeypatch.setattr("vmrag_link.ops.migrate.copy_revisions._batch_documents", lambda documents: iter(()))
    with closing(new), pytest.raises(EngineFailed):
        copy_revisions(old, new, what, tmp_path / "made", QUIET)


# -- a foreign map


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, revision_map.Entries]]:
    """A knowledge base that was moved to the embedded engine, and the map, as a remote has it.

    No test moves a branch of it.
    """
    dolt.require()
    tmp_path = tmp_path_factory.mktemp("moved")
    with closing(MAKERS["dolt"].create(tmp_path / "old" / "kb", author=AUTHOR, date=DATE)) as engine:
        History(engine, 11)
        new, result = carried(engine, tmp_path / "new")
    with closing(new):
        yield new, result.by_name


def refused(
    engine: Engine, entries: revision_map.Entries, match: str, held: revision_map.Entries | None = None
) -> None:
    with pytest.raises(KnowledgeRefused, match=match) as error:
        revision_map.require_sound_entries(engine, entries, held or {})
    assert "vmrag migrate" in error.value.hint


def test_valid_foreign_map_is_used(moved: tuple[Engine, revision_map.Entries]) -> None:
    engine, entries = moved
    revision_map.require_sound_entries(engine, entries, {})
    some = dict(list(entries.items())[:4])
    revision_map.require_sound_entries(engine, {key: value for key, value in entries.items() if key not in some}, some)


def test_entry_that_names_a_revision_of_other_contents_is_found(moved: tuple[Engine, revision_map.Entries]) -> None:
    engine, entries = moved
    pairs = list(entries.items())
    (one, first), (other, second) = next(
        combination
        for combination in itertools.combinations(pairs, 2)
        if combination[0][1].fingerprint != combination[1][1].fingerprint
    )
    swapped = (
        revision_map.MigratedRevision(second.revision, first.fingerprint),
        revision_map.MigratedRevision(first.revision, second.fingerprint),
    )
    refused(engine, {**entries, one: swapped[0], other: swapped[1]}, "differ from those of")


def test_missing_entry_is_found(moved: tuple[Engine, revision_map.Entries]) -> None:
    engine, entries = moved
    below = {parent for entry in entries.values() for parent in engine.read_revision(entry.revision).parents}
    gone = next(name for name, entry in entries.items() if entry.revision in below)
    refused(engine, {name: entry for name, entry in entries.items() if name != gone}, "missing")


def test_entry_that_goes_round_in_a_circle_is_found(moved: tuple[Engine, revision_map.Entries]) -> None:
    engine, entries = moved
    entry = next(iter(entries.values()))
    refused(engine, {**entries, entry.revision: entry}, "is a revision of this knowledge base")


def test_entry_that_leads_nowhere_is_found(moved: tuple[Engine, revision_map.Entries]) -> None:
    engine, entries = moved
    name, entry = next(iter(entries.items()))
    refused(engine, {**entries, name: revision_map.MigratedRevision("0" * 40, entry.fingerprint)}, "does not exist")


def test_entry_that_contradicts_the_own_map_is_found(moved: tuple[Engine, revision_map.Entries]) -> None:
    engine, entries = moved
    (name, entry), (_, other) = list(entries.items())[:2]
    refused(engine, {name: other}, "but here it became", held={name: entry, **entries})


def test_migration_map_rejects_invalid_rows_and_too_many(
    moved: tuple[Engine, revision_map.Entries], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, entries = moved
    branch = engine.find_branch("vmrag_migrated")
    assert branch is not None
    collection = Collection("vmrag_migrated")
    for bad in (
        document("x" * 40, "0" * 40, collection="vmrag_migrated", metadata=f'{{"fingerprint":"{"0" * 64}"}}'),
        document("0" * 40, "HEAD", collection="vmrag_migrated", metadata=f'{{"fingerprint":"{"0" * 64}"}}'),
        document("0" * 40, "0" * 40, collection="vmrag_migrated", metadata='{"fingerprint":7}'),
        document("0" * 40, "0" * 32, collection="vmrag_migrated", metadata=f'{{"fingerprint":"{"0" * 64}"}}'),
        document("0" * 40, "0" * 40, collection="guide", metadata=f'{{"fingerprint":"{"0" * 64}"}}'),
    ):
        at = engine.recreate_revision(
            [branch.head],
            [Write(put_collections=[collection], put_documents=[bad])],
            message="m",
            author=AUTHOR,
            date=DATE,
        )
        with pytest.raises(KnowledgeRefused):
            revision_map.read_map(engine, at)
    monkeypatch.setattr(revision_map, "MAX_ENTRIES", len(entries) - 1)
    with pytest.raises(KnowledgeRefused):
        revision_map.read_map(engine)


def test_maps_that_grew_apart_are_joined_and_travel_forward(tmp_path: Path) -> None:
    one = DoltliteEngine.create(tmp_path / "one", author=AUTHOR, date=DATE)
    revisions = [root(one), store(one, "main", document("a")), store(one, "main", document("b"))]
    named = {
        str(number) * 32: revision_map.MigratedRevision(revision, contents.read_row_set(one, revision).fingerprint)
        for number, revision in enumerate([*revisions, revisions[2]])
    }
    first, second, third, fourth = named
    url = f"file://{tmp_path / 'remote.doltlite'}"
    revision_map.store_entries(one, {name: named[name] for name in (first, second)})
    one.push("r", url, {ROOT_BRANCH: revisions[0], "main": revisions[2], MIGRATED_BRANCH: head(one, MIGRATED_BRANCH)})
    two = DoltliteEngine.clone(tmp_path / "two", "r", url)
    assert revision_map.import_entries(two, "r", pinned=tuple) == 2
    assert (revision_map.read_map(two), migrated.translate_revision(two.folder, second)) == (
        revision_map.read_map(one),
        revisions[1],
    )
    revision_map.store_entries(one, {third: named[third]})
    revision_map.store_entries(two, {fourth: named[fourth]})
    two.push("r", url, {MIGRATED_BRANCH: head(two, MIGRATED_BRANCH)})
    one.fetch("r", url)
    assert revision_map.import_entries(one, "r", pinned=tuple) == 1
    one.push("r", url, {MIGRATED_BRANCH: head(one, MIGRATED_BRANCH)})
    two.fetch("r", url)
    assert revision_map.import_entries(two, "r", pinned=tuple) == 1
    assert revision_map.read_map(one) == revision_map.read_map(two) == named
    assert head(one, MIGRATED_BRANCH) == head(two, MIGRATED_BRANCH)
    assert [migrated.translate_revision(two.folder, name) for name in named] == [
        value.revision for value in named.values()
    ]
    one.close()
    two.close()


def test_pin_of_another_time_than_its_revision_shows_a_wrong_entry(tmp_path: Path) -> None:
    one = DoltliteEngine.create(tmp_path / "one", author=AUTHOR, date=DATE)
    entry = revision_map.MigratedRevision(root(one), contents.read_row_set(one, root(one)).fingerprint)
    url = f"file://{tmp_path / 'remote.doltlite'}"
    revision_map.store_entries(one, {"0" * 32: entry})
    one.push("r", url, {ROOT_BRANCH: root(one), MIGRATED_BRANCH: head(one, MIGRATED_BRANCH)})
    one.close()
    two = DoltliteEngine.clone(tmp_path / "two", "r", url)
    late = Pin("git:", "main", "0" * 32, "2026-01-02T03:04:06Z")
    with pytest.raises(KnowledgeRefused):
        revision_map.import_entries(two, "r", pinned=lambda: [late])
    assert revision_map.read_map(two) == {}
    timely = Pin("git:", "main", "0" * 32, DATE)
    assert revision_map.import_entries(two, "r", pinned=lambda: [timely]) == 1
    two.close()
