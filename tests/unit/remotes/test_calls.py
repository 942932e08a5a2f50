import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from tieline_protocol.errors import Code, Refused
from tieline_protocol.messages import outcome
from tieline_remotes.calls import BEAT, MAX_PER_REMOTE, Asked, Call, Calls, Cancel, Tell

OWNER = Asked("g1", "c1")


def call(id="1", reply="inbox.1", asked=OWNER, deadline=30.0, remotename="browser"):
    return Call(id, reply, "ada", remotename, asked, deadline, BEAT)


def started(*calls):
    table = Calls()
    for each in calls or (call(),):
        table.started(each)
    return table


def code(effect):
    with pytest.raises(Refused) as caught:
        outcome(effect.message)
    return caught.value.code


def test_only_the_connection_that_was_asked_may_answer():
    """B01."""
    table = started()

    assert table.answered("1", Asked("g9", "c1"), b"forged", 6) is None
    assert table.answered("1", Asked("g1", "c2"), b"forged", 6) is None
    assert table.progressed("1", Asked("g1", "c2"), b"forged") is None
    assert table.dropped == 3
    assert table.answered("1", OWNER, b"real", 4) == [Tell("inbox.1", b"real")]


def test_a_second_and_a_late_answer_are_dropped():
    """B04."""
    table = started()
    table.answered("1", OWNER, b"first", 5)

    assert table.answered("1", OWNER, b"second", 6) is None
    assert table.progressed("1", OWNER, b"late") is None
    assert len(table) == 0


def test_a_call_that_is_not_answered_ends_once_at_its_deadline_and_is_cancelled_at_the_owner():
    """B04."""
    table = started(call(deadline=30.0))

    assert not [effect for effect in table.tick(29.9) if effect.message != b'{"beat":true}']
    [told, cancel] = table.tick(30.0)

    assert code(told) == Code.TIMEOUT
    assert cancel == Cancel("1", OWNER, "timeout")
    assert table.tick(31.0) == []


def test_whoever_waits_hears_a_beat_every_second():
    table = started()

    assert table.tick(0.5) == []
    assert table.tick(1.0) == [Tell("inbox.1", b'{"beat":true}')]
    assert table.tick(1.5) == []
    assert table.tick(2.1) == [Tell("inbox.1", b'{"beat":true}')]


def test_a_socket_that_closes_ends_its_calls_and_no_others():
    """B05."""
    table = started(call("1"), call("2", "inbox.2"), call("3", "inbox.3", Asked("g1", "c2")))

    ended = table.disconnected("g1", "c1")

    assert [effect.reply for effect in ended] == ["inbox.1", "inbox.2"]
    assert {code(effect) for effect in ended} == {Code.DISCONNECTED}
    assert len(table) == 1


def test_a_gateway_that_dies_ends_the_calls_of_all_its_sockets():
    table = started(
        call("1"), call("2", "inbox.2", Asked("g1", "c2")), call("3", "inbox.3", Asked("g2", "c1"))
    )

    assert len(table.disconnected("g1")) == 2
    assert len(table) == 1


def test_only_the_caller_may_cancel():
    table = started()

    assert table.cancelled("1", "eve") is None
    assert table.cancelled("2", "ada") is None
    [told, cancel] = table.cancelled("1", "ada")

    assert code(told) == Code.CANCELLED
    assert cancel == Cancel("1", OWNER, "cancelled")


def test_a_call_that_could_not_be_sent_ends_with_the_reason():
    table = started()

    [told] = table.failed("1", Refused(Code.BUSY, "busy"))

    assert code(told) == Code.BUSY
    assert table.failed("1", Refused(Code.BUSY, "busy")) == []


def test_a_result_that_is_too_large_ends_in_too_large():
    """B24."""
    [told] = started().answered("1", OWNER, b"", 5_000_001)

    assert code(told) == Code.TOO_LARGE


def test_calls_of_one_remote_are_bounded_and_another_remote_is_not_delayed():
    table = started(*(call(str(number), f"inbox.{number}") for number in range(MAX_PER_REMOTE)))

    with pytest.raises(Refused) as caught:
        table.started(call("x"))
    assert caught.value.code == Code.BUSY
    table.started(call("y", remotename="other"))


def test_a_replica_that_stops_ends_what_is_under_way():
    [told, cancel] = started().stopping()

    assert code(told) == Code.UNAVAILABLE
    assert cancel.reason == "unavailable"


class CallsMachine(RuleBasedStateMachine):
    """Whatever happens in whatever order: one final for each call, nothing after it."""

    ids = Bundle("ids")

    @initialize()
    def begin(self):
        self.table = Calls()
        self.now = 0.0
        self.number = 0
        self.finals: dict[str, int] = {}
        self.open: set[str] = set()

    def heard(self, effects):
        for effect in effects or []:
            if isinstance(effect, Tell):
                assert self.finals[effect.reply] == 0
                if effect.message not in (b'{"beat":true}', b"progress"):
                    self.finals[effect.reply] = 1
                    self.open.discard(effect.reply)

    @rule(
        target=ids, gateway=st.sampled_from("gh"), connection=st.sampled_from("cd"), budget=st.floats(0.1, 40)
    )
    def start(self, gateway, connection, budget):
        self.number += 1
        id = str(self.number)
        try:
            self.table.started(
                Call(
                    id, id, "ada", connection, Asked(gateway, connection), self.now + budget, self.now + BEAT
                )
            )
        except Refused:
            return id
        self.finals[id] = 0
        self.open.add(id)
        return id

    @rule(
        id=ids,
        gateway=st.sampled_from("gh"),
        connection=st.sampled_from("cd"),
        size=st.sampled_from([1, 6_000_000]),
    )
    def answer(self, id, gateway, connection, size):
        self.heard(self.table.answered(id, Asked(gateway, connection), b"final", size))

    @rule(id=ids, gateway=st.sampled_from("gh"), connection=st.sampled_from("cd"))
    def progress(self, id, gateway, connection):
        self.heard(self.table.progressed(id, Asked(gateway, connection), b"progress"))

    @rule(id=ids, user=st.sampled_from(["ada", "eve"]))
    def cancel(self, id, user):
        self.heard(self.table.cancelled(id, user))

    @rule(id=ids)
    def fail(self, id):
        self.heard(self.table.failed(id, Refused(Code.BUSY, "busy")))

    @rule(gateway=st.sampled_from("gh"), connection=st.sampled_from(["c", "d", None]))
    def disconnect(self, gateway, connection):
        self.heard(self.table.disconnected(gateway, connection))

    @rule(seconds=st.floats(0.1, 15))
    def wait(self, seconds):
        self.now += seconds
        self.heard(self.table.tick(self.now))

    @invariant()
    def the_table_holds_what_has_not_ended(self):
        assert len(self.table) == len(self.open)

    def teardown(self):
        self.heard(self.table.stopping())
        assert all(self.finals.values())
        assert len(self.table) == 0


CallsMachine.TestCase.settings = settings(max_examples=260, stateful_step_count=40, deadline=None)


@pytest.mark.timeout(
    60
)  # a time-out in the middle of an example would look to Hypothesis like a flaky strategy
def test_calls_end_exactly_once():
    """B04."""
    run_state_machine_as_test(CallsMachine, settings=CallsMachine.TestCase.settings)
