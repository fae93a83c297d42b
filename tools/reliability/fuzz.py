"""Fuzz: land damaged and hostile files, and check that each is counted to the last record or refused in a sentence.

A case is a file of flow records in one of the formats, in a folder of an odd name, with values changed, or bytes
flipped, cut, doubled or put in. A case and its seed are one: it can be made again by its number.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import resource
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

from llmprism_tasks.contract.errors import LlmprismError
from llmprism_tasks.contract.frames import schema
from llmprism_tasks.contract.tables import FLOW_COLUMNS
from llmprism_tasks.warehouse import store
from llmprism_tasks.warehouse.connect import Warehouse, open_warehouse
from llmprism_tasks.warehouse.landing import landing
from llmprism_tasks.warehouse.landing.intake import Intake

Record = dict[str, Any]

START_NS, MINUTE_NS = 1_760_000_400_000_000_000, 60_000_000_000
ENDINGS = (".parquet", ".csv", ".jsonl", ".csv.gz", ".jsonl.zst", ".json")
FOLDERS = (".", "bytes=999", "src_addr=10.6.6.6", "malformed=true", "a b", "ü", "x" * 200, "[x]", "%41")
ODD_VALUES: tuple[object, ...] = (
    *(None, "", 0, -1, 2**63 - 1, 2**63, 2**80, 1.5, "1e400", "NaN", "x" * 10_000, "\x00", "\x1b[31m"),
    *("'; DROP TABLE flows; --", '"', ",", "\u202e", "::ffff:10.0.0.1", "10.0.0.1", "[", "[]", "{}", "a|b", "a;b"),
    *(START_NS // 10**9, START_NS // 10**6, START_NS // 10**3, "2025-10-09T09:00:00Z", 946_684_800 * 10**9, True),
)
CASES_A_WAREHOUSE = 100
"""A warehouse is made anew after so many cases: making one takes longer than most cases."""

OUTCOMES = ("landed", "refused", "miscounted", "untyped")


def measure(cases: int, *, seed: int, say: Callable[[str], None], first: int = 0) -> dict[str, Any]:
    """Land some cases; return how many had each outcome, the numbers of those that went wrong, and the memory used.

    Parameters
    ----------
    cases : how many
    first : number of the first one
    """
    counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    wrong: list[int] = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(first, first + cases):
            folder = Path(name) / str(number // CASES_A_WAREHOUSE)
            folder.mkdir(exist_ok=True)
            warehouse = open_warehouse(Warehouse(str(folder / "w.duckdb"), lock_wait_s=20))
            outcome, said = land(warehouse, folder / "flows" / str(number), seed, number)
            counts[outcome] += 1
            if outcome in ("miscounted", "untyped"):
                wrong.append(number)
                say(f"case {number}: {outcome}: {said}")
            if (number + 1 - first) % 100 == 0:
                say(f"{number + 1 - first} cases: {counts}")
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"cases": cases, "seeds": [seed], "counts": counts, "wrong": wrong, "peak_mb": peak_mb}


def is_sound(found: dict[str, Any]) -> bool:
    """Return whether every case was counted or refused in a sentence."""
    return not found["wrong"]


def sentence(found: dict[str, Any]) -> str:
    """Return what was found, in a sentence."""
    counts = ", ".join(f"{count} {outcome}" for outcome, count in found["counts"].items())
    return f"{found['cases']} cases (seeds {', '.join(map(str, found['seeds']))}): {counts}; peak {found['peak_mb']} MB"


def land(warehouse: Warehouse, folder: Path, seed: int, number: int) -> tuple[str, str]:
    """Land one case; return its outcome, and what was said."""
    chance = random.Random(f"{seed}-{number}")
    path = write_case(folder, chance)
    try:
        windows = landing.land_all(
            warehouse, str(path), length_ns=MINUTE_NS, intake=Intake(most_empty_windows=chance.choice((0, 3)))
        )
        starts = ", ".join(str(window.start_ns) for window in windows) or "NULL"
        counted = "SELECT coalesce(sum(rows_read), 0)::BIGINT, coalesce(sum(rows_landed), 0)::BIGINT, "
        counted += f"coalesce(sum(rows_quarantined), 0)::BIGINT FROM windows WHERE window_start_ns IN ({starts})"
        ((read, landed, refused),) = store.query(warehouse, counted).rows()
        rows = [
            store.query(warehouse, f"SELECT count(*) FROM {table} WHERE window_start_ns IN ({starts})").item()
            for table in ("flows", "flows_quarantine")
        ]
        held = store.query(
            warehouse,
            f"SELECT coalesce(sum(records), 0)::BIGINT FROM flow_file_windows WHERE window_start_ns IN ({starts})",
        ).item()
    except LlmprismError as error:
        return "refused", str(error)
    except Exception:  # whatever else comes is what is looked for
        return "untyped", traceback.format_exc(limit=-3)
    if read != landed + refused or rows != [landed, refused] or held != read:
        return "miscounted", f"read {read}, landed {landed}, quarantined {refused}, rows {rows}, in files {held}"
    return "landed", ""


def write_case(folder: Path, chance: random.Random) -> Path:
    """Write a file of flows as chance has it; return its path."""
    folder = folder / chance.choice(FOLDERS)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"flows{chance.choice(ENDINGS)}"
    records = [_record(chance) for _ in range(chance.choice((0, 1, 3, 40)))]
    if chance.random() < 0.6:
        for record in chance.sample(records, len(records) // 2):
            record[chance.choice(list(record))] = chance.choice(ODD_VALUES)
    content = _content(path, records, chance)
    path.write_bytes(damaged(content, chance) if chance.random() < 0.5 else content)
    return path


def _record(chance: random.Random) -> Record:
    start_ns = START_NS + chance.randrange(3 * MINUTE_NS)
    return {
        "flow_start_ns": start_ns,
        "flow_end_ns": start_ns + chance.randrange(10**6),
        "src_addr": f"10.0.0.{chance.randrange(4)}",
        "dst_addr": f"10.0.1.{chance.randrange(4)}",
        "src_port": chance.choice((None, 50_000)),
        "dst_port": 4791,
        "protocol": 17,
        "bytes": chance.randrange(1, 10**9),
        "packets": chance.choice((None, 7)),
        "switch_path": chance.choice((None, ["leaf0"], ["leaf0", "spine0", "leaf1"])),
    }


def _content(path: Path, records: list[Record], chance: random.Random) -> bytes:
    if path.suffix == ".parquet":
        return _parquet(records, chance)
    text = _csv(records, chance) if ".csv" in path.suffixes else "".join(json.dumps(one) + "\n" for one in records)
    content = text.encode("utf-8", "surrogatepass")
    if path.suffix == ".gz":
        return gzip.compress(content)
    if path.suffix == ".zst":
        return bytes(pa.Codec("zstd").compress(content, asbytes=True))
    return content


def _csv(records: list[Record], chance: random.Random) -> str:
    names = [column.name for column in FLOW_COLUMNS]
    if chance.random() < 0.2:
        names = chance.sample(names, len(names)) + chance.choice(([], ["vlan"], ["bytes"], [""]))
    lines = [",".join(names)]
    for record in records:
        fields = [record.get(name) for name in names]
        lines.append(
            ",".join("" if one is None else "|".join(one) if isinstance(one, list) else str(one) for one in fields)
        )
    return chance.choice(("\n", "\n", "\r\n", "\n\n")).join(lines) + chance.choice(("", "\n"))


def _parquet(records: list[Record], chance: random.Random) -> bytes:
    frame = pl.DataFrame(
        [record | {name: None for name, value in record.items() if not _fits(name, value)} for record in records],
        schema=schema(FLOW_COLUMNS),
    )
    if chance.random() < 0.3:
        name = chance.choice(frame.columns)
        kind: Any = chance.choice((pl.String, pl.Float64, pl.Int8, pl.Datetime("ns")))
        if frame[name].dtype == pl.String and kind == pl.Datetime("ns"):
            kind = pl.Categorical  # there is no cast of text to times
        changed = (
            frame.drop(name)
            if frame[name].dtype == pl.List
            else frame.with_columns(pl.col(name).cast(kind, strict=False))
        )
        frame = changed
    file = io.BytesIO()
    frame.write_parquet(file, row_group_size=chance.choice((None, 7)))
    return file.getvalue()


def _fits(name: str, value: object) -> bool:
    if name == "switch_path":
        return value is None or isinstance(value, list)
    if name in ("src_addr", "dst_addr"):
        return value is None or isinstance(value, str)
    limit = 2**31 if name in ("src_port", "dst_port", "protocol") else 2**63
    return value is None or (isinstance(value, int) and -limit <= value < limit)


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return the bytes of a file with one damage, as chance has it."""
    at, length = chance.randrange(len(content) + 1), chance.choice((1, 4, 100))
    odd = chance.choice((b"\x00", b"\xff", b'"', b"\n", b",", b"\x1b[2J", b"[" * 1000, b"\xed\xa0\x80", b"PAR1"))
    ways: tuple[Callable[[], bytes], ...] = (
        lambda: content[:at],
        lambda: content[at:],
        lambda: content[:at] + content[at + length :],
        lambda: content[:at] + odd + content[at:],
        lambda: content[:at] + chance.randbytes(length) + content[at + length :],
        lambda: content + content,
        lambda: b"",
    )
    return chance.choice(ways)()
