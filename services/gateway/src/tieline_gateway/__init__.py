"""The gateway: frontend WebSockets into NATS."""
