"""Language models that write answers, where one is configured."""
