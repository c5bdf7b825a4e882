#!/usr/bin/env python3
"""Draws terminal.svg: a session that it runs with the program given, as root or with fusermount3.

    docs/pictures/terminal.py target/release/weft
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from drawing import Page

SESSION = [
    "weft init photos.weft",
    "weft mount photos.weft files",
    "cp -a $SOURCE files/source",
    "weft digest files",
    "zstd -q server.log -o files/log.zst",
    "weft link files/log.zst files/errors -n 'zstd -d | grep ERROR'",
    "head -2 files/errors",
    "rm -r files/source && weft undelete files/source",
    "weft umount files",
    "weft check --read-data photos.weft",
    "sqlite3 photos.weft/meta.sqlite 'SELECT path, size FROM files ORDER BY size DESC LIMIT 3'",
]
COLUMNS = 92
BACKGROUND, PROMPT, TYPED, PRINTED = "#17202a", "#7fc28f", "#f2f5f8", "#b9c6d2"


def run(command, directory, program):
    """Runs a command of the session and returns the lines that it printed."""
    environment = dict(os.environ, SOURCE=str(Path(__file__).resolve().parents[2] / "examples"))
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    ran = subprocess.run(["sh", "-c", command], cwd=directory, env=environment, text=True,
                         timeout=60, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if ran.returncode:
        sys.exit(f"'{command}' failed: {ran.stdout}")
    return [line[:COLUMNS] for line in ran.stdout.splitlines()]


def main():
    program = Path(sys.argv[1]).resolve()
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "files").mkdir()
        with open(Path(directory, "server.log"), "w", encoding="utf-8") as log:
            for n in range(1440):
                said = "ERROR disk is hot" if n % 97 == 42 else "request served"
                log.write(f"{n // 60:02}:{n % 60:02} {said}\n")
        try:
            for command in SESSION:
                lines.append(("$ ", command.replace("$SOURCE", "weft/examples")))
                lines.extend(("", line) for line in run(command, directory, program))
        finally:
            if os.path.ismount(Path(directory, "files")):
                subprocess.run([program, "umount", "--lazy", Path(directory, "files")], check=False)
    page = Page(COLUMNS * 8 + 32, 20 * len(lines) + 36, "A session with Weft", BACKGROUND)
    for number, (prompt, line) in enumerate(lines):
        y = 32 + 20 * number
        if prompt:
            page.text(16, y, prompt.strip(), size=13, fill=PROMPT, mono=True, bold=True)
        x, fill = (32, TYPED) if prompt else (16, PRINTED)
        page.text(x, y, line, size=13, fill=fill, mono=True)
    page.save(Path(__file__).with_name("terminal.svg"))


if __name__ == "__main__":
    main()
