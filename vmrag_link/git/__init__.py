"""All calls of git. No other package starts it.

`run` starts git, and `readonly` starts it without programs that the repository names. The other
modules each answer one kind of question:

* the repository: `discovery` (the work tree around a folder), `repository` (any other one), `jj`,
  `work_trees`, `submodules`, `sidecar_repo` (vmrag's own ones), `folder_modes`
* configuration: `configuration`, `own_keys` (vmrag's), `identity`, `credentials`, `merge_driver`,
  `hook_config`, `hook_choice`, `hooks`, `installed_gits`
* commits and refs: `plumbing` (what most commands need), `refs`, `git_operation`, `objects`
* the pin: `history`, `pin_conflict`, `pin_merge`, `merge_tree`
* files: `listing` and `note_index` (tracked, ignored, attributes), `versions` and `raw_changes`
  (contents and differences), `index_copy`, `renames`, `staging`, `grep`
* the history of files: `file_log`, `line_history`, `path_changes`
* other machines: `remotes`, `remote_errors`, `transfer`
* the user's programs: `programs`, `console` (GitPython)
"""
