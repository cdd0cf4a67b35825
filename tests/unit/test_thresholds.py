"""Thresholds: the call, the project, the model, the usual one, in that order."""

from vmrag_link.retrieval.fusion import MEASURED, USUAL, Use, threshold


def test_a_call_comes_before_the_project_before_the_model_before_what_is_usual() -> None:
    assert threshold(Use.ANSWER, "default", given=0.0, configured=0.9) == 0.0
    assert threshold(Use.ANSWER, "default", configured=0.0) == 0.0
    assert threshold(Use.SEARCH, "default") == MEASURED["default"][Use.SEARCH] < USUAL[Use.SEARCH]
    assert [threshold(use, "openai") for use in Use] == [0.7, 0.5, 0.7, 0.75]


def test_every_local_model_has_its_own_and_asks_more_for_an_answer_than_for_a_search() -> None:
    assert set(MEASURED) == {"default", "minilm", "hash"}
    assert all(each[Use.SEARCH] < each[Use.ANSWER] < USUAL[Use.ANSWER] for each in MEASURED.values())
