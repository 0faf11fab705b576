"""What attempts cost is booked, whatever becomes of them and of their controllers, and a budget is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.support.engine_books import SECOND, Books

from evalfleet.engine.placement.least_budget import require_budget
from evalfleet.errors import InputError
from evalfleet.model import Outcome, RunState, TaskSpec, TaskState


@pytest.mark.parametrize(("cause", "outcome"), [("worker_lost", Outcome.LOST), ("preempted", Outcome.PREEMPTED)])
def test_a_lost_attempt_costs_what_it_cost_until_then(home: Path, cause: str, outcome: Outcome):
    books = Books(home)
    [one] = books.start()
    books.step(books.reports(one, 7.5), after_s=1.0)
    books.step(books.lost(one, cause), after_s=2.0)
    found = books.attempt(one)
    assert found.outcome is outcome
    assert (found.duration_s, found.reported_usd) == (pytest.approx(3.3), 7.5)
    assert found.cost_usd == pytest.approx(3.3 + 7.5)
    assert books.store.costs.waste_sums(books.run.id) == {str(outcome): pytest.approx(10.8)}


def test_reports_that_were_not_stored_yet_are_booked(home: Path):
    books = Books(home, price=0.0)
    [one] = books.start()
    books.step(books.reports(one, 1.0))
    books.step(books.reports(one, 5.0), books.lost(one))
    assert books.attempt(one).cost_usd == 5.0


def test_a_loss_is_not_charged_for_longer_than_its_runner_lets_it_run(home: Path):
    books = Books(home, timeout_s=10.0)
    [one] = books.start()
    books.kill()
    books.step(books.lost(one), after_s=86400.0)
    assert books.attempt(one).cost_usd == pytest.approx(10.0)


def test_what_its_host_never_heard_of_costs_nothing(home: Path):
    books = Books(home)
    launched = books.step().launch["one"]
    books.step(books.lost(launched[0].attempt_id, "cancelled"), after_s=50.0)
    assert books.attempt(launched[0].attempt_id).cost_usd == 0.0


def test_a_host_that_this_controller_never_reached_has_a_price(home: Path):
    books = Books(home, 2, hosts=("one", "two"))
    attempts = books.start()
    gone = next(one for one in attempts if books.attempt(one).host == "two")
    books.kill(lambda name: name == "one")
    books.step(books.lost(gone), after_s=4.0)
    assert books.attempt(gone).cost_usd == pytest.approx(4.3)


def test_a_late_end_adds_the_difference_once(home: Path):
    books = Books(home, attempts=3)
    [one] = books.start()
    books.step(books.reports(one, 1.0), books.lost(one), after_s=2.0)
    assert books.attempt(one).cost_usd == pytest.approx(3.3)
    books.step(books.ends(one, duration_s=9.0, usd=4.0, exit_code=1))
    assert books.attempt(one).cost_usd == pytest.approx(13.0)
    books.step(books.ends(one, duration_s=9.0, usd=4.0, exit_code=1))
    books.kill()
    books.step(books.ends(one, duration_s=9.0, usd=4.0, exit_code=1))
    assert books.attempt(one).cost_usd == pytest.approx(13.0)
    assert [event.type for event in books.store.events.of_run(books.run.id, limit=1000)].count("attempt.charged") == 1


def test_a_late_verdict_adds_the_difference(home: Path):
    books = Books(home, budget_usd=100.0, timeout_s=10.0)
    [one] = books.start()
    books.step(books.lost(one), after_s=2.0)
    books.step(books.ends(one, duration_s=5.0, usd=4.0))
    assert books.attempt(one).outcome is Outcome.OK
    assert books.attempt(one).cost_usd == pytest.approx(9.0)
    assert books.dispatcher._budget._spent_usd == pytest.approx(9.0)


def test_losses_use_up_the_budget(home: Path):
    """Every attempt reports $7.50, and then its host dies: $10 are enough for two of them."""
    books = Books(home, 30, price=0.0, budget_usd=10.0)
    count = 0
    while launched := books.start(after_s=1.0):
        count += len(launched)
        books.step(*(books.reports(one, 7.5) for one in launched))
        books.step(*(books.lost(one) for one in launched))
    assert count == 1, "the second could cost as much as the first"
    assert books.store.runs.get(books.run.id).state is RunState.PAUSED
    assert books.spent == 7.5


def test_the_next_controller_knows_what_live_attempts_have_spent(home: Path):
    books = Books(home, 5, slots=4, price=0.0, budget_usd=6.0, timeout_s=1000.0)
    [one] = books.start()
    books.step(books.ends(one, 1.0, usd=0.5), after_s=1.0)
    two = books.start()
    books.step(*(books.reports(one, 2.5) for one in two), after_s=1.0)
    books.kill()
    assert books.start(after_s=1.0) == []
    assert books.dispatcher._budget._committed(books.dispatcher.live.values(), books.clock())[0] == 5.0


def test_what_is_in_flight_doubles_only_as_ends_confirm(home: Path):
    books = Books(home, 100, slots=64, price=0.0, budget_usd=1000.0)
    rounds: list[int] = []
    for _ in range(4):
        launched = books.start()
        rounds.append(len(launched))
        books.step(*(books.ends(one, 1.0, usd=0.01) for one in launched), after_s=1.0)
    assert rounds == [1, 2, 4, 8]
    books.kill()
    books.start()
    assert len(books.dispatcher.live) == 16


def test_the_first_cheap_attempt_does_not_open_the_gates(home: Path):
    """The first costs a cent, all others a dollar: a budget of $1 is passed by what was in flight, which was two."""
    books = Books(home, 40, slots=16, price=0.0, budget_usd=1.0)
    [first] = books.start()
    launched = books.start(books.ends(first, 1.0, usd=0.01))
    assert len(launched) == 2
    books.step(*(books.ends(one, 1.0, usd=1.0) for one in launched))
    books.step()
    assert books.spent == pytest.approx(2.01)
    assert books.store.runs.get(books.run.id).state is RunState.PAUSED


def test_crashes_confirm_nothing(home: Path):
    books = Books(home, 40, slots=16, price=0.0, budget_usd=1.0, attempts=3)
    for _ in range(5):
        launched = books.start(after_s=1.0)
        assert len(launched) == 1
        books.step(books.ends(launched[0], 1.0, usd=0.0, exit_code=1), after_s=1.0)


def test_a_machine_is_paid_for_once_not_per_slot():
    from evalfleet.hosts.ssh.backend import SshBackend, SshSettings
    from evalfleet.hosts.ssh.login.hosts_file import read
    from evalfleet.layout import Home

    text = '[[host]]\nname = "box"\naddress = "127.0.0.1"\nslots = 4\nprice_usd_per_hour = 2.0\n'
    [spec] = read(text, "hosts", Path())
    backend = SshBackend(Home(Path("/nowhere")), spec, SshSettings())
    assert backend._info({}).price_usd_per_hour == 0.5


def specs(*bounds: float | None) -> list[TaskSpec]:
    return [
        TaskSpec(key=f"t_{turn}", domain="t", command=("x",), max_cost_usd=bound)
        for turn, bound in enumerate(bounds, 1)
    ]


def test_tasks_that_state_their_cost_need_no_ramp(home: Path):
    books = Books(home, specs(*[1.0] * 20), slots=16, price=0.0, budget_usd=8.5)
    launched = books.start()
    assert len(launched) == 8, "each is counted with all that it may cost"
    assert books.start(books.ends(launched[0], 1.0, usd=0.2)) != [], "it left room for another"
    assert len(books.dispatcher.live) == 8


def test_a_run_states_it_for_its_tasks(home: Path):
    books = Books(home, specs(*[None] * 5, 2.5), slots=16, price=0.0, budget_usd=8.6, max_cost_usd=2.0)
    assert len(books.start()) == 4


def test_a_task_that_does_not_fit_pauses_the_run(home: Path):
    books = Books(home, specs(5.0), price=0.0, budget_usd=4.0)
    assert books.start() == []
    run = books.store.runs.get(books.run.id)
    assert run.state is RunState.PAUSED
    assert run.reason is not None
    assert "about $5.00 each" in run.reason["message"]


def test_a_smaller_task_is_taken_where_a_larger_does_not_fit(home: Path):
    books = Books(home, specs(5.0, 1.0), slots=2, price=0.0, budget_usd=4.0)
    [small] = books.start()
    assert small.endswith(".2.1")
    books.step(books.ends(small, 1.0, usd=0.5), after_s=1.0)
    books.step(after_s=2.0)
    assert books.store.runs.get(books.run.id).state is RunState.PAUSED


def test_what_is_given_up_may_go_on_and_its_money_is_kept_for_it(home: Path):
    books = Books(home, specs(3.0, 3.0), hosts=("one", "two"), price=0.0, budget_usd=5.0, timeout_s=20.0)
    [one] = books.start()
    books.step(books.lost(one), after_s=1.0)
    assert books.start(after_s=1.0) == [], "the lost one may still spend its $3"
    books.kill()
    assert books.start(after_s=1.0) == [], "nor does the next controller forget that"
    assert books.store.runs.get(books.run.id).state is RunState.RUNNING
    assert books.dispatcher.step((), list(books.hosts.values())).wait_s > 10.0
    assert len(books.start(after_s=100.0)) == 1, "its runner has ended it by now"


def test_attempts_that_report_are_stopped_when_the_budget_is_passed(home: Path):
    books = Books(home, specs(None, None, None), slots=3, price=0.0, budget_usd=1.0)
    [first] = books.start()
    [two, three] = books.start(books.ends(first, 1.0, usd=0.1))
    assert books.step(books.reports(two, 0.9), after_s=1.0).stop == {}, "what is there may be spent"
    assert books.step(books.reports(two, 0.95), after_s=1.0).stop == {"one": [two]}, "the other one costs nothing"
    books.step(books.seen(two, "ended", cause="cancelled", duration_s=2.0, reported_usd=0.95))
    assert books.attempt(two).outcome is Outcome.CANCELLED
    assert books.attempt(two).failure is not None
    assert "stopped at the run's budget of $1.00" in books.attempt(two).failure.evidence  # pyright: ignore[reportOptionalMemberAccess]
    task = books.store.tasks.at(books.run.id, 2)
    assert (task.state, task.consumed, task.lost) == (TaskState.QUEUED, 0, 0)
    books.step(books.ends(three, 5.0))
    books.step()
    assert books.store.runs.get(books.run.id).state is RunState.PAUSED
    assert books.store.tasks.at(books.run.id, 3).verdict is not None


def test_a_paused_run_says_what_its_machines_cost(home: Path):
    books = Books(home, 4, hosts=("one", "two"), slots=4, price=0.25, budget_usd=0.0)
    books.step()
    reason = books.store.runs.get(books.run.id).reason
    assert reason is not None
    assert reason["usd_per_hour"] == 2.0
    assert "its 2 machines cost $2.00 an hour meanwhile" in reason["message"]


def test_before_anything_has_ended_a_tasks_own_time_limit_counts(home: Path):
    """As it does when the run is submitted."""
    specs = [TaskSpec(key="short", domain="d", command=("true",), timeout_s=5.0)]
    books = Books(home, specs, budget_usd=6.0, timeout_s=3600.0)
    require_budget(books.store, books.run.policy, specs, local_usd_per_hour=SECOND)
    [one] = books.start()
    assert books.store.runs.get(books.run.id).state is RunState.RUNNING
    budget, live = books.dispatcher._budget, books.dispatcher.live.values()
    assert budget.allowance(live, books.store.now()) == 0, "what runs may take all its own time"
    short = books.store.tasks.at(books.run.id, books.attempt(one).task_number)
    long = replace(short, spec=replace(short.spec, timeout_s=60.0))
    assert not budget.admits(long, (), books.store.now())
    assert "$60.00" in budget.message(books.store.now()), "what did not fit is told"


def test_time_limits_that_are_all_longer_than_the_usual_count_when_a_run_is_submitted(home: Path):
    books = Books(home, budget_usd=6.0, timeout_s=5.0)
    long = TaskSpec(key="long", domain="d", command=("true",), timeout_s=60.0)
    with pytest.raises(InputError, match=r"budget of \$60"):
        require_budget(books.store, books.run.policy, [long], local_usd_per_hour=SECOND)
