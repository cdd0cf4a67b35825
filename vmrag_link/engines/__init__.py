"""Knowledge bases: versioned tables, branches and differences, in doltlite or in Dolt.

Begin with `base`, the contract, and `tables`, the columns. `opening` opens, creates and clones a
knowledge base. `sql_engine` implements the part of the contract that both engines share, on a
`base_session` (write lock, branches, anchors), with `reading` (rows at one place), `comparison`
(differences) and `records` (rows as records). `doltlite` and `dolt` implement the rest.

Words of these modules:

* *place*: a revision, or the working set of a branch (its head with the uncommitted rows)
* *anchor*: make the branch `vmrag_keep` reach a revision, so that garbage collection keeps it
* *logical table*: a table whose rows are shown as documents (`logical`), such as issue logs
* *foreign*: with tables that are not vmrag's
* *vetted*: checked completely, because someone untrusted wrote it (`inspection`, `inspector`)
"""
