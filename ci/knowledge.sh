#!/usr/bin/env bash
# For any other service, with git and Python 3.11 or later: bash ci/knowledge.sh [BRANCH], with the branch that a pull request goes into.
# Each command has a line of its own: in `a && b` a shell with `set -e` goes on when `a` fails.
set -euo pipefail
target=${1:-}
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
PATH="$tools/bin:$PATH"
pip install -q 'vmrag-link[index,code]==0.2.0'
vmrag sync
vmrag fingerprint --verify
set --
if [ -n "$target" ]; then
  git fetch -q origin "+refs/heads/$target:refs/remotes/origin/$target"
  set -- --pull-request "origin/$target" HEAD
fi
vmrag verify "$@" --deepen --remote origin --junit vmrag-verify.xml
vmrag check --junit vmrag-check.xml
