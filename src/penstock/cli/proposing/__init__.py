"""What `init` does: from what a source offers to the text of a pipeline file."""
