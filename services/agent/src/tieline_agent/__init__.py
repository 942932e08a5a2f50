"""Chat threads and the expert agent: a model, and the user's remotes as its tools."""
