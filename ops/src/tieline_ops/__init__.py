"""The tieline command."""
