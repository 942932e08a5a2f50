"""A coding agent without a model: real ACP over stdio, and every answer is known beforehand. See language.py."""
