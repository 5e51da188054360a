"""Laws of what travels: headers and announcements parse or are refused, and chunks cover every row exactly once."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from secea.errors import SERVER, ProtocolError
from secea.forms.paillier.form import SHARE, Kind
from secea.party.phases import Begin
from secea.wire.messages import CHUNK_BYTES, HEADER_BYTES, TAG_BYTES, WIRE_VERSION, Header, Layout

law = settings(deadline=None)
short, word = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1)
digests = st.binary(min_size=16, max_size=16)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    chunks = draw(st.integers(1, 2**32 - 1))
    chunk = draw(st.integers(0, chunks - 1))
    kind, sender, receiver, attempt = draw(st.sampled_from(Kind)), draw(short), draw(short), draw(short)
    epoch, weights, number, sequence = draw(word), draw(word), draw(word), draw(word)
    context, salt = draw(digests), draw(digests)
    return Header(kind, sender, receiver, epoch, weights, number, attempt, sequence, chunks, context, salt, chunk)


# ------------------------------------------------------------------------------------------------------------ headers


@law
@given(headers(), st.binary(max_size=20), st.sampled_from([bytes, bytearray, memoryview]))
def test_a_header_takes_64_bytes_and_comes_back_as_it_was(header: Header, body: bytes, form: type) -> None:
    assert len(header.pack()) == HEADER_BYTES == 64
    parsed = Header.parse(form(header.pack() + body), SERVER, Kind)
    assert parsed == header
    assert isinstance(parsed.kind, Kind)
    assert type(parsed.context) is type(parsed.salt) is bytes


def parse(data: bytes, carrier: int) -> Header | ProtocolError:
    try:
        return Header.parse(data, carrier, Kind)
    except ProtocolError as error:
        return error


@law
@given(st.binary(max_size=130), st.sampled_from([0, 3, SERVER]))
@example(b"", 0)
@example(bytes(63), 1)
@example(bytes([WIRE_VERSION]) + bytes(63), 2)
def test_any_bytes_parse_or_are_the_carriers_fault(data: bytes, carrier: int) -> None:
    parsed = parse(data, carrier)
    if isinstance(parsed, ProtocolError):
        assert parsed.suspects == (carrier,)
    else:
        assert parsed.pack() == data[:HEADER_BYTES]
        assert parsed.chunk < parsed.chunks


@law
@given(headers(), st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_a_changed_header_parses_to_something_else_or_is_refused(header: Header, at: int, change: int) -> None:
    data = bytearray(header.pack())
    data[at] ^= change
    parsed = parse(bytes(data), 0)
    assert parsed.suspects == (0,) if isinstance(parsed, ProtocolError) else parsed != header


@law
@given(headers(), st.integers(0, 255).filter(lambda version: version != WIRE_VERSION))
def test_another_wire_version_is_refused(header: Header, version: int) -> None:
    with pytest.raises(ProtocolError, match=f"wire version {version}"):
        Header.parse(bytes([version]) + header.pack()[1:], 0, Kind)


@law
@given(headers(), st.integers(0, 255).filter(lambda kind: kind not in list(Kind)))
def test_an_unknown_kind_is_refused(header: Header, kind: int) -> None:
    with pytest.raises(ProtocolError, match=f"unknown kind {kind}"):
        Header.parse(bytes([WIRE_VERSION, kind]) + header.pack()[2:], 0, Kind)


@law
@given(headers(), word)
def test_a_chunk_beyond_the_number_of_chunks_is_refused(header: Header, beyond: int) -> None:
    outside = replace(header, chunk=min(2**32 - 1, header.chunks + beyond))
    with pytest.raises(ProtocolError, match="says that it is chunk"):
        Header.parse(outside.pack(), 0, Kind)


@law
@given(headers(), headers(), st.sampled_from([field.name for field in fields(Header)]))
def test_the_label_depends_on_every_field_but_the_chunks_number(header: Header, other: Header, name: str) -> None:
    changed = replace(header, chunk=0) if name == "chunks" else header
    changed = replace(changed, **{name: getattr(other, name)})
    differs = name != "chunk" and getattr(header, name) != getattr(other, name)
    assert (changed.label() != header.label()) == differs


@law
@given(headers(), st.data())
def test_another_chunk_of_a_message_has_the_same_label(header: Header, data: st.DataObject) -> None:
    chunk = data.draw(st.integers(0, header.chunks - 1))
    assert header.at(chunk).label() == header.label()
    assert (header.at(chunk).pack() == header.pack()) == (chunk == header.chunk)


# ------------------------------------------------------------------------------------------------------------ layouts


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    rows, row_bytes = (
        draw(st.integers(0, 3000)),
        draw(st.integers(0, 5000) | st.integers(CHUNK_BYTES // 2, 2 * CHUNK_BYTES)),
    )
    sections, prefix = draw(st.integers(1, 6)), draw(st.integers(0, 9))
    return Layout(rows, row_bytes, sections, draw(st.just(0) | st.integers(1, 400)), prefix, draw(st.booleans()))


@law
@given(layouts())
@example(Layout(0, 8))
@example(Layout(0, 0, 3))
@example(Layout(1, 2 * CHUNK_BYTES))
def test_the_chunks_cover_each_row_of_each_section_exactly_once_and_in_order(layout: Layout) -> None:
    for section in range(layout.sections):
        own = [chunk for chunk in range(layout.chunks) if layout.section(chunk) == section]
        assert [layout.within(chunk) for chunk in own] == list(range(layout.section_chunks))
        covered = [row for chunk in own for row in range(layout.span(chunk).start, layout.span(chunk).stop)]
        assert covered == list(range(layout.rows))
    assert layout.chunks == layout.sections * layout.section_chunks


@law
@given(layouts())
def test_sections_come_one_after_the_other_or_interleaved(layout: Layout) -> None:
    order = [(layout.section(chunk), layout.within(chunk)) for chunk in range(layout.chunks)]
    places = [(section, within) for section in range(layout.sections) for within in range(layout.section_chunks)]
    assert order == (sorted(places, key=lambda place: place[::-1]) if layout.interleaved else places)


@law
@given(layouts())
def test_every_section_has_a_chunk_and_no_chunk_is_empty_unless_the_section_is(layout: Layout) -> None:
    assert {layout.section(chunk) for chunk in range(layout.chunks)} == set(range(layout.sections))
    sizes = [layout.span(chunk).stop - layout.span(chunk).start for chunk in range(layout.chunks)]
    assert all(size > 0 for size in sizes) if layout.rows else set(sizes) == {0}


@law
@given(layouts())
def test_a_message_travels_in_the_sum_of_its_chunks(layout: Layout) -> None:
    chunks = [HEADER_BYTES + layout.payload_bytes(chunk) + TAG_BYTES for chunk in range(layout.chunks)]
    assert sum(chunks) == layout.wire_bytes


@law
@given(st.integers(0, 3000), st.integers(1, 2 * CHUNK_BYTES), st.integers(1, 3), st.integers(0, 9))
def test_a_chunk_is_as_large_as_allowed_and_holds_whole_rows(
    rows: int, row_bytes: int, sections: int, prefix: int
) -> None:
    layout = Layout(rows, row_bytes, sections, prefix=prefix)
    bodies = [layout.payload_bytes(chunk) - prefix for chunk in range(layout.chunks)]
    assert all(body % row_bytes == 0 and (body <= CHUNK_BYTES or body == row_bytes) for body in bodies)
    full = bodies[: layout.section_chunks - 1]
    assert all(body + row_bytes > CHUNK_BYTES for body in full)


# ------------------------------------------------------------------------------------------------------ announcements


@st.composite
def announcements(draw: st.DrawFn) -> Begin:
    clients = sorted(draw(st.sets(st.integers(0, 40), max_size=12)))
    return Begin(draw(st.integers(0, 255)), tuple((n, draw(digests)) for n in clients))


@law
@given(announcements(), st.sampled_from([bytes, bytearray, memoryview]))
def test_an_announcement_comes_back_as_it_was(announcement: Begin, form: type) -> None:
    parsed = Begin.parse(form(announcement.to_bytes()), 41)
    assert parsed == announcement
    assert parsed.clients == tuple(n for n, _ in announcement.members)


@law
@given(st.binary(max_size=80) | announcements().map(Begin.to_bytes), st.integers(0, 41))
def test_any_bytes_are_an_announcement_or_a_value_error(data: bytes, clients: int) -> None:
    try:
        announcement = Begin.parse(data, clients)
    except ValueError:
        return
    assert announcement.to_bytes() == data
    assert all(n < clients for n in announcement.clients)
    assert list(announcement.clients) == sorted(set(announcement.clients))


@law
@given(announcements(), announcements())
def test_different_announcements_have_different_bytes(one: Begin, other: Begin) -> None:
    assert (one.to_bytes() == other.to_bytes()) == (one == other)


SALT = bytes(16)
WRONG = {
    "empty": b"",
    "half a member": Begin(SHARE, ((0, SALT),)).to_bytes()[:-1],
    "a byte too many": Begin(SHARE, ((0, SALT),)).to_bytes() + b"\0",
    "not in order": Begin(SHARE, ((1, SALT), (0, SALT))).to_bytes(),
    "one member twice": Begin(SHARE, ((1, SALT), (1, SALT))).to_bytes(),
    "no such client": Begin(SHARE, ((0, SALT), (3, SALT))).to_bytes(),
    "the server": Begin(SHARE, ((0, SALT), (SERVER, SALT))).to_bytes(),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_announcement_is_refused(fault: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Begin.parse(WRONG[fault], 3)
