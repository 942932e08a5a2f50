"""What the processes of Tieline agree on."""
