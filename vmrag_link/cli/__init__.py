"""The command line: one module a command.

Renders reports and maps errors to exit codes; decides nothing about the domain.
"""
