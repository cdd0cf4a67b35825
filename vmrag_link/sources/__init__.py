"""Sources: files of the code's repository whose documents are derived from the tree."""
