"""A turn of the real example agent, as a backend sees it on the agent stream."""

from pathlib import Path

from tests.support.agent_rig import agent_rig


async def test_an_answer_arrives_to_the_byte_and_complete_comes_last(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            session = await backend.opened()
            await backend.prompt(r"say Hello\n\n    indented\t👋\u0000 end  \nthink hm", 7)
            complete = await backend.until("complete")

            assert backend.text == "Hello\n\n    indented\t👋\0 end  \nthink hm"
            assert len(backend.of("message_chunk")) > 3
            assert complete["session_id"] == session
            assert complete["prompt_generation"] == 7
            assert complete["data"] == {"stop_reason": "end_turn"}
            assert backend.types()[-1] == "complete"


async def test_the_demonstration_asks_before_it_writes_and_runs(tmp_path: Path):
    async with agent_rig(tmp_path) as rig:
        await rig.agent.start()
        async with rig.backend() as backend:
            await backend.opened()
            await backend.prompt("hello there")
            for at in (1, 2):
                asked = await backend.until("permission_request", at)
                assert not (tmp_path / "hello.txt").exists() or at == 2
                await backend.do(
                    "agent.permissions.resolve",
                    {
                        "request_id": asked["request_id"],
                        "pending_id": asked["pending_id"],
                        "option_id": "allow",
                    },
                )
            await backend.until("complete")

            assert (tmp_path / "hello.txt").read_text() == "Hello from the example agent.\n"
            assert backend.text.endswith("Done.")
            assert backend.of("plan")
            assert backend.of("reasoning")
            assert backend.of("context_window")[0]["context_window_size"] == 200_000
