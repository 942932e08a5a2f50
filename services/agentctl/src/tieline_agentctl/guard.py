"""Pure: the `X-Instance-ID` header, which finds out that a port now belongs to another instance."""

HEADER = "x-instance-id"


def stranger(own_id: str, header: str) -> dict[str, object] | None:
    """The body of the 404 for a caller that means another instance; None when it means this one or says nothing."""
    if not header or header == own_id:
        return None
    return {
        "error": "instance no longer exists at this port",
        "expected_id": own_id,
        "got_id": header,
        "recycled_port": True,
        "port_reuse_hint": "the port was released and given to another instance; ask the control server again",
    }
