"""A small OpenAI-compatible server without any AI behind it: for people without a key, and for tests."""
