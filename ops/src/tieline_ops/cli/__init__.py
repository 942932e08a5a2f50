"""What the `tieline` command does: looking at a system over NATS, using it through a gateway.

`app` puts the commands together; modules named after a group hold its commands, and import what does the work when
it is needed, so that `--help` and completion are quick. Rendering is pure: `safe`, `shapes`, `lines`, `describe`.
"""
