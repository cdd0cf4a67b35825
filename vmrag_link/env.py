"""Every environment variable that the project reads or sets, and nothing else that reads the
environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

SWITCH = "VMRAG"
"""`VMRAG=0` switches the hooks off."""

DRY_RUN = "dry"
"""`VMRAG=dry`: hooks say that git has started them, and do nothing."""

DEBUG = "VMRAG_DEBUG"
"""`VMRAG_DEBUG=1`: known errors show where they were raised, too."""

HOOK = "VMRAG_HOOK"
"""Set by a hook's shim, in sh, so that a copy of it that another hook manager runs as well sees
that the work is being done.
"""

COMMIT_INDEX = "GIT_INDEX_FILE"
"""The index that git commits from, as it tells its hooks; relative to the top of the work tree."""

FRAMEWORK = "PRE_COMMIT_"
"""The pre-commit framework, and prek in its place, hand on what git told them:
`PRE_COMMIT_REMOTE_NAME` and others.
"""

PREK_STAGE = "PREK_HOOK_STAGE"
"""All that prek tells after a merge that was no squash."""

GITHUB_ACTIONS = "GITHUB_ACTIONS"
"""`true` in a job of GitHub Actions, whose runner takes some lines of the output for commands."""

GITHUB_SERVER = "GITHUB_SERVER_URL"
"""Where the repository of a job lies: https://github.com, or a company's own."""

GITLAB_JOB = (
    "CI_API_V4_URL", "CI_MERGE_REQUEST_PROJECT_ID", "CI_MERGE_REQUEST_IID", "GITLAB_TOKEN", "CI_JOB_URL",
)  # fmt: skip
"""Where GitLab's API is, project and number of a job's merge request, a token that a project gives
its jobs under the name that other programs read, too, and the page of the job.
"""


def read_gitlab_job(environ: Mapping[str, str] = os.environ) -> tuple[str, str, str, str, str]:
    """The values of `GITLAB_JOB`; empty ones outside of such a job."""
    api, project, number, token, page = (environ.get(each, "").strip() for each in GITLAB_JOB)
    return api.rstrip("/"), project, number, token, page


SETTING_PREFIX = "VMRAG_"
"""A setting of `.vmrag.yaml` from the environment: `VMRAG_INDEX_KEEP_MB=8` for `index.keep_mb`."""

SETTINGS_FROM = "VMRAG_SETTINGS_FROM"
"""The full name of a commit whose `.vmrag.yaml` stands for the person: a workflow names the base of
a pull request, so that nothing of the head's counts that the base does not have.
"""

NO_SERVICES = "VMRAG_NO_SERVICES"
"""`VMRAG_NO_SERVICES=1`: no embedding service is asked, whoever agreed to it: the texts may be
those of a stranger's pull request.
"""

REPOSITORY = "VMRAG_REPO"
"""The directory whose knowledge the MCP server serves."""

STRICT = "VMRAG_STRICT"
"""`VMRAG_STRICT=1`: what is searched for must be of the pinned revision, as with `--strict`."""

CLIENT_PROJECT = "CLAUDE_PROJECT_DIR"
"""Where Claude Code works, as it tells the servers that it starts."""

TOKEN = "VMRAG_MCP_TOKEN"  # noqa: S105  a name
"""What clients of the MCP server over HTTP have to say."""

TEMPORARY = "TMPDIR"
"""Where programs write what they need for a while."""

_LIBRARY_FOLDERS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

EXECUTABLES = "PATH"
WORKING_DIRECTORY = "PWD"
GITPYTHON_PROGRAM = "GIT_PYTHON_GIT_EXECUTABLE"
"""The git that GitPython starts."""

ENVIRONMENT = "VIRTUAL_ENV"
"""The virtual environment that this shell has activated; other programs do not look into it."""

OPENAI_KEY = "OPENAI_API_KEY"
COHERE_KEY = "COHERE_API_KEY"
HUGGINGFACE_KEY = "HF_TOKEN"
SERVICE_KEYS = (OPENAI_KEY, COHERE_KEY, HUGGINGFACE_KEY)
"""The keys of services that compute vectors, under the names that their own clients read."""

CHROMA_KEY = "CHROMA_API_KEY"
"""The key of Chroma Cloud, or of a server behind a proxy that checks it: `X-Chroma-Token`."""

CHROMA_CREDENTIALS = "CHROMA_CLIENT_AUTH_CREDENTIALS"
"""What a proxy before a Chroma server asks for: `USER:PASSWORD` for Basic, else a Bearer token."""

IMPORTED = "CHROMA_DATA_DIR"
"""Where another program's Chroma store lies, whose documents a new knowledge base takes in."""


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Tell OpenBLAS to start no threads if it is loaded in the block, unless the user set the
    variable. Programs that this process starts later do not inherit it.
    """
    variable = "OPENBLAS_NUM_THREADS"
    if variable in os.environ:
        yield
        return
    os.environ[variable] = "1"
    try:
        yield
    finally:
        del os.environ[variable]


def read_import_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    return Path(environ[IMPORTED]) if environ.get(IMPORTED) else None


DEFAULT_EF = "CHROMA_DEFAULT_EF"
"""The embedding model of new collections, as a Chroma server for agents calls it."""

OTHER_MODEL_NAMES = {"sentence_transformer": "minilm"}
"""Sentence Transformers' usual model is the one that runs here as `minilm`."""


def choose_model(name: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The embedding model that `name` is, else `CHROMA_DEFAULT_EF`, unless our own variable says
    otherwise; empty for none.
    """
    wanted = name or ("" if environ.get(f"{SETTING_PREFIX}EMBEDDING_MODEL") else environ.get(DEFAULT_EF, ""))
    return OTHER_MODEL_NAMES.get(wanted, wanted)


def prefer_model(name: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Let new collections of this process, and of those that it starts, be of this model."""
    environ[f"{SETTING_PREFIX}EMBEDDING_MODEL"] = name


GIT_OPTIONS = "GIT_CONFIG_PARAMETERS"
"""What `git -c` sets for one command, its hooks included: CI gives credentials so."""

SSH_COMMAND = "GIT_SSH_COMMAND"
SSH_PROGRAM = "GIT_SSH"
"""What git starts in place of `ssh`: a command for the shell, or a program."""


def read_git_options(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`GIT_OPTIONS`, for a git that talks to remotes. Elsewhere it is scrubbed, because it may name
    another repository.
    """
    return {GIT_OPTIONS: environ[GIT_OPTIONS]} if environ.get(GIT_OPTIONS) else {}


# `git rev-parse --local-env-vars`, plus what git sets for its hooks. Inherited, they send git to
# another repository or index. GIT_CONFIG_COUNT is not among them, although git lists it: containers
# and CI configure git with it for every repository (safe.directory).
GIT_LOCAL = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)

# They change what git prints, or which files an argument means. `git --literal-pathspecs commit`,
# as Magit calls it, hands one of them to hooks.
_GIT_MEANINGS = (
    "GIT_EXTERNAL_DIFF",
    "GIT_GLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS",
    "GIT_LITERAL_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
)

GIT_SCRUBBED = frozenset((*GIT_LOCAL, *_GIT_MEANINGS))
"""The variables that no git process inherits."""

GIT_SETTINGS = "GIT_CONFIG_COUNT"
"""How many settings git takes from `GIT_CONFIG_KEY_<n>` and `GIT_CONFIG_VALUE_<n>`; later ones
count more.
"""


def git_author(environ: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """Name and address of the author that the environment gives git."""
    return environ.get("GIT_AUTHOR_NAME"), environ.get("GIT_AUTHOR_EMAIL")


def read_git_configuration(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that decide which configuration git reads, and those that hold some of it."""
    wanted = ("HOME", "XDG_CONFIG_HOME")
    return {key: environ[key] for key in environ if key.startswith("GIT_CONFIG") or key in wanted}


def git_settings(
    below: Sequence[tuple[str, str]] = (),
    above: Sequence[tuple[str, str]] = (),
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The variables that add settings to those inherited: `below` count less, `above` more."""
    if not below and not above:
        return {}
    count = environ.get(GIT_SETTINGS, "")
    inherited = [
        (environ.get(f"GIT_CONFIG_KEY_{number}", ""), environ.get(f"GIT_CONFIG_VALUE_{number}", ""))
        for number in range(int(count) if count.isdecimal() else 0)
    ]
    pairs = [*below, *inherited, *above]
    found = {GIT_SETTINGS: str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


MERGE_HEADS = "GITHEAD_"
"""`git merge` and `git pull` set `GITHEAD_<commit>` to the name of each head that they merge."""


def list_merge_heads(environ: Mapping[str, str] = os.environ) -> list[str]:
    """The commits that `git merge` or `git pull`, whose child this process is, merges now."""
    return [name.removeprefix(MERGE_HEADS) for name in environ if name.startswith(MERGE_HEADS)]


UNATTENDED = "VMRAG_UNATTENDED"
"""Set for a process that works after the command that started it is over: a dialog would come from
nowhere.
"""

GIT_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
"""For a git that must not fetch objects that it lacks. Git before 2.45 knows only the second."""

SILENCED = {"GIT_ASKPASS": "", "SSH_ASKPASS_REQUIRE": "never"}
"""git takes the first that is set of several programs to ask with, and an empty one for none."""


GIT_EDITOR = "GIT_EDITOR"


def has_git_editor(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if the caller chose an editor for the git commands that it starts."""
    return bool(environ.get(GIT_EDITOR))


def read_unattended(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that keep git and ssh from opening a dialog, if `UNATTENDED` is set. Empty
    else, because CI answers by dialog programs.
    """
    return SILENCED if environ.get(UNATTENDED) else {}


DOLT_PASSWORD = "VMRAG_DOLT_PASSWORD"  # noqa: S105  a name
"""The password of a Dolt server's user. No setting, so that it stands in no file."""

DOLT_HOME = "DOLT_ROOT_PATH"
"""Where Dolt looks for `.dolt` with this user's configuration, in place of the home directory."""

DOLT_NO_REPORT = "DOLT_DISABLE_EVENT_FLUSH"
"""Set to anything: Dolt sends its makers no report of what was run."""

DOLT_REMOTE_PASSWORD = "DOLT_REMOTE_PASSWORD"  # noqa: S105  a name
"""The password that Dolt sends where it logs in by `--user` at a remote: Dolt's own variable."""

DOLT_GIT_REMOTES = {
    "DOLT_REMOTE_INFO_BRANCH": "",
    **{f"GIT_{who}_NAME": "vmrag" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "vmrag@localhost" for who in ("AUTHOR", "COMMITTER")},
}
"""Dolt makes no branch in a git repository that is its remote, and its commits there do not say who
runs it.
"""

# They decide which bytes Dolt stores, and so the hashes of revisions, what a database is called, or
# as whom it logs in; the last ones write beside what was asked for.
DOLT_SCRUBBED = frozenset(
    (
        *(f"DOLT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")),
        "DOLT_USE_ADAPTIVE_ENCODING",
        "DOLT_DBNAME_REPLACE",
        "DOLT_CLI_USER",
        "DOLT_CLI_PASSWORD",
        "DOLT_DISABLE_CHUNK_JOURNAL",
        "DOLT_DISABLE_GC_PROCEDURE",
        "DOLT_SQL_DEBUG_LOG",
        "DOLT_SQL_DEBUG_LOG_VERBOSE",
        DOLT_PASSWORD,
    )
)
"""The variables that no `dolt` process inherits."""


def dolt_password(environ: Mapping[str, str] = os.environ) -> str:
    return environ.get(DOLT_PASSWORD, "")


def has_dolt_remote_password(environ: Mapping[str, str] = os.environ) -> bool:
    return bool(environ.get(DOLT_REMOTE_PASSWORD))


DATA_HOME = "XDG_DATA_HOME"
"""Where programs keep what belongs to this user:
https://specifications.freedesktop.org/basedir-spec.
"""


def data_home(environ: Mapping[str, str] = os.environ) -> Path:
    """The user's data folder. A relative path in the variable is ignored, as the specification
    demands.
    """
    given = Path(environ.get(DATA_HOME) or "")
    return given if given.is_absolute() else user_home() / ".local" / "share"


CONFIG_HOME = "XDG_CONFIG_HOME"
"""Where programs keep this user's settings, by the same specification."""

CODEX = "CODEX_HOME"
"""The folder of Codex: https://developers.openai.com/codex/config-advanced."""


def user_home() -> Path:
    """This user's home; never raises."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111  never raises


def config_home(environ: Mapping[str, str] = os.environ) -> Path:
    given = Path(environ.get(CONFIG_HOME) or "")
    return given if given.is_absolute() else user_home() / ".config"


def codex_home(environ: Mapping[str, str] = os.environ) -> Path:
    given = Path(environ.get(CODEX) or "")
    return given if given.is_absolute() else user_home() / ".codex"


def are_hooks_off(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(SWITCH) == "0"


def read_framework_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What git told the framework that runs this hook, under its names without `PRE_COMMIT_`."""
    return {name.removeprefix(FRAMEWORK): value for name, value in environ.items() if name.startswith(FRAMEWORK)}


def read_prek_stage(environ: Mapping[str, str] = os.environ) -> str:
    return environ.get(PREK_STAGE, "")


def allows_colour(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a terminal may be written to in colour: https://no-color.org, and terminals that know
    none.
    """
    return not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def in_github_actions(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether GitHub's runner reads what is printed: it sets this in every step, and in no other
    value.
    """
    return environ.get(GITHUB_ACTIONS) == "true"


def read_github_server(environ: Mapping[str, str] = os.environ) -> str:
    """Empty outside of a job."""
    return environ.get(GITHUB_SERVER, "").rstrip("/")


def is_debug(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(DEBUG, "") not in ("", "0")


def setting_variable(key: str) -> str:
    """`index.keep_mb` → `VMRAG_INDEX_KEEP_MB`."""
    return SETTING_PREFIX + key.replace(".", "_").upper()


def forbids_services(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(NO_SERVICES, "") not in ("", "0")


def is_strict(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(STRICT, "") not in ("", "0")


def read_variable(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """What one variable says; an empty one counts as absent."""
    return environ.get(name) or None


def list_program_folders(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """PATH without relative folders: in a stranger's work tree they hold a stranger's programs."""
    folders = environ.get(EXECUTABLES, os.defpath).split(os.pathsep)
    return tuple(folder for folder in folders if os.path.isabs(folder))  # noqa: PTH117  hot


def activated_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Where the programs of the activated virtual environment are; empty without one."""
    return os.path.join(environ[ENVIRONMENT], "bin") if environ.get(ENVIRONMENT) else ""  # noqa: PTH118  as on PATH


def path_without_environment(environ: Mapping[str, str] = os.environ) -> str:
    """PATH without an activated virtual environment: programs on it are found in every shell."""
    activated = environ.get(ENVIRONMENT)
    folders = environ.get(EXECUTABLES, "").split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not activated or Path(activated) not in Path(folder).parents)


def remove_variables(names: Iterable[str], environ: MutableMapping[str, str] = os.environ) -> None:
    """Go on as if these had not been inherited."""
    for name in names:
        environ.pop(name, None)


def add_variables(values: Mapping[str, str], environ: MutableMapping[str, str] = os.environ) -> None:
    """Go on as if these had been inherited."""
    environ.update(values)


def copy_without(names: frozenset[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A copy of the environment for a child process that must not inherit these variables."""
    return {name: value for name, value in environ.items() if name not in names}


def list_library_folders(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Where the variables that `bare` leaves say that libraries lie."""
    return [each for name in _LIBRARY_FOLDERS for each in environ.get(name, "").split(":") if each]


def bare_environment(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The whole environment of a child process that reads untrusted files: its own folder, and the
    folders of libraries, for a Python that was built so.
    """
    libraries = {name: environ[name] for name in _LIBRARY_FOLDERS if name in environ}
    return libraries | {TEMPORARY: str(folder), "LC_ALL": "C.UTF-8"}
