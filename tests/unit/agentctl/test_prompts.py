import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tieline_agentctl.prompts import MOST_WAITING, Ending, Prompt, Prompts, TooManyWaiting


def prompt(generation: int = 1, steer: bool = False) -> Prompt:
    return Prompt(generation, [], steer)


def test_the_first_prompt_starts_at_once():
    prompts = Prompts()
    first = prompt(4)

    assert not prompts.busy
    assert prompts.submitted(first, can_queue=False)
    assert prompts.current is first
    assert prompts.generation == 4


def test_a_second_prompt_waits_for_the_end_of_the_first():
    prompts = Prompts()
    first, second = prompt(1), prompt(2)
    prompts.submitted(first, can_queue=True)

    assert prompts.busy
    assert not prompts.submitted(second, can_queue=True)
    assert prompts.ended(first) == Ending(told=True, next=second)
    assert prompts.current is second
    assert prompts.ended(second) == Ending(told=True, next=None)
    assert not prompts.busy
    assert prompts.generation == 2


def test_a_steering_prompt_takes_over_and_only_it_tells_its_end():
    prompts = Prompts()
    first, second = prompt(1), prompt(2, steer=True)
    prompts.submitted(first, can_queue=True)

    assert prompts.submitted(second, can_queue=True)
    assert prompts.ended(first) == Ending(told=False, next=None)
    assert prompts.ended(second) == Ending(told=True, next=None)


@pytest.mark.parametrize(("generation", "can_queue"), [(0, True), (2, False)])
def test_steering_waits_without_a_generation_or_without_the_agents_consent(generation: int, can_queue: bool):
    prompts = Prompts()
    prompts.submitted(prompt(1), can_queue)

    assert not prompts.submitted(prompt(generation, steer=True), can_queue)


def test_a_steering_prompt_does_not_overtake_one_that_waits():
    prompts = Prompts()
    prompts.submitted(prompt(1), can_queue=True)
    prompts.submitted(prompt(2), can_queue=True)

    assert not prompts.submitted(prompt(3, steer=True), can_queue=True)


def test_an_idle_foreground_hands_over_to_a_plain_prompt_once():
    prompts = Prompts()
    prompts.submitted(prompt(1), can_queue=False)
    prompts.foreground_idle()

    assert prompts.submitted(prompt(2), can_queue=False)
    assert not prompts.submitted(prompt(3), can_queue=False)


def test_an_idle_foreground_without_a_prompt_means_nothing():
    prompts = Prompts()
    prompts.foreground_idle()
    prompts.submitted(prompt(1), can_queue=False)

    assert not prompts.submitted(prompt(2), can_queue=False)


def test_an_abandoned_prompt_tells_nothing_and_lets_the_next_one_start():
    prompts = Prompts()
    first, second = prompt(1), prompt(2)
    prompts.submitted(first, can_queue=False)
    prompts.submitted(second, can_queue=False)

    assert prompts.abandoned() is second
    assert prompts.ended(first) == Ending(told=False, next=None)
    assert prompts.abandoned() is None


def test_when_the_agent_is_gone_every_prompt_that_can_tell_its_end_does():
    prompts = Prompts()
    first, second = prompt(1), prompt(2)
    prompts.submitted(first, can_queue=False)
    prompts.submitted(second, can_queue=False)

    assert prompts.all_ended() == [first, second]
    assert prompts.all_ended() == []
    assert not prompts.busy


def test_waiting_prompts_are_bounded():
    prompts = Prompts()
    for generation in range(MOST_WAITING + 1):
        prompts.submitted(prompt(generation), can_queue=False)

    with pytest.raises(TooManyWaiting):
        prompts.submitted(prompt(1), can_queue=False)


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens: each prompt is started once, and each that was not handed over or abandoned ends told."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts = Prompts()
        self.started: list[Prompt] = []
        self.at_agent: list[Prompt] = []
        self.silent: set[Prompt] = set()
        self.told: list[Prompt] = []
        self.count = 0

    def start(self, prompt: Prompt) -> None:
        assert prompt not in self.started
        self.started.append(prompt)
        self.at_agent.append(prompt)

    @rule(steer=st.booleans(), can_queue=st.booleans())
    def submit(self, steer: bool, can_queue: bool) -> None:
        self.count += 1
        before = self.prompts.current
        new = Prompt(self.count, [], steer)
        try:
            starts = self.prompts.submitted(new, can_queue)
        except TooManyWaiting:
            return
        if starts:
            if before is not None:
                self.silent.add(before)
            self.start(new)

    @rule()
    def idle(self) -> None:
        self.prompts.foreground_idle()

    @precondition(lambda self: self.at_agent)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        ended = self.at_agent.pop(data.draw(st.integers(0, len(self.at_agent) - 1)))
        ending = self.prompts.ended(ended)
        assert ending.told == (ended not in self.silent)
        if ending.told:
            self.told.append(ended)
        if ending.next:
            self.start(ending.next)

    @precondition(lambda self: self.prompts.current is not None)
    @rule()
    def abandon(self) -> None:
        self.silent.add(self.prompts.current)
        following = self.prompts.abandoned()
        if following:
            self.start(following)

    @invariant()
    def started_in_order(self) -> None:
        assert [p.generation for p in self.started] == sorted(p.generation for p in self.started)

    @invariant()
    def the_current_one_is_with_the_agent(self) -> None:
        assert self.prompts.current is None or self.prompts.current in self.at_agent


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase
