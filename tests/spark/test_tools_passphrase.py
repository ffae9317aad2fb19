"""A key from a passphrase."""

from __future__ import annotations

import pytest

from qsratchet import MisuseError
from qsratchet.crypto.passphrase import DEFAULT_COST, ScryptCost, stretch


def test_stretch_gives_what_rfc_7914_says() -> None:
    expected = "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2"
    assert stretch(b"pleaseletmein", b"SodiumChloride", ScryptCost(log_n=14, r=8, p=1)).hex() == expected


@pytest.mark.parametrize(
    ("log_n", "r", "p"), [(13, 8, 1), (21, 8, 1), (17, 7, 1), (17, 33, 1), (17, 8, 0), (17, 8, 5), (20, 16, 1)]
)
def test_costs_that_a_stored_file_may_not_ask_for_are_refused(log_n: int, r: int, p: int) -> None:
    with pytest.raises(MisuseError, match="outside what is allowed"):
        ScryptCost(log_n=log_n, r=r, p=p)


def test_the_default_costs_128_mebibytes_a_guess() -> None:
    assert DEFAULT_COST.memory == 128 << 20
