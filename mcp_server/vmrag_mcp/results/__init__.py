"""What the tools answer, a module a topic: the records from which the JSON Schema of each result is derived (`result_schema`).

A field that is not always there is `T | UnsetType` with the default `UNSET`; its `Meta` says when it is there. Sequences are lists,
as in JSON.
"""
