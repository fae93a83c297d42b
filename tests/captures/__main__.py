"""Capture real training: `python tests/captures --python TORCH_PYTHON --out FOLDER [SCENARIO ...]`, as root.

With `--drawn SEED ...`, what these seeds draw, each into a folder named for its seed.
"""

from __future__ import annotations

import argparse
import csv
import logging
import shutil
import sys
from pathlib import Path

import capture
import cluster
import drawn
import polars as pl
import records
import truth
from setups import SCENARIOS

IDLE_MS = {"flows": 5, "flows_coarse": 20}
"""Idle timeouts, milliseconds: the one that turns most messages into one record each, and a collector's usual one."""

ZSTD_LEVEL = 19


def main(arguments: list[str]) -> None:
    """Capture each scenario into a folder of its name."""
    parser = argparse.ArgumentParser(prog="python tests/captures", description=__doc__)
    parser.add_argument("--python", help="an interpreter that has PyTorch 2.13")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--keep-packets", action="store_true", help="keep the pcap files")
    parser.add_argument("--again", action="store_true", help="make tables of packets that were kept; capture nothing")
    parser.add_argument("--truth", type=Path, nargs="+", metavar="FOLDER", help="make the truth of captures anew")
    parser.add_argument("--drawn", type=int, nargs="+", metavar="SEED", help="capture what these seeds draw")
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], help="all, by default")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    for folder in options.truth or []:
        truth.write(truth.tables(folder / "logs", pl.read_parquet(folder / "flows.parquet")), folder / "truth")
    if options.truth:
        return
    if not (options.python and options.out):
        parser.error("--python and --out are needed to capture")
    if options.drawn:
        scenarios = {str(seed): drawn.draw(seed) for seed in options.drawn}
        for seed in options.drawn:
            logging.info("%d: %s", seed, drawn.words(seed))
    else:
        scenarios = {name: SCENARIOS[name] for name in options.scenarios or SCENARIOS}
    for name, scenario in scenarios.items():
        folder = options.out / name
        if not options.again:
            shutil.rmtree(folder, ignore_errors=True)
            capture.run(scenario, folder, options.python)
        tell(folder)
        if not options.keep_packets:
            shutil.rmtree(folder / "capture")


def tell(folder: Path) -> None:
    """Turn a capture's packets and logs into flow records, topology and truth."""
    sightings = {switch: records.read_packets(folder / "capture" / f"{switch}.pcap") for switch in cluster.SWITCHES}
    for name, idle_ms in IDLE_MS.items():
        flows = records.cut(sightings, idle_ms * 1_000_000)
        flows.write_parquet(folder / f"{name}.parquet", compression="zstd", compression_level=ZSTD_LEVEL)
        logging.info("%s: %s, %d records", folder.name, name, flows.height)
        if name == "flows":
            truth.write(truth.tables(folder / "logs", flows), folder / "truth")
    with (folder / "topology.csv").open("w") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["addr", "host", "gpu", "leaf_switch"])
        rows.writerows([node.addr, node.host, node.gpu, node.switch] for node in cluster.NICS)


if __name__ == "__main__":
    main(sys.argv[1:])
