"""A package, because actions-toolkit puts another `tests` into site-packages."""
