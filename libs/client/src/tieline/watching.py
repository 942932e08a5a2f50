"""What a client follows: subscriptions by log, notifications by kind. How they come back: client.py."""

from __future__ import annotations

from typing import Any

from tieline.errors import Disconnected, TielineError
from tieline.frames import Frame
from tieline.subscription import Event, Notifications, Subscription


class Watching:
    """One subscription for each log of a session or thread; any number of listeners for each kind of notification."""

    def __init__(self) -> None:
        self._subscriptions: dict[tuple[str, str], Subscription] = {}
        self._notifications: dict[str, list[Notifications]] = {}

    @property
    def subscriptions(self) -> list[Subscription]:
        """Each once."""
        return list(dict.fromkeys(self._subscriptions.values()))

    def add(self, subscription: Subscription) -> None:
        """Raises TielineError (conflict)."""
        keys = [(subscription.session_id, log) for log in subscription.logs]
        if any(key in self._subscriptions for key in keys):
            raise TielineError("conflict", "this client follows that log already")
        self._subscriptions.update(dict.fromkeys(keys, subscription))

    def forget(self, subscription: Subscription) -> None:
        """Nobody follows it any more."""
        for log in subscription.logs:
            self._subscriptions.pop((subscription.session_id, log), None)

    def listen(self, action: str) -> Notifications:
        """Notifications of one kind from now on."""
        notifications = Notifications(lambda gone: self._notifications[action].remove(gone))
        self._notifications.setdefault(action, []).append(notifications)
        return notifications

    def heard(self, frame: Frame, size: int) -> bool:
        """Something came. Whether it is an event, or somebody listens to its kind."""
        payload = frame.payload
        listeners = self._notifications.get(frame.action, ())
        for notifications in listeners:
            notifications._put(payload)
        match frame.action:
            case "session.event":
                self._event(payload.get("session_id", ""), payload.get("log", ""), payload, size)
            case "thread.event":
                self._event(payload.get("thread_id", ""), "thread", payload, size)
            case _:
                return bool(listeners)
        return True

    def _event(self, id: str, log: str, payload: dict[str, Any], size: int) -> None:
        subscription = self._subscriptions.get((id, log))
        if subscription is not None:
            event = Event(
                id, log, payload.get("cursor", ""), payload.get("time", 0), payload.get("event", {})
            )
            subscription._put(event, size)

    def finish(self, why: Disconnected | None) -> None:
        """Nothing comes any more: iterators end."""
        for subscription in self.subscriptions:
            subscription._finish(why)
        for several in self._notifications.values():
            for notifications in several:
                notifications._finish(why)
