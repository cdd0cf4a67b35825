"""Convert files of any format to Markdown text, with a title and metadata."""
