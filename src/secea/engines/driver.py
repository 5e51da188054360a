"""The server's side of a federation, over any engine: it goes through the table of phases.

A `Driver` knows nothing of networks and clocks: a `Port` carries its orders and says who did not reply. Whoever
fails in a phase is left out, called again, and taken back with the next union.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from secea.engines.log import Log
from secea.engines.port import Alive, Cause, Failure, Port, Reply, Task, Terms, refusal
from secea.errors import FederationError, ProtocolError, Stale, party
from secea.party.phases import REST, UNKNOWN, Standing
from secea.party.server import Server
from secea.wire.messages import NO_CONTEXT

MOST_UNABLE: Final = 2
"""A client that says more often that it cannot continue is not believed: an honest one does so once in 10^6 epochs."""
MOST_TRIES: Final = 16
"""Attempts at one union, or at what comes before it."""
NAMELESS: Final = "its first names got no keys, and others have changed theirs since: it needs a new session"
ACCUSED: Final = "more clients than may conspire refuse what it sends: start the server's side anew to call it again"
FAREWELL_SECONDS: Final = 10.0
"""Time to tell those who were left out why, when a run ends."""
KEYLESS: Final = "it has no share of the key of the names: restore its state, or begin a new session"


@dataclass(frozen=True)
class Patience:
    """How long a phase may take: a fixed part, a part for its bytes, and, where clients train, their training."""

    stage: float = 30.0
    """Seconds for each phase, whatever its size."""
    bytes_per_second: float = 2e6
    """The slowest link that is waited for."""
    training: float = 3600.0
    """Seconds that a client may train."""

    def seconds(self, size: int, *, training: bool) -> float:
        """Seconds for a phase in which a client sends and gets this number of bytes."""
        return self.stage + size / self.bytes_per_second + (self.training if training else 0.0)


class Driver:
    """Runs set-up and rounds of a `Server` over a `Port`. `save` gets the server's state before anything leaves."""

    def __init__(
        self,
        server: Server,
        port: Port,
        *,
        patience: Patience | None = None,
        save: Callable[[bytes], None] | None = None,
        log: Log | None = None,
    ) -> None:
        self.server, self._port = server, port
        self._patience, self._save, self._log = patience or Patience(), save, log or Log()
        self.present: set[int] = set()
        """Who takes part now."""
        self.failures: dict[int, str] = {}
        """Why each of the others does not: what was heard of it last."""
        self.done = 0
        """The number of the last round that gave means."""
        self._standing: dict[int, Standing] = {}
        self._outside: set[int] = set()  # who was lost since the last union began
        self._renamed = False  # whether this round had its epoch of names
        self._unable: Counter[int] = Counter()  # how often each said that it cannot go on
        self._accusers: dict[int, set[int]] = {}  # who refused what a client alone can have sent
        self._everyone = set(range(server.session.params.clients))  # who is called
        self._saved = b""
        self._told: dict[int, str] = {}  # what each was told about its absence

    # ------------------------------------------------------------------------------------------------------- the run

    def setup(self) -> None:
        """Hellos, names and the first union, with everyone who replies; a key of names needs all."""
        with self._given_up_on_error():
            self._call(self._everyone)
            self._get_ready()
            self._forgive()

    def expect(self, clients: Iterable[int]) -> None:
        """These take part from now on, if they answer; the others are absent, and are not called."""
        self._everyone = set(clients)
        for n in self.present - self._everyone:
            self._lose(n, "it is absent", Cause.ABSENT)
        self._call(self._everyone)

    def renew(self) -> None:
        """An epoch of names, and a union: somebody's entities changed."""
        with self._given_up_on_error():
            form = self.server.session.form
            if form.names_phase and not self._waiting() and self.server.at.named >= form.last_epoch:
                raise FederationError("all changes of entities of this session are used (max_updates): begin a new one")
            self._rename()
            self._get_ready()

    def round(self) -> None:
        """One round: clients train on the means of the last one, and contribute. `RoundLost` where it is lost."""
        with self._given_up_on_error():
            form, server = self.server.session.form, self.server
            self._renamed = False
            tries = 0
            while not self._all_trained():
                if (tries := tries + 1) == MOST_TRIES:
                    raise FederationError(f"{MOST_TRIES} attempts at a round failed before anybody uploaded")
            if form.round_phase != form.ready_phase:
                self._begin(form.round_phase, server.at.members)
            self._finish_phases()
            self.done = server.at.round
            self._forgive()
            there = sorted(self.present & set(server.at.members))
            self._log.noted("round", number=self.done, clients=list(map(party, there)))

    def finish(self) -> None:
        """The last means go out, and clients hear that it is over. They keep the keys of their names."""
        members = [n for n in self.server.at.members if n in self.present]
        if members and self.server.at.phase == REST and self.server.at.size != UNKNOWN:
            self._begin(self.server.session.form.end_phase, members)
            for n, reply in self._exchange(dict.fromkeys(members, Task.END)):
                self._heard(n, reply)
            self.server.give_up()

    def farewell(self) -> None:
        """Tell those who were left out why, if they can be told and do not know yet."""
        untold = {n for n, why in self.failures.items() if n in self._everyone and self._told.get(n) != why}
        if untold:
            terms = Terms(FAREWELL_SECONDS, said=self.failures)
            for _ in self._port.exchange(dict.fromkeys(untold, Task.HELLO), self.server.at.round, dict, terms):
                pass

    @contextmanager
    def _given_up_on_error(self) -> Iterator[None]:
        """What cannot be finished is given up: the next round begins with a new union."""
        try:
            yield
        except (FederationError, ProtocolError):
            self.server.give_up()
            raise

    def _all_trained(self) -> bool:
        """Whether everyone of the union has trained, and all is ready for an upload; or it has come already."""
        form, server = self.server.session.form, self.server
        self._get_ready()
        self._begin(form.ready_phase, server.at.members)
        if not self._run_phase(Task.ROUND):
            return False
        if not set(server.at.members) <= self.present:  # lost after it was ready: it costs a union, not the round
            server.give_up()
            return False
        if server.part.renamed and self.can_rename() and not self._renamed:
            self._renamed = True  # once for each round: whoever always says so is not believed
            self._rename()
            return False
        return True

    def _forgive(self) -> None:
        """Those who take part are not lost any more."""
        for n in self.present & set(self.server.at.members):
            self.failures.pop(n, None)

    # ---------------------------------------------------------------------------------------------------- what is due

    def _get_ready(self) -> None:
        """Whatever a round needs: a key of the names, the names' keys, a union of all who are here, mask keys."""
        form, params = self.server.session.form, self.server.session.params
        for _ in range(MOST_TRIES):
            phase = self._next_phase()
            if phase and len(self.present) < form.fewest(params, phase, self.server.at.named + 1):
                self._call(self._everyone - self.present)
                phase = self._next_phase()
            if not phase:
                return
            if phase == form.names_phase:
                self._rename()
            else:
                self._begin(phase, self.present)
                self._finish_phases()
            self._leave_out_liars()
        raise FederationError(f"{MOST_TRIES} attempts at a union failed")

    def _next_phase(self) -> str:
        """The phase that has to come before a round; none if all is there."""
        form, server = self.server.session.form, self.server
        self._leave_out_keyless()
        at, here = server.at, {n: self._standing[n] for n in self.present}
        if form.names_phase and not any(each.named for each in here.values()):
            dealt = len({each.base for each in here.values()} | {at.base}) == 1 and at.base != NO_CONTEXT
            return form.names_phase if dealt else form.setup_phase
        if waiting := self._waiting():
            others = len(self.present) - len(waiting)
            if self.can_rename() or others < form.fewest(server.session.params, form.union_phase, at.named):
                return form.names_phase
            for n in waiting:  # the others need not wait with them
                why = "the keys of its new names have not come: for these more clients must be here"
                self._lose(n, why, Cause.WAITS)
            return self._next_phase()
        stands = at.size != UNKNOWN and at.members == at.participants == tuple(sorted(here))
        if (
            not stands
            or self._outside & here.keys()
            or any((each.settled, each.round) != (at.union, at.round) for each in here.values())
        ):
            return form.union_phase
        return "" if server.part.prepared(at) else form.prepare_phase

    def _leave_out_keyless(self) -> None:
        """Learn where clients stand; leave out who has no share of the key of the names."""
        self.server.learn({n: self._standing[n] for n in self.present})
        for n in sorted(self.present):
            if self._keyless(n):
                self._lose(n, KEYLESS)
            elif self.server.at.named > 1 and not self._standing[n].named:
                self._lose(n, NAMELESS, Cause.WAITS)

    def _keyless(self, n: int) -> bool:
        """Whether a client lost its share of the key of the names, or has one of another key."""
        at = self.server.at
        return at.named > 0 and self._standing[n].base != at.base

    def _leave_out_liars(self) -> None:
        """Leave out who says after a whole union that it is in none, or that it waits for keys that have come."""
        at = self.server.at
        for n in sorted(self.present & set(at.members)) if at.size != UNKNOWN else ():
            standing = self._standing[n]
            if (standing.settled, standing.round) != (at.union, at.round) or standing.names > standing.named:
                self._lose(n, "it does not say where it stands", Cause.REFUSED)

    def _waiting(self) -> dict[int, int]:
        """Who has asked for new names and got no answers, and in which epoch: an epoch of names was interrupted."""
        standing = {n: self._standing[n] for n in sorted(self.present)}
        return {n: each.names for n, each in standing.items() if each.names > each.named}

    def _rename(self) -> None:
        """An epoch of names, and the union that follows; the last one again where its answers did not come to all."""
        form, epoch = self.server.session.form, max(self._waiting().values(), default=0)
        repeated = epoch if epoch == self.server.at.named else 0
        self._begin(form.names_phase or form.union_phase, self.present, names=repeated)
        self._finish_phases()

    def can_rename(self) -> bool:
        """Whether enough clients are here for new names; if not, those who have some wait."""
        form, params, at = self.server.session.form, self.server.session.params, self.server.at
        if not form.names_phase:
            return len(self.present) >= form.fewest(params, form.union_phase, 0)
        enough = len(self.present) >= form.fewest(params, form.names_phase, at.named + 1)
        return enough and (at.named < form.last_epoch or bool(self._waiting()))

    # ---------------------------------------------------------------------------------------------------------- phases

    def _begin(self, phase: str, members: Iterable[int], *, names: int = 0) -> None:
        self.server.begin(phase, sorted(members), names=names)
        if self.server.row.counts == "union":
            self._outside -= set(self.server.at.members)

    def _finish_phases(self) -> None:
        """Run phase after phase until none is left. If one is interrupted, find out again what is due."""
        while self.server.at.phase != REST:
            if not self._run_phase(Task.STEP):
                return

    def _run_phase(self, task: Task) -> bool:
        """One phase with its members; whoever was lost is called while they train. Whether it went well."""
        members = set(self.server.at.members)
        waiting = members & self.present
        called = self._everyone - self.present if task is Task.ROUND else set[int]()
        for n, reply in self._exchange(dict.fromkeys(called, Task.HELLO) | dict.fromkeys(waiting, task)):
            if n in waiting or n in called:  # else it was lost in an earlier part of its reply
                self._heard(n, reply)
            if isinstance(reply, Failure) or not reply.more or n not in self.present:
                waiting.discard(n)
            if not waiting:
                break
        for n in waiting:
            self._lose(n, "it did not reply in time", Cause.SLOW)
        if self.server.row.silent and self._changed(members):
            self.server.give_up()
            return False
        return self._close(members)

    def _changed(self, members: set[int]) -> bool:
        """Whether somebody's entities changed, in a form in which it says so. Who says it twice is not believed."""
        changed = {n for n in members & self.present if not self._standing[n].settled}
        if changed and not self._renamed:
            self._renamed = True
            return True
        for n in changed:
            self._lose(n, "it says again that its entities changed", Cause.REFUSED)
            self.server.disregard(n)
        return False

    def _close(self, members: set[int]) -> bool:
        """End a phase with what came. A round that cannot be finished is lost; anything else begins again."""
        server = self.server
        for n in sorted(server.cannot() & self.present):
            self._unable[n] += 1
            if self._unable[n] > MOST_UNABLE:
                self._lose(n, "it says again and again that it cannot go on", Cause.REFUSED)
                server.disregard(n)
        try:
            return server.end()
        except ProtocolError as error:
            self._log.noted("refused", why=str(error))
            server.lose(str(error))
            return False
        finally:
            for n in members - self.present:
                server.lost_touch(n)  # what comes of this phase is not for them

    # ----------------------------------------------------------------------------------------------------- exchanges

    def _call(self, clients: Iterable[int]) -> None:
        """Who is there? A client that answers takes part from the next union on."""
        for n, reply in self._exchange(dict.fromkeys(clients, Task.HELLO)):
            self._heard(n, reply)

    def _exchange(self, tasks: Mapping[int, Task]) -> Iterator[tuple[int, Reply | Failure]]:
        server = self.server
        session, training = server.session, Task.ROUND in tasks.values()
        seconds = self._patience.seconds(server.stage_bytes, training=training)
        seconds += session.form.patience(session.params, server.at)
        self._keep()
        addressed = {n for n, task in tasks.items() if task is not Task.HELLO}
        number = server.at.round + (not server.row.silent)  # of the round that is to begin, or has begun
        terms = Terms(seconds, self._patience.training * training, dict(self.failures))
        self._log.noted(
            "stage", name=server.at.phase, round=self._goes_on, training=training, seconds=round(seconds, 1),
            clients=list(map(party, sorted(addressed))), called=list(map(party, sorted(tasks.keys() - addressed))),
        )  # fmt: skip
        self._told |= {n: why for n, why in terms.said.items() if tasks.get(n) is Task.HELLO}
        return self._replies(self._port.exchange(tasks, number, partial(server.drain, addressed), terms))

    @property
    def _goes_on(self) -> int:
        """The round that goes on, or comes next."""
        server = self.server
        begun = server.row.counts == "round" or server.row.loses_round
        return server.at.round + (not begun and server.at.phase != server.session.form.end_phase)

    def _replies(self, heard: Iterator[tuple[int, Reply | Failure | Alive]]) -> Iterator[tuple[int, Reply | Failure]]:
        """What is heard but for who is alive, which only the log is told."""
        for n, reply in heard:
            if isinstance(reply, Alive):
                self._log.alive(n, reply.seconds)
                continue
            if n in self.present and isinstance(reply, Reply) and not reply.more and not reply.fault:
                self._log.noted("replied", client=party(n))
            yield n, reply

    def _heard(self, n: int, reply: Reply | Failure) -> None:
        if n not in self._everyone:  # it was called before the others accused it
            return
        if isinstance(reply, Failure):
            self._lose(n, reply.reason, reply.cause)
            self._accuse(n, reply.reason)
            return
        if reply.fault:
            self._lose(n, reply.fault, Cause.of(reply.fault))
            self._accuse(n, reply.fault)
            return
        session = self.server.session
        try:
            self._standing[n] = Standing.parse(reply.standing, session.params.rounds, session.form.last_epoch)
        except ValueError as error:
            self._lose(n, str(error), Cause.REFUSED)
            return
        for message in reply.messages:
            try:
                self.server.receive(n, message)
            except Stale as stale:
                self._log.refused(message, stale)
            except ProtocolError as error:
                self._log.refused(message, error)
                self._refused(n, error)
                return
            else:
                self._log.accepted(message)
        if self._keyless(n) and self.server.row.sends:  # where nothing goes on, it may be that all have begun anew
            self._lose(n, KEYLESS)
            return
        if n not in self.server.link.peers:
            self._lose(n, "it answers, and says no hello", Cause.REFUSED)
            return
        if n not in self.present:
            self.present.add(n)
            self._log.noted("here", client=party(n))

    def _accuse(self, n: int, reason: str) -> None:
        """Call a client no more if more others than may conspire refuse what it alone sent: one of them is honest."""
        for v in self._everyone - {n}:
            if reason == refusal((v,)):
                self._accusers.setdefault(v, set()).add(n)
        for v in [v for v, others in self._accusers.items() if len(others) > self.server.session.params.T]:
            del self._accusers[v]
            self._everyone.discard(v)
            self._lose(v, ACCUSED, Cause.REFUSED)

    def _refused(self, n: int, error: ProtocolError) -> None:
        self._lose(n, str(error), Cause.REFUSED)

    def _lose(self, n: int, reason: str, cause: Cause = Cause.FAILED) -> None:
        known = n not in self.present and self.failures.get(n) == reason
        self.present.discard(n)
        self._outside.add(n)
        self.failures[n] = reason
        self.server.lost_touch(n)
        if not known:
            self._log.noted("lost", client=party(n), cause=cause, why=reason)

    def _keep(self) -> None:
        """The server's state, before anything leaves."""
        data = self.server.save()
        if self._save and data != self._saved:
            self._save(data)
            self._saved = data
