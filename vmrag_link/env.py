"""All environment variables that vmrag reads or sets. No other module reads the environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path

SWITCH = "VMRAG"
"""`VMRAG=0` switches the hooks off."""

DRY_RUN = "dry"
"""`VMRAG=dry`: hooks print that git has started them, and do nothing."""

DEBUG = "VMRAG_DEBUG"
"""`VMRAG_DEBUG=1`: vmrag also prints where a known error was raised."""

HOOK = "VMRAG_HOOK"
"""Set by the shell shim of a hook. If another hook manager also runs a copy of the shim, the copy
does nothing.
"""

COMMIT_INDEX = "GIT_INDEX_FILE"
"""The index that git commits from, which git sets for its hooks. It is relative to the top of the
work tree.
"""

FRAMEWORK = "PRE_COMMIT_"
"""Prefix of the variables in which pre-commit and prek pass on what git gave them, such as
`PRE_COMMIT_REMOTE_NAME`.
"""

PREK_STAGE = "PREK_HOOK_STAGE"
"""The only variable that prek sets after a merge that was not a squash."""

GITHUB_ACTIONS = "GITHUB_ACTIONS"
"""`true` in a job of GitHub Actions. Its runner takes some lines of the output as commands."""

GITHUB_SERVER = "GITHUB_SERVER_URL"
"""The server of a job's repository: https://github.com, or a company's own."""

GITLAB_JOB = (
    "CI_API_V4_URL", "CI_MERGE_REQUEST_PROJECT_ID", "CI_MERGE_REQUEST_IID", "GITLAB_TOKEN", "CI_JOB_URL",
)  # fmt: skip
"""Variables of a GitLab job: the API, the project and number of its merge request, a token, and the
page of the job. A project sets `GITLAB_TOKEN` for its jobs; other programs read the same name.
"""


def read_gitlab_job(environ: Mapping[str, str] = os.environ) -> tuple[str, str, str, str, str]:
    """Return the values of `GITLAB_JOB`. They are empty outside such a job."""
    api, project, number, token, page = (environ.get(name, "").strip() for name in GITLAB_JOB)
    return api.rstrip("/"), project, number, token, page


SETTING_PREFIX = "VMRAG_"
"""Prefix of a setting in the environment: `VMRAG_INDEX_KEEP_MB=8` for `index.keep_mb`."""

SETTINGS_FROM = "VMRAG_SETTINGS_FROM"
"""The full name of a commit whose `.vmrag.yaml` is trusted. A workflow names the base of a pull
request, so that a setting of the head applies only if the base has it.
"""

NO_SERVICES = "VMRAG_NO_SERVICES"
"""`VMRAG_NO_SERVICES=1`: vmrag contacts no embedding service, even a trusted one. The texts can
come from an untrusted pull request.
"""

REPOSITORY = "VMRAG_REPO"
"""The directory of the repository that the MCP server serves."""

STRICT = "VMRAG_STRICT"
"""`VMRAG_STRICT=1`: searches fail unless they answer from the pinned revision, like `--strict`."""

CLIENT_PROJECT = "CLAUDE_PROJECT_DIR"
"""The project of Claude Code, which it sets for the servers that it starts."""

TOKEN = "VMRAG_MCP_TOKEN"  # noqa: S105  a name
"""The bearer token that clients send to the MCP server over HTTP."""

TEMPORARY = "TMPDIR"
"""The folder for temporary files."""

_LIBRARY_FOLDERS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")

EXECUTABLES = "PATH"
WORKING_DIRECTORY = "PWD"
GITPYTHON_PROGRAM = "GIT_PYTHON_GIT_EXECUTABLE"
"""The git that GitPython starts."""

ENVIRONMENT = "VIRTUAL_ENV"
"""The virtual environment that this shell has activated."""

OPENAI_KEY = "OPENAI_API_KEY"
COHERE_KEY = "COHERE_API_KEY"
HUGGINGFACE_KEY = "HF_TOKEN"
SERVICE_KEYS = (OPENAI_KEY, COHERE_KEY, HUGGINGFACE_KEY)
"""The keys of services that compute vectors, under the names that their own clients read."""

CHROMA_KEY = "CHROMA_API_KEY"
"""The key of Chroma Cloud, or of a server behind a proxy that checks it: `X-Chroma-Token`."""

CHROMA_CREDENTIALS = "CHROMA_CLIENT_AUTH_CREDENTIALS"
"""Credentials for a proxy in front of a Chroma server: `USER:PASSWORD` for Basic, else a Bearer
token.
"""

IMPORTED = "CHROMA_DATA_DIR"
"""The folder of another program's Chroma store. A new knowledge base imports its documents."""


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Keep OpenBLAS from starting threads if it is loaded in the block, unless the user set the
    variable.

    Programs that this process starts later do not inherit the variable.
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
    """Return the folder of another program's Chroma store, or None."""
    return Path(environ[IMPORTED]) if environ.get(IMPORTED) else None


DEFAULT_EF = "CHROMA_DEFAULT_EF"
"""The embedding model of new collections, by the name that Chroma's MCP server uses."""

OTHER_MODEL_NAMES = {"sentence_transformer": "minilm"}
"""Names of models in other programs. The usual model of Sentence Transformers is `minilm` here."""


def choose_model(name: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """Return the embedding model for `name`, else for `CHROMA_DEFAULT_EF`; an empty text for none.

    `VMRAG_EMBEDDING_MODEL` takes precedence over `CHROMA_DEFAULT_EF`.
    """
    chosen = name or ("" if environ.get(f"{SETTING_PREFIX}EMBEDDING_MODEL") else environ.get(DEFAULT_EF, ""))
    return OTHER_MODEL_NAMES.get(chosen, chosen)


def prefer_model(name: str, environ: MutableMapping[str, str] = os.environ) -> None:
    """Set the embedding model of new collections, for this process and those that it starts."""
    environ[f"{SETTING_PREFIX}EMBEDDING_MODEL"] = name


GIT_OPTIONS = "GIT_CONFIG_PARAMETERS"
"""The options of `git -c` for one command and its hooks. CI passes credentials in this variable."""

SSH_COMMAND = "GIT_SSH_COMMAND"
SSH_PROGRAM = "GIT_SSH"
"""A program that git starts in place of `ssh`. `SSH_COMMAND` is a shell command."""


def read_git_options(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return `GIT_OPTIONS` for a git process that contacts remotes.

    Other git processes do not inherit the variable, because it can name another repository.
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
"""Number of settings in `GIT_CONFIG_KEY_<n>` and `GIT_CONFIG_VALUE_<n>`. Later ones take
precedence.
"""


def git_author(environ: Mapping[str, str] = os.environ) -> tuple[str | None, str | None]:
    """Return the name and the address of the author that the environment gives git."""
    return environ.get("GIT_AUTHOR_NAME"), environ.get("GIT_AUTHOR_EMAIL")


def read_git_configuration(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that select git's configuration files, or contain settings."""
    folders = ("HOME", "XDG_CONFIG_HOME")
    return {key: environ[key] for key in environ if key.startswith("GIT_CONFIG") or key in folders}


def git_settings(
    below: Sequence[tuple[str, str]] = (),
    above: Sequence[tuple[str, str]] = (),
    environ: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """Return the variables that add settings to the inherited ones.

    Settings in `below` yield to the inherited ones, and those in `above` take precedence.
    """
    if not below and not above:
        return {}
    count = environ.get(GIT_SETTINGS, "")
    inherited = [
        (environ.get(f"GIT_CONFIG_KEY_{number}", ""), environ.get(f"GIT_CONFIG_VALUE_{number}", ""))
        for number in range(int(count) if count.isdecimal() else 0)
    ]
    pairs = [*below, *inherited, *above]
    variables = {GIT_SETTINGS: str(len(pairs))}
    for number, (key, value) in enumerate(pairs):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


MERGE_HEADS = "GITHEAD_"
"""`git merge` and `git pull` set `GITHEAD_<commit>` to the name of each head that they merge."""


def list_merge_heads(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the commits that `git merge` or `git pull` is merging, if it started this process."""
    return [name.removeprefix(MERGE_HEADS) for name in environ if name.startswith(MERGE_HEADS)]


UNATTENDED = "VMRAG_UNATTENDED"
"""Set for a process that outlives the command that started it. A dialog would surprise the user."""

GIT_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
"""Variables that keep git from fetching missing objects. Git before 2.45 knows only the
second one.
"""

SILENCED = {"GIT_ASKPASS": "", "SSH_ASKPASS_REQUIRE": "never"}
"""Variables that keep git from asking for passwords. Git uses the first of several programs that is
set, and none if it is empty.
"""


GIT_EDITOR = "GIT_EDITOR"


def has_git_editor(environ: Mapping[str, str] = os.environ) -> bool:
    """Return True if the caller chose an editor for the git commands that it starts."""
    return bool(environ.get(GIT_EDITOR))


def read_unattended(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that keep git and ssh from opening a dialog if `UNATTENDED` is set.

    Otherwise the result is empty, because CI answers with dialog programs.
    """
    return SILENCED if environ.get(UNATTENDED) else {}


DOLT_PASSWORD = "VMRAG_DOLT_PASSWORD"  # noqa: S105  a name
"""The password of a Dolt server's user. It is not a setting, so it is never in a file."""

DOLT_HOME = "DOLT_ROOT_PATH"
"""The folder in which Dolt looks for the `.dolt` of this user, in place of the home directory."""

DOLT_NO_REPORT = "DOLT_DISABLE_EVENT_FLUSH"
"""If set, Dolt sends no usage reports."""

DOLT_REMOTE_PASSWORD = "DOLT_REMOTE_PASSWORD"  # noqa: S105  a name
"""Dolt's own variable: the password for a remote to which it logs in with `--user`."""

DOLT_GIT_REMOTES = {
    "DOLT_REMOTE_INFO_BRANCH": "",
    **{f"GIT_{who}_NAME": "vmrag" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "vmrag@localhost" for who in ("AUTHOR", "COMMITTER")},
}
"""Variables for a git repository as a remote: Dolt creates no branch in it, and its commits there
do not name the user.
"""

# They decide which bytes Dolt stores, and so the hashes of revisions, what a database is called, or
# who logs in. The last ones write next to the requested data.
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
"""The folder for the data of this user: https://specifications.freedesktop.org/basedir-spec."""


def data_home(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's data folder.

    A relative path in the variable is ignored, per the specification.
    """
    folder = Path(environ.get(DATA_HOME) or "")
    return folder if folder.is_absolute() else user_home() / ".local" / "share"


CONFIG_HOME = "XDG_CONFIG_HOME"
"""The folder for the settings of this user, per the same specification."""

CODEX = "CODEX_HOME"
"""The folder of Codex: https://developers.openai.com/codex/config-advanced."""


def user_home() -> Path:
    """Return the user's home directory. It never raises."""
    return Path(os.path.expanduser("~"))  # noqa: PTH111  never raises


def config_home(environ: Mapping[str, str] = os.environ) -> Path:
    folder = Path(environ.get(CONFIG_HOME) or "")
    return folder if folder.is_absolute() else user_home() / ".config"


def codex_home(environ: Mapping[str, str] = os.environ) -> Path:
    folder = Path(environ.get(CODEX) or "")
    return folder if folder.is_absolute() else user_home() / ".codex"


def are_hooks_off(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(SWITCH) == "0"


def read_framework_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what git gave to the framework that runs this hook, by names without `PRE_COMMIT_`."""
    return {name.removeprefix(FRAMEWORK): value for name, value in environ.items() if name.startswith(FRAMEWORK)}


def read_prek_stage(environ: Mapping[str, str] = os.environ) -> str:
    return environ.get(PREK_STAGE, "")


def allows_colour(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether output to a terminal can have colours (https://no-color.org)."""
    return not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"


def in_github_actions(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether GitHub's runner reads the output. The runner sets the variable to `true` in
    each step.
    """
    return environ.get(GITHUB_ACTIONS) == "true"


def read_github_server(environ: Mapping[str, str] = os.environ) -> str:
    """Return the URL of the job's server; an empty text outside a job."""
    return environ.get(GITHUB_SERVER, "").rstrip("/")


def is_debug(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(DEBUG, "") not in ("", "0")


def setting_variable(key: str) -> str:
    """Return the variable of a setting: `VMRAG_INDEX_KEEP_MB` for `index.keep_mb`."""
    return SETTING_PREFIX + key.replace(".", "_").upper()


def forbids_services(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(NO_SERVICES, "") not in ("", "0")


def is_strict(environ: Mapping[str, str] = os.environ) -> bool:
    return environ.get(STRICT, "") not in ("", "0")


def read_variable(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the value of a variable, or None if it is missing or empty."""
    return environ.get(name) or None


def list_program_folders(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the folders of PATH, without relative ones.

    A relative folder can contain programs of an untrusted work tree.
    """
    folders = environ.get(EXECUTABLES, os.defpath).split(os.pathsep)
    return tuple(folder for folder in folders if os.path.isabs(folder))  # noqa: PTH117  hot


def activated_folder(environ: Mapping[str, str] = os.environ) -> str:
    """Return the folder with the programs of the activated virtual environment; an empty text
    without one.
    """
    return os.path.join(environ[ENVIRONMENT], "bin") if environ.get(ENVIRONMENT) else ""  # noqa: PTH118  as on PATH


def path_without_environment(environ: Mapping[str, str] = os.environ) -> str:
    """Return PATH without the activated virtual environment. Programs on it are found in every
    shell.
    """
    activated = environ.get(ENVIRONMENT)
    folders = environ.get(EXECUTABLES, "").split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not activated or Path(activated) not in Path(folder).parents)


def remove_variables(names: Iterable[str], environ: MutableMapping[str, str] = os.environ) -> None:
    """Remove variables from the environment."""
    for name in names:
        environ.pop(name, None)


def add_variables(values: Mapping[str, str], environ: MutableMapping[str, str] = os.environ) -> None:
    """Add variables to the environment."""
    environ.update(values)


def copy_without(names: frozenset[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a copy of the environment without these variables, for a child process."""
    return {name: value for name, value in environ.items() if name not in names}


def list_library_folders(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the folders of libraries, from the variables that `bare_environment` keeps."""
    return [folder for name in _LIBRARY_FOLDERS for folder in environ.get(name, "").split(":") if folder]


def bare_environment(folder: Path, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the whole environment of a child process that reads untrusted files.

    It has its own folder, and the folders of libraries for a Python that was built with them.
    """
    libraries = {name: environ[name] for name in _LIBRARY_FOLDERS if name in environ}
    return libraries | {TEMPORARY: str(folder), "LC_ALL": "C.UTF-8"}
