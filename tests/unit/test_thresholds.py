"""Thresholds: the call, the project, the model, the usual one, in that order."""

from vmrag_link.retrieval.thresholds import DEFAULT_THRESHOLDS, MEASURED_THRESHOLDS, SearchPurpose, choose_threshold


def test_threshold_of_the_call_precedes_project_model_and_default() -> None:
    assert choose_threshold(SearchPurpose.ANSWER, "default", given=0.0, configured=0.9) == 0.0
    assert choose_threshold(SearchPurpose.ANSWER, "default", configured=0.0) == 0.0
    assert (
        choose_threshold(SearchPurpose.SEARCH, "default")
        == MEASURED_THRESHOLDS["default"][SearchPurpose.SEARCH]
        < DEFAULT_THRESHOLDS[SearchPurpose.SEARCH]
    )
    assert [choose_threshold(use, "openai") for use in SearchPurpose] == [0.7, 0.5, 0.7, 0.75]


def test_every_local_model_has_thresholds_higher_for_answers() -> None:
    assert set(MEASURED_THRESHOLDS) == {"default", "minilm", "hash"}
    assert all(
        threshold[SearchPurpose.SEARCH] < threshold[SearchPurpose.ANSWER] < DEFAULT_THRESHOLDS[SearchPurpose.ANSWER]
        for threshold in MEASURED_THRESHOLDS.values()
    )
