"""Agreement between the Action's files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import yaml

from tests.action import document
from vmrag_action.__main__ import STEPS
from vmrag_action.findings import CODES_BY_LOSS
from vmrag_action.runner import OUTPUTS
from vmrag_link.ops.verify.verify_commits import Code

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load(document.SOURCE.read_text())
SCRIPTS = [step for step in ACTION["runs"]["steps"] if "run" in step]


def test_documents_generated_from_the_action_are_up_to_date() -> None:
    assert document.AT_THE_TOP.read_text() == document.at_the_top()
    assert document.PAGE.read_text() == document.page()


def test_every_step_runs_an_existing_module() -> None:
    named = {match[1] for script in SCRIPTS if (match := re.search(r"-m vmrag_action (\w+)", script["run"]))}
    assert named == set(STEPS)


def test_step_gets_every_input_that_it_reads_and_no_other() -> None:
    """A composite's steps see only what is mapped; what is not mapped would silently be the
    default.
    """
    variables = {f"INPUT_{name.replace('-', '_').upper()}" for name in ACTION["inputs"]}
    mapped = {name: value for script in SCRIPTS for name, value in script.get("env", {}).items()}
    of_steps = {"INPUT_EARLIER_FINDINGS", "INPUT_BRANCH_HEAD"}
    assert {name for name in mapped if name.startswith("INPUT_")} == variables - {"INPUT_PYTHON_VERSION"} | of_steps
    for name in variables & mapped.keys():
        assert mapped[name] == f"${{{{ inputs.{name.removeprefix('INPUT_').replace('_', '-').lower()} }}}}"


def test_scripts_are_isolated_from_the_work_tree() -> None:
    """`-I`: neither the working folder nor PYTHONPATH is searched for modules."""
    for script in SCRIPTS:
        assert re.match(r'"\$[A-Z_/a-z-]+" -I ', script["run"]), script["run"]
        assert "${{" not in script["run"]


def test_every_finding_of_a_pin_has_its_rank_among_the_annotations() -> None:
    assert set(CODES_BY_LOSS) == set(get_args(Code))


def test_outputs_have_a_form() -> None:
    assert ACTION["outputs"].keys() <= OUTPUTS.keys()


def test_problem_matcher_matches_the_output_of_verify() -> None:
    [matcher] = json.loads((ROOT / "action/vmrag_action/problems.json").read_text())["problemMatcher"]
    pattern = matcher["pattern"][0]
    match = re.fullmatch(
        pattern["regexp"], "error        the merge abc drops documents: it has no pin. KNOWLEDGE_DROPPED"
    )
    assert match
    assert match[pattern["message"]].startswith("the merge")
    assert match[pattern["code"]] == "KNOWLEDGE_DROPPED"
