"""Metrics as an operator receives them: Airflow is set to StatsD, and nothing else was installed for it."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path


def test_metrics_reach_statsd(project: Path) -> None:
    """Before, Airflow lacked the library, said so in a log line at each task, and sent no metric."""
    script = "import llmprism_run; llmprism_run.send_metrics(gauges={'lag_s': 61.5}, counts={'records_landed': 7})"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.setblocking(False)  # what was sent is there once the sender has ended
        on = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(sink.getsockname()[1])}
        variables = {f"AIRFLOW__METRICS__{name}": value for name, value in on.items()}
        subprocess.run([sys.executable, "-c", script], cwd=project / "dags", env=os.environ | variables, check=True)
        received = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                received.add(sink.recv(1_024).decode())
    assert received >= {"airflow.llmprism.lag_s:61.5|g", "airflow.llmprism.records_landed:7|c"}
