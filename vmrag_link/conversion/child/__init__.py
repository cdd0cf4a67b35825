"""The process that converts what strangers made."""
