"""Vouchers for the vectors on a Chroma server: rows of a reserved branch, in each engine."""

from __future__ import annotations

import pytest

from tests.support import engines as support
from vmrag_link.engines.own_branches import ROOT_BRANCH, VECTORS_BRANCH, read_root
from vmrag_link.models import content_hash
from vmrag_link.sync import vouchers
from vmrag_link.transport import quarantine

engine, engines = support.engine, support.engines

ONE, OTHER = "a" * 32, "b" * 32
DIGEST, SECOND = content_hash("1"), content_hash("2")


def test_voucher_is_found_by_its_contents_and_moves_no_other_branch(engine):
    branches = {branch.name: branch.head for branch in engine.list_branches()}
    assert vouchers.read_digests(engine, ONE) == set()
    assert vouchers.build_head(engine, None) is None
    vouchers.vouch_digests(engine, {ONE: DIGEST}, timeout=5)
    vouchers.vouch_digests(engine, {ONE: SECOND, OTHER: DIGEST}, timeout=5)
    head = engine.find_branch(VECTORS_BRANCH).head
    vouchers.vouch_digests(engine, {ONE: DIGEST, OTHER: DIGEST}, timeout=5)
    assert engine.find_branch(VECTORS_BRANCH).head == head, "it was said before"
    assert vouchers.read_digests(engine, ONE) == {DIGEST, SECOND}
    assert vouchers.read_digests(engine, OTHER) == {DIGEST}
    assert vouchers.read_digests(engine, "c" * 32) == set()
    after = {branch.name: branch.head for branch in engine.list_branches() if branch.name != VECTORS_BRANCH}
    assert after == branches
    assert not any(branch.dirty for branch in engine.list_branches())


@pytest.mark.parametrize("engines", ["doltlite", "dolt"], indirect=True)
def test_vouchers_of_remotes_apply_and_those_of_forks_do_not(engine, tmp_path):
    url = f"file://{tmp_path}/remote" if engine.name == "dolt" else f"file://{tmp_path}/remote.doltlite"
    root = read_root(engine)
    vouchers.vouch_digests(engine, {ONE: DIGEST}, timeout=5)
    head = vouchers.build_head(engine, None)
    engine.push("there", url, {ROOT_BRANCH: root})
    engine.push("there", url, {VECTORS_BRANCH: head})
    assert engine.all_remote_heads(VECTORS_BRANCH) == {head}
    assert root in engine.all_remote_heads()
    assert vouchers.build_head(engine, head) is None

    engine.delete_branch(VECTORS_BRANCH, expected=head)
    assert vouchers.read_digests(engine, ONE) == {DIGEST}, "it was fetched"
    vouchers.vouch_digests(engine, {OTHER: SECOND}, timeout=5)
    both = vouchers.build_head(engine, head)
    assert engine.is_ancestor(head, both)
    engine.push("there", url, {VECTORS_BRANCH: both})
    engine.delete_branch(VECTORS_BRANCH, expected=engine.find_branch(VECTORS_BRANCH).head)
    assert (vouchers.read_digests(engine, ONE), vouchers.read_digests(engine, OTHER)) == (
        {DIGEST},
        {SECOND},
    )

    engine.fetch(quarantine.QUARANTINE_KEY, url)
    engine.forget_remote("there")
    assert engine.all_remote_heads(VECTORS_BRANCH) == {both}
    assert vouchers.read_digests(engine, ONE) == set()
