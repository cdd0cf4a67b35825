#!/bin/bash
# formats-3.sh PYTHON FOLDER: what `formats-3.tar.xz` holds, made by the program that PYTHON imports,
# which has to be one of index format 3 (commit f599530d of vmrag-link) with its MCP server.
set -eu
P=$1; mkdir -p "$2/home" "$2/world"; cd "$2/world"
export HOME=$2/home XDG_CONFIG_HOME=$2/home XDG_DATA_HOME=$2/home GIT_CONFIG_GLOBAL=$2/home/gitconfig GIT_CONFIG_NOSYSTEM=1
export VMRAG=0 TZ=UTC GIT_AUTHOR_DATE=2026-01-02T03:04:05+00:00 GIT_COMMITTER_DATE=2026-01-02T03:04:05+00:00
printf '[user]\n\tname = Ada Lovelace\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n' > "$GIT_CONFIG_GLOBAL"
V="$P -P -m vmrag_link.cli.main"
put() { $V add - --collection "$1" --id "$2" > /dev/null; }

git init -q --template= ada; cd ada
printf 'embedding:\n  model: hash\n' > .vmrag.yaml
$V init
printf '# Sleep\n\nRest at least seven hours, away from any screen.\n' | put handbook sleep.md
printf '# Backup\n\nEvery night the archive is copied to another building.\n' | put handbook backup.md
$V commit -m 'The handbook'; git add -A; git commit -qm 'The handbook'
git switch -qc winter
printf '# Sleep\n\nRest at least nine hours in winter.\n' | put handbook sleep.md
$V commit -m 'Winter'; git add -A; git commit -qm 'Winter'
git switch -q main; $V sync; git config vmrag.system.versioned false
printf 'Water the plants on Mondays.\n' | put handbook plants.md
$P -c "
from pathlib import Path
from vmrag_mcp.call_progress import CallProgress
from vmrag_mcp.options import Chosen, EnabledTools, selection
from vmrag_mcp.session import NOTHING, Behaviour, Session
session = Session(Path.cwd(), Behaviour())
session.tools = EnabledTools(selection(Chosen(toolsets='all')))
def call(name, **arguments):
    result, failed = session.run(session.tools.selection.tool(name), arguments, CallProgress(), NOTHING)
    assert not failed, result
    return result
given = dict(collection_name='handbook')
[sleep] = call('chroma_get_documents', **given, ids=['sleep.md'], include=['embeddings'])['documents']
call('chroma_update_documents', **given, ids=['backup.md'], embeddings=sleep['embedding'])
call('chroma_sequential_thinking', thought='owls sleep by day', thought_number=1, total_thoughts=1, session_id='plan')
call('chroma_find_similar_thoughts', query='owls', threshold=0)
"
$V query plants > /dev/null
cd ..
git -C ada config --unset merge.vmrag.driver
rm -f */.git/vmrag/interpreter */.git/hooks/*
rm -rf */.git/logs */.git/COMMIT_EDITMSG
