"""Results of the tools, a module a topic. The JSON Schema of an answer is derived from them.

A field that is not always there is `T | UnsetType` with the default `UNSET`, and its `Meta` says
when it is there. Sequences are lists, as in JSON. `result_schema` derives the schema.
"""
