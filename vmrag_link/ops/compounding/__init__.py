"""Documents of a project that are files of the work tree: mirrored, searched, asked, promoted."""
