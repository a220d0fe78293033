"""Shell completion as a shell asks for it: the printed script, loaded by a real bash, and the question itself."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """\
store: ${NOWHERE_SET}
pipelines:
  shop:
    source: {type: postgres, url: "postgresql://no-such-host/x"}
    sink: {type: files, directory: out}
    streams:
      orders: {cursor: updated_at, tiebreaker: id}
      order_items: {}
      customers:
  export:
    source: {type: lake}
    sink: {type: files, directory: export}
    streams: {orders_log: {}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file whose variables are not set, with a source that nobody can reach; and `penstock` in the path."""
    (tmp_path / "shop.yaml").write_text(FILE)
    binary = tmp_path / "bin"
    binary.mkdir()
    (binary / "penstock").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m penstock "$@"\n')
    (binary / "penstock").chmod(0o755)
    return tmp_path


def ask(folder: Path, *words: str) -> list[str]:
    """What a real bash offers for the last of these words."""
    script = f"""
source <(penstock completion bash)
[[ "$(complete -p penstock)" == *_penstock_completion* ]] || exit 9
COMP_WORDS=({" ".join(shlex.quote(word) for word in ("penstock", *words))})
COMP_CWORD={len(words)}
_penstock_completion penstock
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["sta"], ["status", "state"]),
        (["state", "u"], ["undo"]),
        (["run", "shop.yaml", "--max"], ["--max-rows"]),
        (["run", "shop.yaml", ""], ["shop", "export"]),
        (["run", "shop.yaml", "shop", ""], ["export"]),
        (["run", "shop.yaml", "--stream", "order"], ["orders", "order_items", "orders_log"]),
        (["run", "shop.yaml", "export", "--stream", ""], ["orders_log"]),
        (["run", "shop.yaml", "shop", "-s", "orders", "-s", "o"], ["order_items"]),
        (["state", "undo", "shop.yaml", "--pipeline", ""], ["shop", "export"]),
        (["state", "reset", "shop.yaml", "--pipeline", "shop", "--stream", "c"], ["customers"]),
        (["state", "history", "shop.yaml", "-p", "shop", "-s", ""], ["orders", "order_items", "customers"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        # The rest is the shell's: without an answer of ours it offers files.
        (["run", "sh"], []),
        (["run", "none.yaml", ""], []),
    ],
)
def test_bash_is_offered(folder: Path, words: list[str], offered: list[str]) -> None:
    assert ask(folder, *words) == offered


@pytest.mark.parametrize(
    "text", ["", "- a list", "pipelines: {shop: [", "pipelines: 5", "pipelines: {shop: 5}", "\x00\xff"]
)
def test_a_file_that_is_not_right_offers_nothing_and_says_nothing(folder: Path, text: str) -> None:
    (folder / "shop.yaml").write_bytes(text.encode("latin-1"))
    assert ask(folder, "run", "shop.yaml", "--stream", "") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_ask_in_their_own_way(folder: Path, shell: str) -> None:
    def penstock(*words: str, **environment: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "penstock", *words],
            cwd=folder,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        ).stdout

    assert f"_PENSTOCK_COMPLETE=complete_{shell}" in penstock("completion", shell)
    answer = penstock(
        _PENSTOCK_COMPLETE=f"complete_{shell}",
        _TYPER_COMPLETE_ARGS="penstock run shop.yaml --stream order_",
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert "order_items" in answer
    assert "customers" not in answer


def test_a_shell_that_is_not_known(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "completion", "tcsh"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr
