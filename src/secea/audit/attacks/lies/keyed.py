"""All lies that are told to clients of the keyed form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from secea.audit import Subject
from secea.audit.attacks.lies import (
    PLAIN,
    PUBLISHED,
    RANDOM_STEPS,
    SMALL,
    SMALLEST,
    TOLERANT,
    Deviation,
    means,
    openings,
    relayed,
    seeds,
    unions,
)

WORDS: Final = 6
SEALED: Final = (("KEY", ("table", "agree", "open")), ("DIGEST", ("table", "open")), ("BEGIN", ("rest", "ready")))


def deviations(subject: Subject) -> Iterator[Deviation]:
    """All of them."""
    yield from relayed.deviations(subject, (SMALL, SMALLEST), WORDS, SEALED)
    turns = -(-(len(means.SUMS) + len(means.TEXTS) + 1) // PLAIN.clients)
    for turn in range(turns):
        yield Deviation(f"wrong means {turn + 1}", means.wrong_means(turn), PLAIN)
    yield Deviation("wrong means after drop-outs", means.wrong_means(0), TOLERANT)
    for slot in (0, -1):
        yield Deviation(f"wrong slot {slot}", means.wrong_slot(slot), PLAIN)
    yield Deviation("old means", means.old_means, PLAIN)
    yield Deviation("two answers", means.two_answers, PLAIN)
    for place in range(6 if subject.thorough else 3):
        yield Deviation(f"tag {place + 1} left out", unions.tag_left_out(place), PLAIN)
    yield Deviation("tags added", unions.tags_added, PLAIN)
    yield Deviation("no lists", unions.no_lists, PLAIN)
    yield Deviation("two lists of tags", unions.two_lists, PLAIN)
    yield Deviation("a union made again", unions.union_again, PLAIN)
    yield Deviation("a round again", openings.round_again, PLAIN)
    yield Deviation("few members", unions.few_members, PLAIN)
    yield Deviation("fewer in a round", openings.fewer_in_a_round, PLAIN)
    yield Deviation("sent again", openings.sent_again, PLAIN)
    yield Deviation("other lists", unions.other_lists, PLAIN)
    yield Deviation("points copied", unions.points_copied, PLAIN, last=True)
    yield Deviation("lists changed", unions.lists_changed, PLAIN, last=True)
    yield Deviation("opened again", openings.sent_again, TOLERANT)
    yield Deviation("slots kept", openings.slots_kept, TOLERANT)
    yield Deviation("left out", openings.left_out, TOLERANT)
    yield Deviation("too few", openings.too_few, TOLERANT)
    yield Deviation("opened twice", openings.opened_twice, TOLERANT)
    yield Deviation("signed twice", openings.signed_twice, TOLERANT)
    yield Deviation("next round at once", openings.next_round_at_once, TOLERANT)
    yield Deviation("two groups", openings.two_groups, TOLERANT)
    yield Deviation("wrong votes", openings.wrong_votes, TOLERANT)
    for what in ("nothing", "a union", "mask keys"):
        yield Deviation(f"opened after {what}", openings.too_late(what), TOLERANT)
    for filled in ("under other names", "doubled"):
        yield Deviation(f"different sets, votes {filled}", openings.different_sets(filled), PUBLISHED)
    yield Deviation("old votes", openings.old_votes, PUBLISHED)
    for seed in seeds(subject):
        yield Deviation(f"openings at random, seed {seed}", openings.at_random(RANDOM_STEPS), SMALL)
