"""Pages of the documentation that are made from the command and the models."""
