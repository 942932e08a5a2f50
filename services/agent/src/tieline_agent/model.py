"""The model: one answer streamed from any OpenAI-compatible endpoint, as typed deltas (assembly.py).

- Tries again only before the first delta, after Retry-After where the provider says it, else with growing waits; a
  provider that is silent is not asked again, since the caller has waited long enough.
- Silence: `idle` seconds without anything new (comments and empty pieces are nothing new) end the request, `total`
  seconds end it in any case.
- An answer is whole when the provider gave a finish reason. What breaks after that (only the count of tokens is
  still to come) does no harm; a stream that ends without one was cut.
- Leaving the generator (aclose, cancellation) closes the HTTP stream at once.
- The package takes a second to load: that happens in a thread while the service is at work already.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from tieline_protocol import backoff, jsontext, tracing
from tieline_protocol.errors import Code, TielineError

from tieline_agent import chunks
from tieline_agent.assembly import Delta, Finished, Usage
from tieline_agent.history import ChatMessage
from tieline_agent.metrics import MODEL_RETRIES
from tieline_agent.model_errors import Trouble, retry_after, trouble_of_status

if TYPE_CHECKING:
    import openai

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Where models are, and how patient we are. Seconds."""

    base_url: str
    api_key: str
    model: str
    idle: float = 90.0
    total: float = 600.0
    connect: float = 10.0
    tries: int = 4
    after_finish: float = 2.0  # for the count of tokens, once the answer is whole


class ModelError(TielineError):
    """The model gave no whole answer; the message is fit for the user."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class Model:
    """One pool of connections to one provider. Use as `async with Model(settings) as model`."""

    def __init__(self, settings: ModelSettings, *, chance: Callable[[], float] = random.random) -> None:
        self.settings = settings
        self._chance = chance

    async def __aenter__(self) -> Model:
        self._loading = asyncio.create_task(asyncio.to_thread(self._load), name="load the openai package")
        return self

    async def __aexit__(self, *_: object) -> None:
        client = await self._loading
        await client.close()

    def _load(self) -> openai.AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(
            base_url=self.settings.base_url,
            api_key=self.settings.api_key,
            max_retries=0,  # the package would not know about our deadline
            timeout=openai.Timeout(self.settings.total, connect=self.settings.connect),
        )

    async def stream(
        self,
        messages: list[ChatMessage],
        tools: list[dict[str, Any]],
        *,
        model: str | None = None,
        total: float | None = None,
    ) -> AsyncGenerator[Delta, None]:
        """The deltas of one answer; the last is `Finished`. Raises ModelError."""
        body = self._body(messages, tools, model)
        until = time.monotonic() + min(total or self.settings.total, self.settings.total)
        waits = backoff.delays(self._chance, first=0.5, most=8.0)
        for attempt in range(1, self.settings.tries + 1):
            begun = False
            try:
                async with contextlib.aclosing(self._attempt(body, until)) as deltas:
                    async for delta in deltas:
                        begun = True
                        yield delta
                return
            except _Failed as exc:
                trouble = exc.trouble
                wait = next(waits) if trouble.after is None else trouble.after
                last = attempt == self.settings.tries or time.monotonic() + wait >= until
                if begun or last or not trouble.retry:
                    raise ModelError(trouble.code, trouble.message) from exc
            MODEL_RETRIES.inc()
            log.info("asking the model again", attempt=attempt, wait=wait, reason=trouble.message)
            await asyncio.sleep(wait)

    def _body(
        self, messages: list[ChatMessage], tools: list[dict[str, Any]], model: str | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"model": model or self.settings.model, "messages": messages}
        if tools:
            body["tools"] = tools
        # Half an emoji in somebody's text would fail the request at its encoding.
        clean: dict[str, Any] = jsontext.loads(jsontext.dumps(body))
        return clean

    async def _attempt(self, body: dict[str, Any], until: float) -> AsyncGenerator[Delta, None]:
        """One request. Raises _Failed."""
        client = await asyncio.shield(self._loading)
        trace = tracing.current()
        silence = _Silence(self.settings.idle, until)
        async with contextlib.AsyncExitStack() as stack:
            with _translated():
                async with silence.limit():
                    # As `chat.completions.create` does it, save that chunks stay the JSON that they are.
                    stream = await client.post(
                        "/chat/completions",
                        body={**body, "stream": True, "stream_options": {"include_usage": True}},
                        cast_to=object,
                        options={"headers": {"traceparent": trace}} if trace is not None else {},
                        stream=True,
                        stream_cls=_stream_class(),
                    )
                # Closing does not wait for anybody, and must happen also while this task is being cancelled.
                stack.push_async_callback(stream.close)
            coming = await stack.enter_async_context(contextlib.aclosing(_chunks(stream)))
            reason: str | None = None
            usage: Usage | None = None
            while True:
                try:
                    with _translated():
                        async with silence.limit():
                            chunk = await anext(coming, None)
                        if chunk is None:
                            break
                        pieces = list(chunks.pieces(chunk))
                        reason = chunks.finish_reason(chunk) or reason
                        usage = chunks.usage(chunk) or usage
                except _Failed:
                    if reason is None:
                        raise
                    break
                for piece in pieces:
                    yield piece
                if pieces:
                    silence.heard()  # after whoever takes them, however long that took
                if reason is not None:
                    # The rest is read so that the connection can be used again.
                    silence.soon(self.settings.after_finish if usage is None else 0.1)
            if reason is None:
                raise _Failed(Trouble(Code.UNAVAILABLE, "the model's answer was cut off", retry=True))
            yield Finished(reason, usage)


class _Failed(Exception):
    """One attempt failed."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


class _Silence:
    """Until when something new must have come."""

    def __init__(self, idle: float, until: float) -> None:
        self._idle = idle
        self._until = until
        self._next = time.monotonic() + idle

    def heard(self) -> None:
        self._next = time.monotonic() + self._idle

    def soon(self, seconds: float) -> None:
        self._next = min(self._next, time.monotonic() + seconds)

    @contextlib.asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        left = min(self._next, self._until) - time.monotonic()
        try:
            async with asyncio.timeout(max(left, 0)):
                yield
        except TimeoutError as exc:
            total = self._until <= self._next
            message = "did not end its answer in time" if total else f"was silent for {self._idle:g} s"
            raise _Failed(Trouble(Code.TIMEOUT, f"the model {message}", retry=False)) from exc


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    import openai

    try:
        yield
    except openai.APIStatusError as exc:
        after = retry_after(exc.response.headers, time.time())
        raise _Failed(trouble_of_status(exc.status_code, exc.code, exc.message, after)) from exc
    except openai.APITimeoutError as exc:
        raise _Failed(
            Trouble(Code.TIMEOUT, "the model's provider did not answer in time", retry=True)
        ) from exc
    except openai.APIConnectionError as exc:
        reason = f"the connection to the model's provider failed: {exc.__cause__ or exc}"
        raise _Failed(Trouble(Code.UNAVAILABLE, reason, retry=True)) from exc
    except openai.APIError as exc:  # an error that the provider wrote into the stream
        raise _Failed(trouble_of_status(500, exc.code, exc.message, None)) from exc
    except (openai.OpenAIError, ValueError, TypeError, AttributeError, LookupError) as exc:
        # The package trusts the provider's JSON; what it trips over says nothing to a user.
        reason = "the model's provider sent something that is not an answer"
        raise _Failed(Trouble(Code.UNAVAILABLE, reason, retry=True)) from exc


def _stream_class() -> type[openai.AsyncStream[object]]:
    import openai

    return openai.AsyncStream[object]


async def _chunks(stream: openai.AsyncStream[object]) -> AsyncGenerator[object, None]:
    async for chunk in stream:
        yield chunk
