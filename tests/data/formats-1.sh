#!/bin/bash
# make.sh PYTHON FOLDER: what `formats-1.tar.xz` holds, made by the program installed for that
# Python, which has to be one of schema version 1 and index format 1 (commit a5a259e of vmrag-link).
set -eu
P=$1 V="$(dirname "$1")/vmrag"; mkdir -p "$2/home" "$2/world"; cd "$2/world"
export HOME=$2/home XDG_CONFIG_HOME=$2/home XDG_DATA_HOME=$2/home GIT_CONFIG_GLOBAL=$2/home/gitconfig GIT_CONFIG_NOSYSTEM=1
export TZ=UTC GIT_AUTHOR_DATE=2026-01-02T03:04:05+00:00 GIT_COMMITTER_DATE=2026-01-02T03:04:05+00:00
printf '[user]\n\tname = Ada Lovelace\n\temail = ada@example.com\n[init]\n\tdefaultBranch = main\n[gc]\n\tauto = 0\n' > "$GIT_CONFIG_GLOBAL"
put() { $V add - --collection "$1" --id "$2" > /dev/null; }
begin() { git init -q --template= "$1"; git -C "$1" remote add origin ../code.git; cd "$1"; }
join() { cd "$2/.."; begin "$1"; git fetch -q; git checkout -q main; git branch -q winter origin/winter; $V clone origin; $V install; }
record() { $V commit -m "$1"; git add -A; git commit -qm "$1"; }

git init -q --bare --template= code.git

begin ada
printf 'embedding:\n  model: hash\n' > .vmrag.yaml
mkdir docs
printf '# Install\n\nRun the installer, then restart the machine.\n\nOn Windows it asks for a password.\n' > docs/install.md
printf '# Backup\n\nEvery night the archive is copied to another building.\n' > docs/backup.md
printf '# Sleep\n\nRest at least seven hours, away from any screen.\n' > docs/sleep.md
$V init
$V import docs --collection handbook
printf 'The answer to a question that is asked often.\n' | put faq often.md
record 'The handbook'; git push -q -u origin main
git switch -qc winter
printf '# Sleep\n\nRest at least nine hours in winter.\n' | put handbook sleep.md
printf '# Install\n\nRun the installer indoors.\n' | put handbook install.md
printf 'Shovel the snow before eight.\n' | put handbook snow.md
record 'Winter'; git push -q origin winter
git switch -q main
printf '# Sleep\n\nRest at least six hours, if nothing else is possible.\n' | put handbook sleep.md
printf '# Install\n\nRun the installer twice.\n' | put handbook install.md
record 'Less sleep'; git push -q origin main
$V links rebuild
git merge -q winter || true
$V resolve handbook/install.md --ours || true

join bob "$PWD"
$V query 'how long to rest' > /dev/null
printf 'Water the plants on Mondays.\n' | put handbook plants.md
$V rm backup.md --collection handbook
$V query plants > /dev/null

join carol "$PWD"
$V push "file://$2/world/shelf.doltlite"
$V merge winter || true
$V resolve handbook/install.md --theirs || true

join dan "$PWD"
printf 'Sharpen the pencils.\n' | put faq pencils.md
$P -c "
import os
from vmrag_link.engines.doltlite.engine import DoltliteEngine
from vmrag_link.cli.main import run
commit = DoltliteEngine.commit
def killed(*args, **options):
    commit(*args, **options)
    os._exit(9)
DoltliteEngine.commit = killed
run(['commit', '-m', 'Pencils'])" || test $? = 9
cd ..

# What is derived and twice there, what differs from one making to the next, and what names this machine.
rm -rf carol/.git/vmrag/snapshots dan/.git/vmrag/snapshots
(cd ada/.git/vmrag/snapshots; for each in *; do case $each in "$(sed 's/.*"snapshot":"//; s/".*//' ../workspace.json)"*) ;; *) rm -rf "$each";; esac; done)
sed -i "s#\"git_dir\": \"[^\"]*\"#\"git_dir\": \"@WORLD@/dan/.git\"#" dan/.git/vmrag/journal/*.json
rm -f */.git/vmrag/interpreter */.git/hooks/*
for each in ada bob carol dan; do git -C $each config --unset merge.vmrag.driver; done
rm -rf */.git/logs */.git/COMMIT_EDITMSG
