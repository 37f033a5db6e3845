"""Names and help texts of metrics follow the conventions of Prometheus."""

from __future__ import annotations

import re

import msgspec
import pytest

from headway.core.telemetry.stats import ConsumerStats, QueueStats
from headway.server.admin.metrics import HELP, consumer_families, queue_families

NOTHING: dict[str, object] = {"str": "", "bool": False, "int": 0, "float": 0.0, "dict[str, int]": {}}


def series(**figures: object) -> dict[str, tuple[str, float]]:
    """Help text and value of each metric of one consumer."""
    types = {field.name: ConsumerStats.__annotations__[field.name] for field in msgspec.structs.fields(ConsumerStats)}
    consumer = ConsumerStats(**{**{name: NOTHING.get(kind) for name, kind in types.items()}, **figures})
    return {one.name: (one.documentation, one.samples[0].value) for one in consumer_families([consumer])}


def test_a_blocked_consumer_is_told_in_seconds() -> None:
    assert series(blocked_ms=1500)["headway_consumer_blocked_seconds"][1] == 1.5


def test_how_old_what_a_consumer_sees_is_is_told_in_seconds() -> None:
    assert series(view_age_ms=2500)["headway_consumer_view_age_seconds"][1] == 2.5


def test_the_old_name_still_works_and_its_help_text_names_the_new_one() -> None:
    text, value = series(blocked_ms=1500)["headway_consumer_blocked_ms"]
    assert value == 1500
    assert text == "Deprecated: use headway_consumer_blocked_seconds"


def test_a_queue_has_its_figures() -> None:
    queue = QueueStats("jobs", 4, 3, 0, 2, 1, 0, True, 0, {"expired": 5})
    found = {sample.name: sample.value for family in queue_families([queue]) for sample in family.samples}
    assert found == {
        "headway_queue_records": 4, "headway_queue_bytes": 3, "headway_queue_unacknowledged": 2,
        "headway_queue_consumers": 1, "headway_queue_dropped_records_total": 5,
    }  # fmt: skip


@pytest.mark.parametrize("name", HELP)
def test_units_are_base_units(name: str) -> None:
    if not HELP[name].startswith("Deprecated: use headway_"):
        assert not re.search(r"_(ms|us|kb|mb|minutes|percent)(_|$)", name)
