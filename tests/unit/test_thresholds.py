"""Thresholds: the call, the project, the model, the usual one, in that order."""

from vmrag_link.retrieval.fusion import DEFAULT_THRESHOLDS, MEASURED_THRESHOLDS, SearchPurpose, choose_threshold


def test_call_comes_before_the_project_before_the_model_before_what_is_usual() -> None:
    assert choose_threshold(SearchPurpose.ANSWER, "default", given=0.0, configured=0.9) == 0.0
    assert choose_threshold(SearchPurpose.ANSWER, "default", configured=0.0) == 0.0
    assert (
        choose_threshold(SearchPurpose.SEARCH, "default")
        == MEASURED_THRESHOLDS["default"][SearchPurpose.SEARCH]
        < DEFAULT_THRESHOLDS[SearchPurpose.SEARCH]
    )
    assert [choose_threshold(use, "openai") for use in SearchPurpose] == [0.7, 0.5, 0.7, 0.75]


def test_every_local_model_has_its_own_and_asks_more_for_an_answer_than_for_a_search() -> None:
    assert set(MEASURED_THRESHOLDS) == {"default", "minilm", "hash"}
    assert all(
        threshold[SearchPurpose.SEARCH] < threshold[SearchPurpose.ANSWER] < DEFAULT_THRESHOLDS[SearchPurpose.ANSWER]
        for threshold in MEASURED_THRESHOLDS.values()
    )
