"""Laws of introductions: objects show what matters in a few lines, and never the name of an entity."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import secea
from secea import Federation, Params, RoundLost, Table
from secea.engines.traffic import Cost, Hop, Traffic
from secea.notebook import html_table, size, text_table

ENTITY = "aspirin"
CLIENTS = ("north", "<b>south</b>", 'we"st')


def tables() -> dict[str, dict[str, list[float]]]:
    return {name: {ENTITY: [1.0, 2.0], f"{ENTITY} {n}": [1.0, 2.0]} for n, name in enumerate(CLIENTS)}


@pytest.fixture(scope="module")
def fed() -> Federation:
    fed = Federation(Params(clients=3, dim=2))
    fed.setup(tables())
    for _ in range(6):
        fed.round(tables())
    fed.round({name: own for name, own in tables().items() if name != "north"})
    return fed


@pytest.fixture(scope="module")
def objects(fed: Federation) -> list[Any]:
    table = Table([ENTITY, f"{ENTITY} 2"], np.ones((2, 3)), np.array([1, 0]))
    plan = secea.plan(fed.params, entities=4)
    return [
        fed,
        fed.traffic,
        fed.timing,
        fed.params,
        fed.session,
        fed.session.roster,
        plan,
        table,
        Params(clients=3, dim=2),
    ]


class Page(HTMLParser):
    """Checks that tags are closed in order, and keeps the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_no_object_shows_the_name_of_an_entity_or_key_bytes_and_none_is_long(objects: list[Any]) -> None:
    for each in objects:
        shown = repr(each), str(each), getattr(each, "_repr_html_", str)()
        assert not any(ENTITY in text for text in shown), type(each)
        assert not any("\\x" in text for text in shown), type(each)
        assert len(shown[0]) < 4000, type(each)
        assert all(len(line) <= 200 for line in shown[0].splitlines()), type(each)


def test_what_notebooks_show_is_whole_escaped_and_without_colours_of_its_own(objects: list[Any]) -> None:
    for each in objects:
        if hasattr(each, "_repr_html_"):
            text = each._repr_html_()
            page = Page(text)
            assert page.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
            assert "background:none" in text
            assert "#" not in text.replace("&#", ""), "colours are those of the notebook"


def test_a_federation_says_where_it_stands() -> None:
    fed = Federation(Params(clients=3, dim=2, dropouts=1, collusion=1))
    assert repr(fed) == "Federation(3 clients, not set up yet)"
    assert "not set up yet" in Page(fed._repr_html_()).text
    fed.setup(tables())
    assert repr(fed) == "Federation(3 clients, round 0, union 4)"
    fed.round(tables())
    assert repr(fed) == "Federation(3 clients, round 1, union 4)"
    with pytest.raises(RoundLost):
        fed.round(tables(), vanish=["north", 1])
    assert repr(fed) == "Federation(3 clients, round 2, no union)"
    with pytest.raises(RoundLost):
        fed.round(tables(), vanish=CLIENTS)
    text = Page(fed._repr_html_()).text
    assert "round 3nobody; " in text
    assert "round 1all clients; " in text
    assert "lost: no means" in text


def test_a_notebook_sees_cost_traffic_and_who_took_part_in_the_last_rounds(fed: Federation) -> None:
    text = Page(fed._repr_html_()).text
    once = sum(hop.size for hop in fed.traffic if not hop.round)
    last = sum(hop.size for hop in fed.traffic if hop.round == 7)
    assert repr(fed) in text
    assert f"set-up and unions{size(once)}" in text
    assert "round 6all clients; " in text
    assert f'round 7<b>south</b>, we"st; {size(last)}' in text
    assert "round 4" not in text, "three rounds are shown"
    assert "<b>south" not in fed._repr_html_()
    assert Page(fed._repr_html_()).tags.isdisjoint({"b"})


def test_traffic_is_a_sequence_of_hops_that_shows_itself_as_a_table(fed: Federation) -> None:
    traffic = fed.traffic
    assert isinstance(traffic, list)
    assert all(isinstance(hop, Hop) for hop in traffic)
    assert traffic[0] == next(iter(traffic))
    assert isinstance(traffic[3:], Traffic)
    assert list(traffic[3:]) == list(traffic)[3:]
    for frame in (pd.DataFrame(traffic), pl.DataFrame(traffic)):
        assert list(frame.columns) == ["round", "sender", "receiver", "kind", "size"]
        assert int(frame["size"].sum()) == sum(hop.size for hop in traffic)
        assert len(frame) == len(traffic)


def test_the_table_of_traffic_adds_up(fed: Federation) -> None:
    title, header, *rows = repr(fed.traffic).splitlines()
    total = sum(hop.size for hop in fed.traffic)
    assert title == f"Traffic: {len(fed.traffic):,} messages, {size(total)}"
    assert header.split("  ")[-1].strip() == "all"
    for part in ("set-up", "rounds 1-4", "round 5", "round 6", "round 7"):
        assert part in header
    columns = [[int(cell.replace(",", "")) for cell in row.split()[1:]] for row in rows]
    assert [sum(column) for column in zip(*columns[:-1], strict=True)] == columns[-1]
    assert columns[-1][-1] == total
    assert all(sum(row[:-1]) == row[-1] for row in columns)
    assert columns[-1][0] == sum(hop.size for hop in fed.traffic if not hop.round)
    assert columns[-1][-2] == sum(hop.size for hop in fed.traffic if hop.round == 7)
    assert repr(Traffic()) == "Traffic: 0 messages, 0 bytes"
    assert "round 1" in repr(Traffic([Hop(n, 0, "server", "upload", 9) for n in (1, 2, 3, 4)]))


def test_timing_is_a_dict_of_costs_that_shows_itself_as_a_table(fed: Federation) -> None:
    assert isinstance(fed.timing, dict)
    assert all(isinstance(cost, Cost) for costs in fed.timing.values() for cost in costs.values())
    _, header, *rows = repr(fed.timing).splitlines()
    assert header.split()[0] == "party"
    assert [row.split("  ")[0] for row in rows] == [*CLIENTS, "server"]
    sent = sum(int(row.split()[i].replace(",", "")) for row in rows for i in (2, 4, 6))
    assert sent == sum(hop.size for hop in fed.traffic)


def test_params_show_what_was_chosen_and_can_be_read_back() -> None:
    params = Params(clients=3, dim=2, max_abs=8, normalize="strip")
    assert repr(params) == "Params(clients=3, dim=2, max_abs=8.0, normalize=('strip',))"
    assert eval(repr(params), {"Params": Params}) == params  # noqa: S307  # our own text
    assert Page(params._repr_html_()).text == "Paramsclients3dim2max_abs8.0normalize('strip',)"


def test_a_session_shows_its_clients_and_fingerprint(fed: Federation) -> None:
    session = fed.session
    assert repr(session) == f"Session(keyed, {', '.join(CLIENTS)}, fingerprint {session.fingerprint})"
    assert session.fingerprint in Page(session._repr_html_()).text
    assert repr(session.roster).endswith(f"fingerprint {session.roster.fingerprint})")


def test_names_that_turn_text_around_are_not_shown_as_they_are() -> None:
    for made in (html_table("a\u202eb", ["c\x1bd"], [["e\x00"]]), text_table("t", ["c\x1bd"], [["e\u202e"]])):
        assert not {"\x1b", "\x00", "\u202e"} & set(made)


def test_sizes_are_as_people_read_them() -> None:
    assert [size(n) for n in (0, 999, 1000, 12_345, 10**6, 2_500_000_000)] == [
        "0 bytes", "999 bytes", "1 kB", "12.3 kB", "1 MB", "2.5 GB",
    ]  # fmt: skip
