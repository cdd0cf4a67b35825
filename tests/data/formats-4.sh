#!/bin/bash
# formats-4.sh PYTHON FOLDER: what `formats-4.tar.xz` holds, made by the program that PYTHON imports,
# which has to be one of index format 4 whose default model is wordllama's own file (commit dd43100e of vmrag-link).
set -eu
P=$1; mkdir -p "$2/home" "$2/world"; cd "$2/world"
export HOME=$2/home XDG_CONFIG_HOME=$2/home XDG_DATA_HOME=$2/home GIT_CONFIG_GLOBAL=$2/home/gitconfig GIT_CONFIG_NOSYSTEM=1
export VMRAG=0 TZ=UTC GIT_AUTHOR_DATE=2026-01-02T03:04:05+00:00 GIT_COMMITTER_DATE=2026-01-02T03:04:05+00:00
printf '[user]\n\tname = Ada Lovelace\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n' > "$GIT_CONFIG_GLOBAL"
V="$P -P -m vmrag_link.cli.main"
put() { $V add - --collection "$1" --id "$2" > /dev/null; }

git init -q --template= ada; cd ada
printf 'index:\n  chroma: "off"\n' > .vmrag.yaml
$V init
printf '# Sleep\n\nRest at least seven hours, away from any screen.\n' | put handbook sleep.md
printf '# Backup\n\nEvery night the archive is copied to another building.\n' | put handbook backup.md
$V commit -m 'The handbook'; git add -A; git commit -qm 'The handbook'; git tag first
printf 'Water the plants on Mondays.\n' | put handbook plants.md
$V commit -m 'Plants'; git add -A; git commit -qm 'Plants'
printf 'Feed the owls at dusk.\n' | put handbook owls.md
$V query plants > /dev/null
$V fingerprint > ../fingerprint
cd ..
git -C ada config --unset merge.vmrag.driver
rm -f */.git/vmrag/interpreter */.git/hooks/*
rm -rf */.git/logs */.git/COMMIT_EDITMSG
