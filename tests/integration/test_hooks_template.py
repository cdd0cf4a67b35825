"""A git template directory, from which clones get the hooks."""

import subprocess
import sys

import pytest

from tests.support import terminal
from tests.support.hooks import tree
from tests.support.terminal import Project
from vmrag_hooks import shim_files, shims
from vmrag_link import hints
from vmrag_link.errors import FileFailed, HooksRefused
from vmrag_link.git import hook_config

project = terminal.project
template = terminal.template


@pytest.fixture
def folder(tmp_path):
    shim_files.write_template(tmp_path / "git 'template'")
    return tmp_path / "git 'template'"


def cloned(project, folder, *options):
    """Return the clone and git's output."""
    top = folder.with_name("clone")
    result = project.run("clone", "-q", *options, str(project.top), str(top))
    assert (result.returncode, result.stdout) == (0, "")
    return Project(top), result.stderr


def everything(folder):
    return {name: tree(folder / name) for name in ("hooks", "vmrag")} | {"config": (folder / "config").read_bytes()}


def test_second_time_nothing_changes(folder):
    before = everything(folder)
    assert shim_files.write_template(folder).written == ()
    assert everything(folder) == before
    assert set(before["hooks"]) == set(hook_config.HOOKS)


@pytest.mark.parametrize("how", ["option", "setting"])
def test_clone_from_template_has_hooks_and_driver_without_noise(project, folder, how):
    if how == "setting":
        project.git("config", "--global", "init.templateDir", str(folder))
    clone, said = cloned(project, folder, *([f"--template={folder}"] if how == "option" else []))
    assert len(said.splitlines()) <= 1
    assert clone.git("config", "merge.vmrag.driver") == shims.format_driver_command(sys.executable)
    assert (clone.shared / "interpreter").read_text() == f"{sys.executable}\n"
    assert set(clone.ask("install")["unchanged"]) == set(hook_config.HOOKS)
    assert clone.git("config", "core.bare") == "false"
    result = clone.run("switch", "-q", "-c", "feature", "origin/feature")
    assert (result.returncode, len(result.stderr.splitlines()) <= 1) == (0, True)
    clone.write("code.py", "1")
    clone.git("add", "-A")
    result = clone.run("commit", "-q", "-m", "code")
    assert (result.returncode, len(result.stderr.splitlines()) <= 1) == (0, True)
    clone.vmrag("uninstall")
    assert not (clone.top / ".git" / "hooks" / "post-checkout").exists()


@pytest.mark.parametrize("options", [["--bare"], ["--no-checkout"], ["--depth=1"], ["--sparse"]])
def test_clones_of_every_kind_work(project, folder, options):
    top = folder.with_name("clone")
    result = project.run("clone", "-q", *options, f"--template={folder}", f"file://{project.top}", str(top))
    assert (result.returncode, result.stdout) == (0, "")
    assert len(result.stderr.splitlines()) <= 1


def test_new_repository_from_template_starts_knowledge_base_with_hooks(folder, project, tmp_path):
    project.git("init", "-q", f"--template={folder}", str(tmp_path / "new"))
    new = Project(tmp_path / "new")
    new.write(".vmrag.yaml", "embedding:\n  model: hash\n")
    new.vmrag("init", "--knowledge-base", "--no-sources")
    new.put("page.md", "A page.")
    new.vmrag("commit", "-m", "first")
    new.git("commit", "-q", "-m", "first")
    assert new.status()["state"] == "in_sync"
    assert [link["git_commit"] for link in new.ask("links")["links"]] == [new.git("rev-parse", "HEAD")]


def test_other_files_of_a_template_are_kept(tmp_path):
    folder = tmp_path / "template"
    (folder / "hooks").mkdir(parents=True)
    (folder / "hooks" / "commit-msg").write_text("#!/bin/sh\n")
    (folder / "config").write_text("[core]\n\tignoreCase = false\n")
    (folder / "description").write_text("mine")
    assert shim_files.write_template(folder).written == hook_config.HOOKS
    assert (folder / "hooks" / "commit-msg").read_text() == "#!/bin/sh\n"
    assert (folder / "config").read_text().startswith("[core]\n\tignoreCase = false\n[merge ")
    assert (folder / "description").read_text() == "mine"


def test_older_shims_are_replaced(folder):
    shim = folder / "hooks" / "post-merge"
    shim.write_bytes(shim.read_bytes() + b"# older\n")
    assert shim_files.write_template(folder).written == ("post-merge",)


def test_hook_of_another_tool_is_rejected_and_can_be_chained(project, tmp_path):
    folder = tmp_path / "template"
    (folder / "hooks").mkdir(parents=True)
    (folder / "hooks" / "post-checkout").write_text("#!/bin/sh\necho mine >&2\n")
    (folder / "hooks" / "post-checkout").chmod(0o755)
    with pytest.raises(HooksRefused, match="post-checkout") as raised:
        shim_files.write_template(folder)
    assert [path.name for path in folder.rglob("*")] == ["hooks", "post-checkout"]
    [command] = hints.list_commands(raised.value.hint)
    subprocess.run(["sh", "-c", command], check=True)
    shim_files.write_template(folder)
    _, said = cloned(project, folder, f"--template={folder}")
    assert said == "mine\nvmrag: this code pins a knowledge base; run 'vmrag clone' to fetch it\n"


def test_file_in_its_place_is_an_error(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileFailed):
        shim_files.write_template(tmp_path / "file")


def test_command_works_anywhere_and_prints_the_next_command(tmp_path, project):
    nowhere = Project(tmp_path / "nowhere")
    nowhere.top.mkdir()
    said = nowhere.vmrag("init", "--knowledge-base", "--no-sources", "--template", "mine").out
    assert hints.list_commands(said.partition("hint: ")[2]) == [
        f"git config --global init.templateDir {nowhere.top / 'mine'}",
        f"git clone --template={nowhere.top / 'mine'} URL",
    ]
    assert nowhere.ask("init", "--knowledge-base", "--no-sources", "--template", "mine")["written"] == []
    nowhere.vmrag("init", "--knowledge-base", "--no-sources", "--template", "mine", "--no-hooks", code=2)
    assert sorted(path.name for path in nowhere.top.iterdir()) == ["mine"]
