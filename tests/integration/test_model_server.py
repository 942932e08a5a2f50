"""The scripted model as a process, as somebody without a key starts it."""

import json
from pathlib import Path

import httpx
import pytest

from tests.support.process import Process

ASK = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}


async def post(url: str, **body: object) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(f"{url}/chat/completions", json={**ASK, **body})


async def get(url: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(url)


@pytest.mark.timeout(20)
async def test_it_says_that_it_is_no_ai_and_streams_if_asked_to(tmp_path: Path):
    async with Process("tieline_ops.scripted_model", tmp_path, ["--port", "0", "--pace", "0"]) as server:
        url = server.facts["url"]
        whole = (await post(url)).json()
        streamed = (await post(url, stream=True)).text
        models = (await get(f"{url}/models")).json()
        refused = await post(url, tools=[])
        asked = (await get(f"{url}/scripted/requests")).json()

    assert "not an AI" in whole["choices"][0]["message"]["content"]
    assert streamed.endswith("data: [DONE]\n\n")
    assert models["data"][0]["id"] == server.facts["model"] == "tieline-scripted-no-ai"
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "[] is too short - 'tools'")
    assert (len(asked["requests"]), len(asked["refused"])) == (2, 1)
    assert server.code == 0


@pytest.mark.timeout(20)
async def test_it_follows_a_script_from_a_file(tmp_path: Path):
    script = tmp_path / "script.json"
    replies = [
        {"status": 429, "headers": {"Retry-After": "1"}},
        {"unchecked": True, "steps": [{"text": "Hello"}]},
    ]
    script.write_text(json.dumps({"replies": replies, "then": "refuse"}))
    async with Process("tieline_ops.scripted_model", tmp_path, ["--script", str(script)]) as server:
        url = server.facts["url"]
        first, second, third = [await post(url, messages=[]) for _ in range(3)]

    assert (first.status_code, first.headers["retry-after"]) == (429, "1")
    assert second.json()["choices"][0]["message"]["content"] == "Hello"
    assert third.status_code == 500
