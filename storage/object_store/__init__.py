"""Stores that several machines share through an object store: files under a URL, the log of commits, the lease of a flow."""
