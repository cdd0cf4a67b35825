"""Files of any format as Markdown text, with a title and metadata."""
