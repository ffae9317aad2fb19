"""The tables of an audit: what goes in and what comes out, as named constants.

Whoever writes an export needs only this page.  Column names and types are fixed; further columns in an input are
ignored.  No table but `GRANTS` holds a secret, and no table but `MESSAGES` holds plaintext.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

__all__ = ["CHECKPOINTS", "EXPORT", "EXPORT_COPIES", "FINDINGS", "GRANTS", "HEADS", "MESSAGES", "SUMMARY", "TOTAL"]


def arrow(schema: StructType) -> pa.Schema:
    """The same columns as Arrow has them."""
    return to_arrow_schema(schema)


_QUEUE: Final = [StructField("service_id", BinaryType()), StructField("queue_id", BinaryType())]

#: One row for each stored frame.  `seq` is the number under which the storage has the frame; the frame's header has its
#: own, authenticated one, and the audit compares them.  An export that is sorted by service_id, queue_id, seq within
#: each file, with no queue in two files save where one ends and the next begins, is *clustered*: it needs no shuffle.
EXPORT: Final = StructType([*_QUEUE, StructField("seq", LongType()), StructField("frame", BinaryType())])

#: Copies of header fields that an export may have beside `EXPORT`.  With them, a filter on them reaches the Parquet
#: reader.  They are claims: the audit itself reads the frame.  `type` is INIT, DATA, UPDATE or HEAD.
EXPORT_COPIES: Final = StructType([StructField("epoch", LongType()), StructField("type", StringType())])

#: The service's answers to the auditor's nonces: they show whether the end of a queue was cut off.
HEADS: Final = StructType([*_QUEUE, StructField("nonce", BinaryType()), StructField("head", BinaryType())])

#: Epoch grants, each as `Grant.encode()` gives it: **secret**.  The other columns repeat what is in the grant.
GRANTS: Final = StructType(
    [
        *_QUEUE,
        StructField("epoch", LongType()),
        StructField("first_seq", LongType()),
        StructField("grant", BinaryType()),
    ]
)

#: One row for each row of the export: **plaintext**.  `verdict` is what the grants say of this row alone: `ok`, or the
#: kind of a finding.  What rows say of each other is in `FINDINGS` only: a frame that is there twice is `ok` twice, and
#: so are the two of a fork.  `body` is null where there is no message: in INIT and UPDATE frames, and where a frame did
#: not open.  `epoch` and `type` are from the frame's header, null if it has none that can be read.
MESSAGES: Final = StructType(
    [
        *_QUEUE,
        StructField("seq", LongType()),
        StructField("epoch", LongType()),
        StructField("type", StringType()),
        StructField("verdict", StringType()),
        StructField("body", BinaryType()),
    ]
)

#: What is wrong, one row each.  `seq` is the number concerned, or the first of several up to `last_seq`.
FINDINGS: Final = StructType(
    [
        *_QUEUE,
        StructField("seq", LongType()),
        StructField("last_seq", LongType()),
        StructField("epoch", LongType()),
        StructField("kind", StringType()),
        StructField("sentence", StringType()),
    ]
)

_COUNTS: Final = [
    StructField("frames", LongType()),
    StructField("messages", LongType()),
    StructField("bytes", LongType()),
    StructField("epochs", LongType()),
]

#: One row for each queue.  `frames` and `bytes` count everything that the export has under the queue, `messages` the
#: DATA frames that opened, `epochs` the epochs of which frames opened.  `findings` counts findings by kind.  `head` is
#: true if an authentic head confirmed the end of the queue, false if a head was refused, null if there was none.
#: `verified` means that every frame opened and there is no finding; the end is verified only if `head` is true.
SUMMARY: Final = StructType(
    [
        *_QUEUE,
        *_COUNTS,
        StructField("first_seq", LongType()),
        StructField("last_seq", LongType()),
        StructField("findings", MapType(StringType(), LongType())),
        StructField("head", BooleanType()),
        StructField("verified", BooleanType()),
    ]
)

#: The summary in one row.
TOTAL: Final = StructType(
    [
        StructField("queues", LongType()),
        StructField("verified_queues", LongType()),
        *_COUNTS,
        StructField("findings", MapType(StringType(), LongType())),
        StructField("verified", BooleanType()),
    ]
)

#: Where an audit ended, one row for each queue: the next goes on from there.  Nothing in it is secret.  It repeats
#: the summary; `state` is for the next audit: a line of JSON with numbers, and digests of the last frame.
CHECKPOINTS: Final = StructType([*SUMMARY.fields, StructField("state", BinaryType())])
