"""The GitHub Action's steps."""
