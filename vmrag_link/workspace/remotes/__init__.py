"""Clone, fetch and list remotes of the knowledge base."""
