"""The remotes service: who exposes which functions, and the calls of them."""
