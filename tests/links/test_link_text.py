"""Link text: one spelling, strict parsing, and a checksum that tells damage from another link."""

from __future__ import annotations

import string
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qsratchet.errors import MisuseError
from qsratchet.links import Link, LinkFault, LinkKind, LinkMode, LinkRejected, ServerAddress, format_link, parse_link
from qsratchet.links.text import MAX_LINK_TEXT

from .shelf import HOSTS, LINKS, SERVER

LINK = Link(kind=LinkKind.CONTACT, mode=LinkMode.BOUND, key=bytes(range(32)), server=SERVER)
KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
TEXT = f"qsr:1cb/{KEY}/{KEY}/5223/queue.example.org/856e6a0a"
SITES = st.none() | HOSTS


def checked(text: str) -> str:
    """What a program that does not follow the format, but knows the checksum, would write."""
    return f"{text}/{crc32(text.encode()):08x}"


def fault(text: str) -> LinkFault:
    with pytest.raises(LinkRejected) as raised:
        parse_link(text)
    assert raised.value.what == "link"
    return raised.value.fault


def test_the_text_of_a_link_is_as_documented() -> None:
    assert format_link(LINK) == TEXT
    assert format_link(LINK, site="links.example.com") == checked(
        f"https://links.example.com/qsr#1cb/{KEY}/{KEY}/5223/queue.example.org"
    )


@given(LINKS, SITES)
def test_parsing_undoes_formatting_in_both_forms(link: Link, site: str | None) -> None:
    text = format_link(link, site=site)
    assert parse_link(text) == link
    assert len(text) <= MAX_LINK_TEXT


@given(LINKS, LINKS)
def test_two_links_never_share_a_text(left: Link, right: Link) -> None:
    assert (format_link(left) == format_link(right)) is (left == right)


@given(LINKS, SITES, st.data())
def test_any_change_of_one_character_is_rejected_as_damage_or_as_no_link(
    link: Link, site: str | None, data: st.DataObject
) -> None:
    text = format_link(link, site=site)
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.sampled_from(string.printable) | st.characters())
    edit = data.draw(st.sampled_from(["replace", "delete", "insert", "swap"]))
    changed = {
        "replace": text[:place] + other + text[place + 1 :],
        "delete": text[:place] + text[place + 1 :],
        "insert": text[:place] + other + text[place:],
        "swap": text[:place] + text[place : place + 2][::-1] + text[place + 2 :],
    }[edit]
    if changed != text:
        assert fault(changed) in (LinkFault.DAMAGED, LinkFault.NOT_A_LINK)


def test_every_replacement_of_every_character_of_a_link_is_rejected() -> None:
    alphabet = string.ascii_letters + string.digits + "-_.,:/#[] \n"
    for text in (TEXT, format_link(LINK, site="a.example")):
        for place in range(len(text)):
            for other in alphabet.replace(text[place], ""):
                assert fault(text[:place] + other + text[place + 1 :]) in (LinkFault.DAMAGED, LinkFault.NOT_A_LINK)


@given(LINKS, SITES, st.data())
def test_every_truncation_is_told_from_a_wrong_link(link: Link, site: str | None, data: st.DataObject) -> None:
    text = format_link(link, site=site)
    size = data.draw(st.integers(0, len(text) - 1))
    prefix = text.index("/qsr") + 4 if site is not None else 4
    assert fault(text[:size]) is (LinkFault.DAMAGED if size >= prefix else LinkFault.NOT_A_LINK)


@pytest.mark.parametrize("text", ["https://links.example.com/qsr", "https://links.example.com/qsr#", "qsr:", TEXT[:60]])
def test_a_link_that_lost_its_end_is_called_cut_short(text: str) -> None:
    with pytest.raises(LinkRejected, match="cut short; copy it again"):
        parse_link(text)


@pytest.mark.parametrize(
    "text", [f" {TEXT}", f"{TEXT}\n", TEXT.replace("/5223", "/\n5223"), TEXT + "\N{ZERO WIDTH SPACE}", TEXT.upper()]
)
def test_white_space_and_foreign_characters_are_never_skipped(text: str) -> None:
    assert fault(text) in (LinkFault.DAMAGED, LinkFault.NOT_A_LINK)


@pytest.mark.parametrize("text", ["", "hello", "https://example.org/", "http://a.example/qsr#" + TEXT[4:], "x" * 2000])
def test_other_text_is_not_a_link(text: str) -> None:
    assert fault(text) is LinkFault.NOT_A_LINK


@pytest.mark.parametrize("version", ["0", "2", "9", "a", ""])
def test_a_whole_link_of_another_format_is_unsupported_and_not_damaged(version: str) -> None:
    assert fault(checked(f"qsr:{version}cb/what/ever")) is LinkFault.UNSUPPORTED


@pytest.mark.parametrize(
    "body",
    [
        f"1cb/{KEY}/{KEY}/5223",
        f"1cb/{KEY}/{KEY}/5223/a.example/more",
        f"1c/{KEY}/{KEY}/5223/a.example",
        f"1cbb/{KEY}/{KEY}/5223/a.example",
        f"1xb/{KEY}/{KEY}/5223/a.example",
        f"1cx/{KEY}/{KEY}/5223/a.example",
        f"1bc/{KEY}/{KEY}/5223/a.example",
        f"1cb/{KEY[:-1]}/{KEY}/5223/a.example",
        f"1cb/{KEY}A/{KEY}/5223/a.example",
        f"1cb/{KEY[:-1]}9/{KEY}/5223/a.example",
        f"1cb/{KEY}/{KEY[:-1]}9/5223/a.example",
        f"1cb/{KEY}/{KEY[:-1]}./5223/a.example",
        f"1cb/{KEY}/{KEY}/0/a.example",
        f"1cb/{KEY}/{KEY}/05223/a.example",
        f"1cb/{KEY}/{KEY}/65536/a.example",
        f"1cb/{KEY}/{KEY}//a.example",
        f"1cb/{KEY}/{KEY}/-1/a.example",
        f"1cb/{KEY}/{KEY}/5223/",
        f"1cb/{KEY}/{KEY}/5223/A.example",
        f"1cb/{KEY}/{KEY}/5223/a.example,",
        f"1cb/{KEY}/{KEY}/5223/a.example,a.example",
        f"1cb/{KEY}/{KEY}/5223/a,b,c,d,e",
        f"1cb/{KEY}/{KEY}/5223/[::1]",
    ],
)
@pytest.mark.parametrize("prefix", ["qsr:", "https://a.example/qsr#"])
def test_a_whole_link_that_breaks_the_format_is_malformed(prefix: str, body: str) -> None:
    text = checked(prefix + body)
    with pytest.raises(LinkRejected) as raised:
        parse_link(text)
    assert raised.value.fault is LinkFault.MALFORMED
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "site", ["", "A.example", "[a.example]", "::1", "[::1", "[::01]", "a.example:443", "a..example"]
)
def test_a_site_has_one_spelling_too(site: str) -> None:
    assert fault(checked(f"https://{site}/qsr#1cb/{KEY}/{KEY}/5223/a.example")) is LinkFault.MALFORMED


@pytest.mark.parametrize("site", ["[::1]", "a.example", "127.0.0.1"])
def test_a_site_may_be_a_name_or_an_address(site: str) -> None:
    text = checked(f"https://{site}/qsr#1cb/{KEY}/{KEY}/5223/a.example")
    link = parse_link(text)
    assert format_link(link, site=site.strip("[]")) == text


def test_formatting_refuses_a_site_that_is_no_host() -> None:
    with pytest.raises(MisuseError, match="host name"):
        format_link(LINK, site="https://a.example")


def test_the_longest_link_is_as_long_as_the_limit_says() -> None:
    names = tuple(".".join([letter * 63, letter * 63, letter * 63, letter * 61]) for letter in "abcd")
    server = ServerAddress(hosts=names, port=65535, fingerprint=bytes(32))
    link = Link(kind=LinkKind.ONE_TIME, mode=LinkMode.DIRECT, key=bytes(32), server=server)
    text = format_link(link, site=names[0])
    assert len(text) == MAX_LINK_TEXT
    assert parse_link(text) == link
    # One character more is refused before anything is computed from it.
    with pytest.raises(LinkRejected, match=f"{MAX_LINK_TEXT + 1} characters"):
        parse_link(f"{text}0")


@given(st.text() | st.text(alphabet=string.ascii_letters + "/:#,.-_[]0123456789").map(lambda text: "qsr:" + text))
def test_no_text_raises_anything_but_this_librarys_errors(text: str) -> None:
    for attempt in (text, checked(text.encode("ascii", "replace").decode())):
        try:
            link = parse_link(attempt)
        except LinkRejected:
            continue
        assert format_link(link) == attempt


PARTS = st.sampled_from(
    ["1cb", "1id", "2cb", "", KEY, KEY[:-1], KEY[:-1] + "9", "5223", "0", "a.example", "::1", "a,b"]
)


@given(st.sampled_from(["qsr:", "https://a.example/qsr#", "https://[::1]/qsr#"]), st.lists(PARTS, max_size=7))
def test_whatever_parses_is_in_its_canonical_spelling(prefix: str, parts: list[str]) -> None:
    text = checked(prefix + "/".join(parts))
    try:
        link = parse_link(text)
    except LinkRejected:
        return
    site = None if prefix == "qsr:" else prefix.removeprefix("https://").removesuffix("/qsr#").strip("[]")
    assert format_link(link, site=site) == text


def test_a_link_prints_its_server_and_nothing_secret() -> None:
    assert repr(LINK) == "<Link bound contact at queue.example.org>"


def test_links_are_equal_when_all_of_them_is_equal() -> None:
    assert parse_link(TEXT) == LINK
    for other in (
        Link(kind=LinkKind.ONE_TIME, mode=LINK.mode, key=LINK.key, server=SERVER),
        Link(kind=LINK.kind, mode=LinkMode.DIRECT, key=LINK.key, server=SERVER),
        Link(kind=LINK.kind, mode=LINK.mode, key=bytes(32), server=SERVER),
    ):
        assert other != LINK
    assert LINK != TEXT


def test_a_link_key_has_32_bytes() -> None:
    with pytest.raises(MisuseError, match="32 bytes, not 31"):
        Link(kind=LinkKind.CONTACT, mode=LinkMode.DIRECT, key=bytes(31), server=SERVER)
