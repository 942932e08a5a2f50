"""The Python client of Tieline."""
