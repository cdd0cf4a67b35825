"""`python -m bench.documentation FOLDER [--golden NAME]`: questions about pages of several formats.

Clone the repositories of `SETS` into FOLDER first, each into a folder with its name. The report
counts the questions whose file is first, whose file is among three, and whose section is shown by
the best passage of that file. `--golden` prints the questions of one repository as golden queries
for `vmrag check`.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import knowledge
from vmrag_link.progress import QUIET
from vmrag_link.retrieval.query import Query
from vmrag_link.workspace import Workspace
from vmrag_link.workspace.answers.passages import find_passages


class DocumentationSet(NamedTuple):
    """`questions`: lines of text, file and, for pages with sections, section, with ` | ` between
    them.
    """

    url: str
    paths: tuple[str, ...]
    questions: str


SETS = {
    "flask": DocumentationSet(
        "https://github.com/pallets/flask",
        ("docs/**/*.rst", "CHANGES.rst", "README.md"),
        """
how do I limit the size of uploaded files | docs/patterns/fileuploads.rst | Improving Uploads
what changed in 3.1.0 | CHANGES.rst | Version 3.1.0
in which release was the blueprint nesting added | CHANGES.rst | Version 2.0.0
load configuration from a TOML file | docs/config.rst | Configuring from Data Files
set options through environment variables with a prefix | docs/config.rst | Configuring from Environment Variables
return errors of an API as JSON instead of HTML | docs/errorhandling.rst | Returning API Errors as JSON
register a 404 page only for one blueprint | docs/errorhandling.rst | Blueprint Error Handlers
put one blueprint inside another one | docs/blueprints.rst | Nesting Blueprints
change the session before a request in a test | docs/testing.rst | Accessing and Modifying the Session
test a click command of the application | docs/testing.rst | Running Commands with the CLI Runner
stop the reloader from watching some files | docs/cli.rst | Watch and Ignore Files with the Reloader
do not load variables from .env and .flaskenv | docs/cli.rst | Disable dotenv
protect my site against clickjacking in an iframe | docs/web-security.rst | X-Frame-Options
send an email to administrators when an exception occurs | docs/logging.rst | Email Errors to Admins
add the client's address to each line of the log | docs/logging.rst | Injecting Request Information
make a variable available in all templates | docs/templating.rst | Context Processors
write a decorator that sends users to the login page | docs/patterns/viewdecorators.rst | Login Required Decorator
how do I trust X-Forwarded headers of nginx | docs/deploying/proxy_fix.rst | Tell Flask it is Behind a Proxy
trailing slash in a route redirects | docs/quickstart.rst | Unique URLs / Redirection Behavior
run a task in the background from an async view | docs/async-await.rst | Background tasks
""",
    ),
    "openssh-portable": DocumentationSet(
        "https://github.com/openssh/openssh-portable",
        ("*.[1-9]",),
        """
escape sequence to kill a hanging session | ssh.1 | ESCAPE CHARACTERS
tunnel IP packets over a connection with tun devices | ssh.1 | SSH-BASED VIRTUAL PRIVATE NETWORKS
what exit code does the client return if the remote command fails | ssh.1 | EXIT STATUS
compare the fingerprint of a server with DNS records | ssh.1 | VERIFYING HOST KEYS
run graphical programs of the remote machine | ssh.1 | X11 FORWARDING
restrict a key to one command and source address | sshd.8 | AUTHORIZED_KEYS FILE FORMAT
format of lines with hashed host names and @revoked | sshd.8 | SSH_KNOWN_HOSTS FILE FORMAT
script that runs before the user's shell starts | sshd.8 | SSHRC
which file forbids logins of everybody but root | sshd.8 | FILES
sign a public key to make a host certificate | ssh-keygen.1 | CERTIFICATES
generate primes for Diffie-Hellman group exchange | ssh-keygen.1 | MODULI GENERATION
make a file that lists compromised keys | ssh-keygen.1 | KEY REVOCATION LISTS
which principals may sign files, valid-after | ssh-keygen.1 | ALLOWED SIGNERS
create a key on a hardware token that needs no touch | ssh-keygen.1 | FIDO AUTHENTICATOR
percent expansions such as %h and %r in the client's settings | ssh_config.5 | TOKENS
wildcards and negation in a list of host names | ssh_config.5 | PATTERNS
write a duration such as 1h30m in the server's settings | sshd_config.5 | TIME FORMATS
resume an interrupted upload with reput | sftp.1 | INTERACTIVE COMMANDS
fields of the file with prime numbers: type, tests, trials | moduli.5 | DESCRIPTION
why is copying with the legacy protocol unsafe for file names | scp.1 | CAVEATS
""",
    ),
    "magit": DocumentationSet(
        "https://github.com/magit/magit",
        ("docs/*.org",),
        """
install the package from MELPA | docs/magit.org | Installing from Melpa
undo the last commit message and reword it | docs/magit.org | Editing the last commit
hide and show parts of the status buffer | docs/magit.org | Section Visibility
save work in progress refs automatically | docs/magit.org | Wip Modes
find the commit that introduced a bug | docs/magit.org | Bisecting
see who changed each line of a file | docs/magit.org | Blaming
the status buffer is very slow on Windows | docs/magit.org | Microsoft Windows Performance
work on two branches in separate directories | docs/magit.org | Worktree
run a git command by hand from Emacs | docs/magit.org | Running Git Manually
stage some lines while visiting the file | docs/magit.org | Staging from File-Visiting Buffers
apply mails from a maildir | docs/magit.org | Maildir Patches
change the colors of the faces | docs/magit.org | Theming Faces
""",
    ),
    "vim-fugitive": DocumentationSet(
        "https://github.com/tpope/vim-fugitive",
        ("doc/*.txt", "README.markdown"),
        """
show the branch in the status line | doc/fugitive.txt | STATUSLINE
which keys stage a file in the summary window | doc/fugitive.txt | Staging/unstaging maps
names of objects such as :0:file | doc/fugitive.txt | SPECIFYING OBJECTS
create a fixup commit with a key | doc/fugitive.txt | Commit maps
commands that are no longer supported | doc/fugitive.txt | DEPRECATIONS
delete the file and its buffer | doc/fugitive.txt | GDelete
""",
    ),
    "asciidoctor": DocumentationSet(
        "https://github.com/asciidoctor/asciidoctor",
        ("docs/**/*.adoc",),
        """
find all blocks of a kind in a parsed document | docs/modules/api/pages/find-blocks.adoc | find_by
debug a template with an interactive debugger | docs/modules/convert/pages/templates.adoc | Use an interactive debugger
read a document from standard input and write to standard output | docs/modules/cli/pages/io-piping.adoc | Pipe Content Through the CLI
forbid includes outside of the folder of the document | docs/modules/ROOT/pages/safe-modes.adoc | SAFE
use my own CSS file and link it | docs/modules/html-backend/pages/custom-stylesheet.adoc | Styles directory and linkcss
disable the web fonts of the default theme | docs/modules/html-backend/pages/default-stylesheet.adoc | Disable or modify the web fonts
make a PDF from DocBook | docs/modules/docbook-backend/pages/index.adoc | Convert DocBook to PDF
write an inline macro that links to a man page | docs/modules/extensions/pages/inline-macro-processor.adoc | ManpageInlineMacro
translate the labels of admonitions into another language | docs/modules/ROOT/pages/localization-support.adoc | Translating built-in labels
bug fixes of 2.0.17 | docs/modules/ROOT/pages/whats-new.adoc | Asciidoctor 2.0.17
get the line number of each block | docs/modules/api/pages/sourcemap.adoc | Use the sourcemap
convert text without the surrounding paragraph | docs/modules/api/pages/convert-strings.adoc | Convert inline markup only
""",
    ),
    "starlight": DocumentationSet(
        "https://github.com/withastro/starlight",
        tuple(
            f"docs/src/content/docs/{folder}*.*"
            for folder in ("", "guides/", "reference/", "resources/", "components/")
        ),
        """
which pages accept frontmatter | docs/src/content/docs/reference/frontmatter.md
list of community themes | docs/src/content/docs/resources/themes.mdx
showcase of sites | docs/src/content/docs/resources/showcase.mdx
plugins and integrations made by the community | docs/src/content/docs/resources/plugins.mdx
how is the site eco-friendly | docs/src/content/docs/environmental-impact.mdx
internationalization | docs/src/content/docs/guides/i18n.mdx
styling with CSS | docs/src/content/docs/guides/css-and-tailwind.mdx
show a grid of cards | docs/src/content/docs/components/card-grids.mdx
button that links to a page | docs/src/content/docs/components/link-buttons.mdx
numbered steps of a tutorial | docs/src/content/docs/components/steps.mdx
draw a file tree | docs/src/content/docs/components/file-tree.mdx
badge next to a heading | docs/src/content/docs/components/badges.mdx
configure the search provider | docs/src/content/docs/guides/site-search.mdx
write a tip or a caution box | docs/src/content/docs/components/asides.mdx
override a built-in component | docs/src/content/docs/guides/overriding-components.mdx
customize the logo | docs/src/content/docs/guides/customization.mdx
custom 404 page | docs/src/content/docs/guides/pages.mdx
write a plugin | docs/src/content/docs/reference/plugins.md
all options of the configuration | docs/src/content/docs/reference/configuration.mdx
list of icons | docs/src/content/docs/reference/icons.mdx
""",
    ),
    "PythonDataScienceHandbook": DocumentationSet(
        "https://github.com/jakevdp/PythonDataScienceHandbook",
        ("notebooks/*.ipynb",),
        """
measure how long a line of code takes | notebooks/01.07-Timing-and-Profiling.ipynb | Timing Code Snippets
rules by which arrays of different shapes are combined | notebooks/02.05-Computation-on-arrays-broadcasting.ipynb | Rules of Broadcasting
fill missing values with the previous one | notebooks/03.04-Missing-Values.ipynb | Filling null values
many-to-many joins of two tables | notebooks/03.07-Merge-and-Join.ipynb | Many-to-many joins
rolling mean over a window of days | notebooks/03.11-Working-with-Time-Series.ipynb | Rolling windows
choose the number of neighbours with a validation curve | notebooks/05.03-Hyperparameters-and-Model-Validation.ipynb | Validation curves
encode categories as columns of zeros and ones | notebooks/05.04-Feature-Engineering.ipynb | Categorical Features
see the previous outputs of the session | notebooks/01.04-Input-Output-History.ipynb | Underscore Shortcuts
""",
    ),
}


class Question(NamedTuple):
    text: str
    file: str
    section: str = ""


def list_questions(name: str) -> list[Question]:
    lines = SETS[name].questions.strip().splitlines()
    return [Question(*(part.strip() for part in line.split(" | "))) for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.documentation", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="folder with the clones")
    parser.add_argument("--golden", choices=SETS, help="print the golden queries of a repository")
    parser.add_argument("--misses", action="store_true", help="print the questions without the right section")
    given = parser.parse_args()
    if given.golden:
        print_golden(given.golden)
        return
    print(
        "| repository | questions | file first | among three | section among three | section first |\n|---|---|---|---|---|---|"
    )
    totals = [0] * 5
    for name in SETS:
        if (given.folder / name).exists():
            counts = measure(given.folder / name, name, misses=given.misses)
            totals = [sum(pair) for pair in zip(totals, counts, strict=True)]
            print(f"| {name} | {' | '.join(map(str, counts))} |", flush=True)
    print(f"| all | {' | '.join(map(str, totals))} |")


def print_golden(name: str) -> None:
    print(f"# {SETS[name].url}; sources: collection docs, paths {', '.join(SETS[name].paths)}\nqueries:")
    for question in list_questions(name):
        print(f"  - query: {question.text!r}\n    k: 3\n    expect: [docs/{question.file}]  # {question.section}")


def measure(repository: Path, name: str, *, misses: bool) -> list[int]:
    """Return numbers of questions: all, file first, among three, section among three, first."""
    questions, counts = list_questions(name), [0] * 5
    with opened_sources(repository, SETS[name].paths) as workspace:
        for question in questions:
            results = find_passages(workspace, Query(question.text, k=10)).results
            files = list(dict.fromkeys(hit.doc_id for hit in results))[:3]
            shown = [hit.header_path for hit in results if hit.doc_id == question.file and hit.doc_id in files]
            right = bool(shown) and question.section in shown[0].split(" > ")
            first = right and results[0].doc_id == question.file
            right_places = (True, files[:1] == [question.file], question.file in files, right, first)
            counts = [count + value for count, value in zip(counts, right_places, strict=True)]
            if misses and not right:
                print(f"  {question.text} ({question.file}: {question.section}) -> {files} {shown[:1]}")
    return counts


@contextlib.contextmanager
def opened_sources(repository: Path, paths: tuple[str, ...]) -> Iterator[Workspace]:
    """Return a clone of a repository, with these paths as its only source, as a workspace."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / repository.name
        env = knowledge.environment(Path(temporary) / "home")
        subprocess.run(
            ["git", "clone", "-q", "--depth=1", f"file://{repository.resolve()}", folder], check=True, env=env
        )
        listed = ", ".join(f'"{path}"' for path in paths)
        (folder / ".vmrag.yaml").write_text(f"sources:\n  - collection: docs\n    paths: [{listed}]\n")
        with contextlib.closing(Workspace.open(folder, QUIET)) as workspace:
            yield workspace


if __name__ == "__main__":
    main()
