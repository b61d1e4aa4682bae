"""The blocks of a page of the documentation, and how their commands run in a folder of their own.

Indented lines are commands of bash. Fenced blocks name their language; a first line `# NAME.yaml`
or `# NAME.py` makes the block that file. `scripts/uv` and the programs that a page names are
stand-ins (`guide_command`), which record each command, and run it where the test says so.

    python tests/support/guides.py FOLDER PAGE ...      runs pages as they are, with a wheel that is installed
"""  # noqa: E501

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from namsa.base.installation import as_installed

ROOT = Path(__file__).parents[2]
COMMAND = Path(__file__).with_name("guide_command")
# Programs of namsa, and those that are recorded alone.
PROGRAMS = (
    "namsa",
    "namsa-train",
    "python",
    "horovodrun",
    "jsrun",
    "pip",
    "conda",
    "sbatch",
    "bsub",
    "pytest",
)
PARTS = (
    "docs",
    "tests",
    "train",
    "namsa",
    "README.md",
    "pyproject.toml",
)  # of a checkout, for its commands
ASSIGNMENT = re.compile(
    r'^[A-Z]+=(?:"[^"]*"|\S+)$', re.MULTILINE
)  # of a variable that later blocks use
FILE_LINE = re.compile(r"# ([\w.-]+\.(?:yaml|py))(?: .*)?\n")


class Block(NamedTuple):
    """A block of a page: its first line, its language, which is `bash` if the block is indented,
    and its text.
    """

    line: int
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The name of the file that the block is, if it is one."""
        named = FILE_LINE.match(self.text)
        return named and named[1]


def blocks(page: Path) -> list[Block]:
    """Returns the blocks of a page in their order; those of bash with the variables of the blocks
    before.
    """
    listed: list[Block] = []
    variables: list[str] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    index = 0
    while index < len(lines):
        fence = re.match(r"```(?:\{?([\w-]*)\}?.*)$", lines[index])
        if fence:
            end = lines.index("```", index + 1)
            listed.append(Block(index + 2, fence[1], "\n".join(lines[index + 1 : end]) + "\n"))
        elif lines[index].startswith("    ") and not (index and lines[index - 1].strip()):
            end = index
            while end < len(lines) and (lines[end].startswith("    ") or not lines[end]):
                end += 1
            text = "\n".join(line[4:] for line in lines[index:end]).rstrip() + "\n"
            listed.append(Block(index + 1, "bash", "\n".join([*variables, text])))
            variables += ASSIGNMENT.findall(text)
            end -= 1
        else:
            end = index
        index = end + 1
    return listed


def lay_out(folder: Path) -> None:
    """Makes a folder what a fresh checkout is to commands: its files, and stand-ins for its
    programs.
    """
    programs = folder / ".programs"
    conda = folder / "ENV" / "bin"
    for place, names in ((programs, PROGRAMS), (conda, ("python", "conda-pack"))):
        place.mkdir(parents=True)
        for name in names:
            (place / name).symlink_to(COMMAND)
    shutil.copytree(ROOT / "configs", folder / "configs")  # where a command writes
    for name in PARTS:
        (folder / name).symlink_to(ROOT / name)
    for path in [*(ROOT / "scripts").glob("*"), ROOT / ".ci" / "run"]:
        place = folder / path.relative_to(ROOT)
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(path if path.is_dir() or path.suffix == ".py" else COMMAND)


def bash(text: str, folder: Path, settings: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs the commands of a block in a folder that `lay_out` has made.

    Args:
        text: The commands.
        folder: Where they run.
        settings: Variables of `guide_command`.
    """
    programs = folder / ".programs"
    places = {"PATH": f"{programs}:{os.environ['PATH']}", "GUIDE_PROGRAMS": str(programs)}
    environment = {**os.environ, **places, **settings}
    # A stand-in that is sourced would end the block.
    line = ["bash", "-euc", f'source() {{ bash "$@"; }}\n{text}']
    return subprocess.run(
        line, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def recorded(log: Path) -> list[list[str]]:
    """Returns the words of each command that stand-ins have recorded."""
    records = log.read_bytes().decode().split("\x1e")[:-1] if log.exists() else []
    return [record.split("\x1f")[:-1] for record in records]


def main(folder: Path, pages: list[Path]) -> None:
    """Runs the blocks of pages with what is installed; the first failure ends it."""
    for page in pages:
        for block in blocks(page):
            line = {
                "bash": ["bash", "-euc", as_installed(block.text)],
                "python": [sys.executable, "-c", block.text],
            }
            if block.language in line:
                print(f"{page}:{block.line}\n{block.text}", flush=True)
                subprocess.run(line[block.language], cwd=folder, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [*map(Path, sys.argv[2:])])
