"""One suite per seam; an implementation joins by subclassing it in a test."""
