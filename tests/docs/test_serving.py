"""The services of the tutorial, in real processes that are killed."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, needs_jit

PAGE = (ROOT / "docs/tutorials/serve.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r'^```python title="(\w+\.py)"\n(.*?)^```', PAGE, re.M | re.S))
INTENTS = {"light": "switch the lamp {} on", "music": "play song number {}", "timer": "set a timer for {} minutes"}


@contextmanager
def running(script: str, *arguments: Any, folder: Path) -> Iterator[Any]:
    """Run a script of the page in a process of its own, which is killed at the end."""
    path = folder / script
    path.write_text(SCRIPTS[script], encoding="utf-8")
    command = [sys.executable, str(path), *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def port_of(process: Any) -> int:
    line = process.stdout.readline()
    assert "listening on port" in line
    return int(line.split()[-1])


def call(port: int, path: str, **arguments: Any) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{path}", json.dumps(arguments).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read())


def test_the_page_has_both_scripts():
    assert set(SCRIPTS) == {"service.py", "reader.py"}


@needs_jit
def test_a_service_survives_being_killed_and_forgets_a_customer(tmp_path: Path):
    folder = tmp_path / "intents"
    with running("service.py", folder, 0, folder=tmp_path) as process:
        port = port_of(process)
        for customer in ("ann", "bob"):
            for intent in ("light", "music"):
                texts = [INTENTS[intent].format(i) for i in range(3)]
                assert len(call(port, "learn", texts=texts, intents=[intent] * 3, customer=customer)["ids"]) == 3
        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(call, port, "ask", text="play another song") for _ in range(20)]
            call(port, "learn", texts=[INTENTS["timer"].format("ten")], intents=["timer"], customer="eve")
            assert {answer.result()["intents"][0] for answer in asked} == {"music"}
        with pytest.raises(urllib.error.HTTPError, match="400") as refusal:
            call(port, "learn", texts=["two"], intents=["a", "b"], customer="eve")
        refusal.value.close()
        before = call(port, "ask", text="a timer for five minutes")
        assert before["intents"][0] == "timer"
    with running("service.py", folder, 0, folder=tmp_path) as process:
        port = port_of(process)
        again = call(port, "ask", text="a timer for five minutes")
        assert again["intents"] == before["intents"]
        assert again["probabilities"] == pytest.approx(before["probabilities"], abs=1e-6)
        assert call(port, "forget", customer="eve") == {"forgotten": 1}
        assert "timer" not in call(port, "ask", text="a timer for five minutes")["intents"]
        assert call(port, "forget", customer="eve") == {"forgotten": 0}


@needs_jit
def test_a_reader_follows_the_writer(tmp_path: Path):
    folder = tmp_path / "intents"
    with running("service.py", folder, 0, folder=tmp_path) as service:
        port = port_of(service)
        call(port, "learn", texts=["lamp on", "play jazz"], intents=["light", "music"], customer="ann")
        with running("reader.py", folder, 0.2, folder=tmp_path) as reader:

            def ask() -> str:
                reader.stdin.write("a timer please\n")
                reader.stdin.flush()
                return reader.stdout.readline().strip()

            assert ask() in ("light", "music")
            call(port, "learn", texts=["set a timer", "timer please"], intents=["timer"] * 2, customer="ann")
            assert any(ask() == "timer" for _ in range(100_000))
