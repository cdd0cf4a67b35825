"""Settings as text: the template of `vmrag init`, and docs/configuration.md."""

from __future__ import annotations

from vmrag_link import env, toolset
from vmrag_link.settings.entries import MAX_BYTES
from vmrag_link.settings.flaws import EXAMPLE_OF_SOURCES_IN_JSON
from vmrag_link.settings.keys import CORE, DOCUMENTATION, KEYS, SettingKey

_PAGE = """\
# Configuration

<!-- Written by: python -m vmrag_link.config > docs/configuration.md -->

Here you look up all settings, where you write them, and which of them need your trust. vmrag works without any. Write a setting for
everyone into `.vmrag.yaml` at the top of the repository and commit it, or a setting for yourself into git's configuration:

```yaml
retrieval:
  mode: vector
  k: 10
index.keep_mb: 800   # the same as keep_mb in a section index
remote: "git:"       # a value that ends in a colon needs quotes
```

```sh
git config vmrag.retrieval.vector-weight 0.5            # on this machine; `-` replaces `_`
VMRAG_RETRIEVAL_VECTOR_WEIGHT=0.5 vmrag query "keys"    # for one command
```

An environment variable overrides git's configuration, which overrides `.vmrag.yaml`.

## Settings

A setting with `*` needs [trust](#trust-settings-of-a-clone) if it is in `.vmrag.yaml`. The first value is the default. If there is
none, the value is a text.

| setting | values | description |
|---|---|---|
{keys}

### Forms of values

* An unknown or repeated setting or a wrong value is an error that names the line.
* `.vmrag.yaml` has at most {limit} KiB, without anchors, aliases, merge keys and tags. Numbers have no quotes, and weights at most three
  decimals. Booleans are `true` or `false`.
* Elsewhere, `yes`, `on`, `1`, `no`, `off` and `0` also work, and `sources` is JSON: `VMRAG_SOURCES='{sources}'`.
* These variables of settings `mcp.*` have a shorter name: {exceptions}.
* {not_in_git} has no name in git's configuration. There, `vmrag.remote` names the git remote for `git:`.

### Other environment variables

* `{switch}=0` disables the hooks, and `{debug}=1` shows where a known error was raised. `{strict}=1` is `--strict` for each search: it
  fails if it cannot use the pinned revision.
* `{imported}` names a folder with another program's Chroma store. An agent that creates a knowledge base imports it, unless the
  call has `import_existing=false`.
* `{repository}` and `{token}` are for the [MCP server](mcp.md), and `{password}` is for a [Dolt server](sharing.md#dolt).
* [In CI](action.md#trusted-settings), `{settings_from}=HASH` trusts the `.vmrag.yaml` of a commit, such as the base of a pull
  request. `{no_services}=1` disables embedding services.

## Embedding services

By default, vmrag sends nothing to a service. If you choose `openai`, `cohere`, `huggingface` or `ollama`, it sends the texts of the
collection (once) and its queries to `embedding.SERVICE_url`:

```sh
export {openai}=KEY      # or {cohere}, {huggingface}; Ollama needs no key
git config vmrag.embedding.model openai     # or ollama, after: ollama pull bge-m3
```

* A collection keeps its service, model and dimensions. All users need that model, but each can set another address.
* Without the key or an answer, you can search the collection only by words (`vmrag query --mode keyword`).
* vmrag sends [your key](security.md#promises) only to the service's own address, or to one from your environment or git's configuration.
* Another person's collection can name a service. You trust it with `vmrag trust --service NAME`, or in all repositories with
  `git config --global --add vmrag.trustedService NAME`.

## Trust settings of a clone

`.vmrag.yaml` comes with the clone, and a pull request can change it. So settings with `*` apply only after you trust them on your
machine, or set them in the environment or in git config. `vmrag trust` shows each of them, for example
`line 2: hooks.on_dirty: commit   (now: warn)`, and asks you.

* `vmrag trust --yes` does not ask, `--list` shows what you trust, and `--revoke` forgets it. The answers are in
  `$XDG_DATA_HOME/vmrag/trust` (default: `~/.local/share`), for this repository and these values.
* If the values change, the former ones still apply, with a warning, until you run `vmrag trust` again. On a branch with an
  older file, only its stricter values apply.
* Stricter values need no trust, for example `mcp.read_only: true`, `mcp.exclude_tools`, `hooks.on_dirty: block` or `auto_fetch:
  false`. Restrictions of all places apply together.

Next: [commands](commands.md), [security](security.md), [search](search.md).
"""


def format_template() -> str:
    """Return the file that `vmrag init` writes.

    Each line is a comment that shows a default, and can be uncommented on its own.
    """
    lines = [
        "# Settings of this project's knowledge base, for everybody who clones it.",
        "# Everything may stay as it is; remove a # and change the value. All settings:",
        f"# {DOCUMENTATION}",
    ]
    for name in ("remote", "embedding.model", "chunking.size", "chunking.overlap", "retrieval.mode", "retrieval.k"):
        key = KEYS[name]
        lines += ["", f"# {key.doc.replace('`', '')}", f"# {name}: {key.default_text}"]
    return "\n".join(lines) + "\n"


def format_documentation() -> str:
    """Return docs/configuration.md, with the settings of the installed toolsets."""
    keys = [key for schema in (CORE, *toolset.installed().schemas()) for key in schema.keys.values()]
    rows = [f"| `{key.name}`{' *' * key.needs_trust} | {_describe_values(key)} | {key.doc} |" for key in keys]
    own_variables = [f"`{key.variable}`" for key in keys if key.variable != env.setting_variable(key.name)]
    [not_in_git] = [f"`{key.name}`" for key in keys if not key.in_git]
    return _PAGE.format(
        keys="\n".join(rows),
        exceptions=", ".join(own_variables),
        not_in_git=not_in_git,
        limit=MAX_BYTES // 1024,
        password=env.DOLT_PASSWORD,
        openai=env.OPENAI_KEY,
        cohere=env.COHERE_KEY,
        huggingface=env.HUGGINGFACE_KEY,
        sources=EXAMPLE_OF_SOURCES_IN_JSON,
        switch=env.SWITCH,
        settings_from=env.SETTINGS_FROM,
        no_services=env.NO_SERVICES,
        debug=env.DEBUG,
        strict=env.STRICT,
        imported=env.IMPORTED,
        repository=env.REPOSITORY,
        token=env.TOKEN,
    )


def _describe_values(key: SettingKey) -> str:
    """Return the default of a setting, then its other values."""
    if key.kind is tuple:
        return "a list"
    default = "" if key.default_text == '""' else f"`{key.default_text}`"
    if key.kind in (int, float):
        return f"{default}; {key.lowest} to {key.highest}"
    choices = key.choices or (("true", "false") if key.kind is bool else ())
    return ", ".join(filter(None, (default, *(f"`{choice}`" for choice in choices if f"`{choice}`" != default))))
