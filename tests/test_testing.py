"""The harness: a watch hears what parties seal and derive, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from secea.audit import SMALL_KEYS
from secea.errors import SERVER
from secea.forms.keyed import Keyed
from secea.forms.paillier import Paillier
from secea.party.form import Form
from secea.testing import Derived, Parties, Recorder, Watch, insecure_seeded
from secea.wire.keys import Opener

TABLES = [{"a": np.ones(2), "b": np.ones(2)}, {"b": np.zeros(2)}, {"a": np.ones(2), "c": np.ones(2)}]
FORMS: list[Form] = [Keyed(), Paillier()]


def made(form: Form, watch: Watch | None = None) -> tuple[Parties, Recorder]:
    tap = Recorder(form.kinds)
    small = SMALL_KEYS if isinstance(form, Paillier) else {}
    parties = Parties.of(TABLES, form, collusion=1, entropy=insecure_seeded(1), tap=tap, watch=watch, **small)
    parties.setup()
    parties.round(TABLES)
    return parties, tap


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_watch_hears_what_each_receiver_opens(form: Form) -> None:
    watch = Watch()
    _, tap = made(form, watch)
    travelled = {(hop.header.label(), hop.header.chunk): hop for hop in tap.hops}
    chunks = [each for each in watch.heard if not isinstance(each, Derived)]
    assert {each.header.kind.name for each in chunks} >= {"BEGIN", "TABLE", "SHARE"}
    for each in chunks:
        hop = travelled[each.header.label(), each.header.chunk]
        assert bytes(Opener(each.key, hop.header).open(hop.header, hop.message)) == each.payload
    assert {(each.me, each.peer) for each in watch.heard if isinstance(each, Derived)} >= {(0, SERVER), (SERVER, 0)}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_who_is_watched_sends_the_same_bytes(form: Form) -> None:
    _, quiet = made(form)
    _, heard = made(form, Watch())
    assert sorted(hop.message for hop in quiet.hops) == sorted(hop.message for hop in heard.hops)


def test_a_party_that_was_restarted_is_heard_too() -> None:
    watch = Watch()
    parties, _ = made(Keyed(), watch)
    parties.restart(1)
    watch.heard.clear()
    parties.exchange.greet()
    parties.union(range(3))
    parties.round(TABLES)
    assert watch.sealed(Keyed.kinds["UPLOAD"], sender=1)
