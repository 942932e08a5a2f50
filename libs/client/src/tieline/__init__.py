"""The Python client of Tieline.

async with Client("ws://127.0.0.1:8080/ws", token) as client:
    session = (await client.request("session.open"))["session_id"]
    async with await client.subscribe(session) as events:
        await client.request("agent.prompt", {"session_id": session, "text": "hello"})
        async for event in events:
            print(event.log, event.type, event.body)
"""

from tieline.client import Client
from tieline.errors import CODES, Disconnected, TielineError, TooSlow
from tieline.remote import Call, Remote
from tieline.serving import Served
from tieline.subscription import Event, Joined, Notifications, Subscription

__all__ = [
    "CODES",
    "Call",
    "Client",
    "Disconnected",
    "Event",
    "Joined",
    "Notifications",
    "Remote",
    "Served",
    "Subscription",
    "TielineError",
    "TooSlow",
]
