"""Which servers are read: the one of the URL, its replica, and whether they are still who the marks were made with."""
