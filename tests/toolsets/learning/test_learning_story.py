"""An agent thinks and learns over stdio, and its person works on two branches."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import notes
from tests.support.agent import Call, run_story
from tests.support.contract_states import DATA_FOLDER
from tests.support.terminal import Project

pytestmark = pytest.mark.hooks("off")

template, project = notes.template, notes.project


def test_learnings_belong_to_their_branch_and_survive_the_merge(project: Project):
    for name in ("own-before.xml", "own-after.xml"):
        project.write(f"out/{name}", (DATA_FOLDER / name).read_text())
    project.git("branch", "side")

    async def story(call: Call) -> None:
        async def done(name: str, **arguments: Any) -> dict[str, Any]:
            answer = await call(name, **arguments)
            assert answer["success"], answer
            return answer

        async def keep(message: str) -> None:
            await done("dolt_commit", message=message)
            project.git("commit", "-q", "-a", "-m", message)

        async def thought(session: str, number: int, text: str) -> list[str]:
            place = {"session_id": session, "thought_number": number, "total_thoughts": 2}
            result = await done("chroma_sequential_thinking", thought=text, **place)
            return [thought["content"] for thought in result["previous_thoughts"]]

        async def sessions() -> list[str]:
            result = await done("chroma_find_similar_sessions", query="scores of the ranking", threshold=0.0)
            return sorted(session["session_id"] for session in result["similar_sessions"])

        assert await thought("zeros", 1, "Why are all scores of the ranking zero?") == []
        assert await thought("zeros", 2, "A best score of zero weighs nothing.") != []
        change = {"file_path": "src/fusion.py", "before_content": "best", "after_content": "best or 1"}
        await done(
            "chroma_add_documents",
            collection_name="notes",
            documents=["The ranking weighs words and meaning."],
        )
        chat = await done(
            "chroma_log_chat",
            prompt_summary="Fix the ranking",
            response_summary="It weighs by 1 where the best score is 0.",
            file_changes=[change],
        )
        run = await done("learning_log_test_results", xml_path="out/own-after.xml", before_xml="out/own-before.xml")
        checked = await done("learning_validate_evidence", test_transitions=run["evidence_id"])
        learning = await done(
            "learning_promote",
            description="Weigh by 1 where the best score is 0.",
            source_chat_id=chat["chat_id"],
            require_validation=True,
            validation_evidence_id=checked["evidence_id"],
        )
        await keep("the ranking")

        project.git("switch", "-q", "side")
        assert await sessions() == []
        nobody = await call("learning_promote", description="x", source_chat_id=chat["chat_id"])
        assert nobody["error"] == "DOCUMENT_NOT_FOUND"
        none = await call("learning_validate_evidence", test_transitions=run["evidence_id"])
        assert none["error"] == "DOCUMENT_NOT_FOUND"
        await thought("words", 1, "Which words does the ranking know?")
        await keep("words")
        merged = await done("merge_branch", source="main")
        assert (merged["conflicts"], await sessions()) == ([], ["words", "zeros"])
        await done("learning_promote", description="Once more.", validation_evidence_id=checked["evidence_id"])
        rows = await done("chroma_get_documents", collection_name="derived_learnings_v1", ids=[learning["learning_id"]])
        assert rows["documents"][0]["metadata"]["validation_score"] == checked["score"]
        hit = await done(
            "chroma_query_documents", collection_name="derived_learnings_v1", query_texts=["best score"], n_results=1
        )
        assert hit["ids"] == [[learning["learning_id"]]]

    run_story(project, story, toolsets="default,thinking,learning")
