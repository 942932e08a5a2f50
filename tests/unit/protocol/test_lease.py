from hypothesis import given
from hypothesis import strategies as st
from tieline_protocol.lease import Lease, Presence, Terms

TERMS = Terms()


def test_a_process_without_a_confirmed_renewal_does_not_act():
    lease = Lease(TERMS)

    assert not lease.may_act(0.0)
    assert lease.must_close(0.0)


def test_a_process_acts_for_seven_seconds_after_it_sent_its_last_confirmed_renewal():
    lease = Lease(TERMS)
    lease.renewed(sent=100.0)

    assert lease.may_act(100.0 + 7.0 - 0.01)
    assert not lease.may_act(100.0 + 7.0)
    assert not lease.must_close(100.0 + 7.0)
    assert lease.must_close(100.0 + 7.5)


def test_a_lease_runs_out_a_while_before_it_has_expired():
    lease = Lease(TERMS)
    lease.renewed(sent=100.0)

    assert not lease.running_out(106.2)
    assert lease.running_out(106.3)
    assert lease.may_act(106.3)


def test_a_confirmation_that_comes_late_counts_from_when_the_renewal_was_sent():
    lease = Lease(TERMS)
    lease.renewed(sent=105.0)
    lease.renewed(sent=101.0)

    assert lease.may_act(111.9)


def test_a_refused_process_stops_at_once_and_acts_again_after_a_new_confirmation():
    lease = Lease(TERMS)
    lease.renewed(sent=100.0)
    lease.refused()

    assert not lease.may_act(100.1)
    assert lease.must_close(100.1)

    lease.renewed(sent=102.0)

    assert lease.may_act(102.1)


@given(st.integers(1, 60), st.floats(0, 1e6), st.floats(0, 100))
def test_nobody_acts_once_the_broker_may_have_forgotten_the_key(ttl, sent, later):
    """The broker starts its clock after the renewal was sent, so the key lives at least until sent + its TTL."""
    lease = Lease(Terms(ttl))
    lease.renewed(sent)

    assert not (lease.may_act(sent + later) and later >= ttl)
    assert lease.may_act(sent + later) <= (not lease.must_close(sent + later))


def test_a_process_that_was_seen_and_is_missing_is_named_until_it_is_known_to_have_ended():
    presence = Presence()

    assert presence.scanned(["a", "b"]) == set()
    assert presence.scanned(["b"]) == {"a"}
    assert presence.scanned(["b"]) == {"a"}
    assert presence.ended("a")
    assert not presence.ended("a")
    assert presence.scanned(["b"]) == set()
    assert presence.alive == {"b"}


def test_a_process_that_no_scan_has_found_is_missed_once_it_has_renewed():
    presence = Presence()
    presence.seen("g1")

    assert presence.alive == {"g1"}
    assert presence.scanned([]) == {"g1"}
    assert presence.ended("g1")
