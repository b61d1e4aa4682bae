"""Writes recipes for conda-forge (recipe.yaml) and EasyBuild (namsa-VERSION.eb) beside the archives
of a release.

    scripts/wheels.sh
    uv export --locked --no-default-groups --extra reconstruct --no-emit-project \
        --format pylock.toml | python scripts/packaging/recipes.py dist

Both have the dependencies of pyproject.toml. EasyBuild's are wheels with the versions and checksums
of uv.lock.
"""

import hashlib
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from namsa.base.version import __version__

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
HOME = PROJECT["project"]["urls"].get("Source", PROJECT["project"]["urls"]["Paper"])
SUMMARY = PROJECT["project"]["description"]

# Names of packages on conda-forge that differ from those on PyPI.
CONDA = {
    "lazy-loader": "lazy_loader",
    "lmdb": "python-lmdb",
    "matplotlib": "matplotlib-base",
    "xxhash": "python-xxhash",
}
OUTPUTS = {
    "reconstruct": "networks on data, with TensorFlow",
    "jax": "networks on data, with JAX",
    "formats": "readers",
}

PYPI = "https://files.pythonhosted.org/packages/"
# The Python of EasyBuild's toolchain 2023b, and the oldest C library (Red Hat Enterprise Linux 8).
PYTHON = "3.11.5"
TOOLCHAIN = ("GCCcore", "13.2.0")
GLIBC = 28


def sha256(path: Path) -> str:
    """Returns the checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


# ---- conda-forge


def conda_requirements(listed: list[str]) -> list[str]:
    """Returns requirements of pyproject.toml as those of conda."""
    parsed = map(Requirement, listed)
    lines = []
    for requirement in parsed:
        name = CONDA.get(requirement.name, requirement.name)
        lines.append(f"{name} {requirement.specifier}".replace("==", ""))
    return sorted(lines)


def conda_recipe(source: Path) -> dict[str, Any]:
    """Returns the recipe of the simulator, and of a package without files for each extra.

    Args:
        source: The source archive.
    """
    extras = [conda_extra(extra, needed_for) for extra, needed_for in OUTPUTS.items()]
    return {
        "schema_version": 1,
        "context": {"version": __version__},
        "recipe": {"name": "namsa", "version": "${{ version }}"},
        "source": {
            "url": "https://pypi.org/packages/source/n/namsa/namsa-${{ version }}.tar.gz",
            "sha256": sha256(source),
        },
        "build": {"number": 0},
        "outputs": [conda_simulator(), *extras],
    }


def conda_about(summary: str) -> dict[str, str]:
    """Returns the facts about a package."""
    return {"homepage": HOME, "license": "MIT", "license_file": "LICENSE", "summary": summary}


def conda_simulator() -> dict[str, Any]:
    """Returns the package of the simulator."""
    project = PROJECT["project"]
    least, above = sorted(project["requires-python"].split(","), reverse=True)
    commands = [f"{name} = {place}" for name, place in project["scripts"].items()]
    return {
        "package": {"name": "namsa"},
        "build": {  # fused.c is loaded with ctypes: one package serves every Python
            "script": "${{ PYTHON }} -m pip install . -vv --no-deps --no-build-isolation",
            "python": {"version_independent": True, "entry_points": commands},
        },
        "requirements": {
            "build": [{"if": "linux", "then": ["${{ compiler('c') }}", "${{ stdlib('c') }}"]}],
            "host": ["python", "pip", *conda_requirements(PROJECT["build-system"]["requires"])],
            "run": [f"python {least},{above}", *conda_requirements(project["dependencies"])],
        },
        "tests": [
            {"python": {"imports": ["namsa", "fcdensenet"], "pip_check": True}},
            {
                "script": [
                    "namsa init first",
                    "namsa simulate first/starter.yaml --crystal first/SrTiO3.cif --out scan.h5"
                    " --set scan.shape=[8,8] --set specimen.thickness_angstrom=[8]",
                    "namsa info scan.h5",
                ]
            },
        ],
        "about": conda_about(SUMMARY),
    }


def conda_extra(extra: str, needed_for: str) -> dict[str, Any]:
    """Returns the package of an extra, which has requirements and no files."""
    requirements = conda_requirements(PROJECT["project"]["optional-dependencies"][extra])
    tried = "namsa --version" if extra == "formats" else "namsa-train models"
    return {
        "package": {"name": f"namsa-{extra}"},
        "build": {"noarch": "generic"},
        "requirements": {"run": ["namsa ==${{ version }}", *requirements]},
        "tests": [{"script": [tried]}],
        "about": conda_about(f"namsa with what it needs for {needed_for}"),
    }


# ---- EasyBuild


def ranks_of_tags() -> dict[Tag, int]:
    """Returns the tags of wheels that the toolchain's Python takes, the best first."""
    version = tuple(map(int, PYTHON.split(".")[:2]))
    platforms = []
    for minor in range(GLIBC, 4, -1):
        platforms.append(f"manylinux_2_{minor}_x86_64")
    platforms += [f"manylinux{name}_x86_64" for name in ("2014", "2010", "1")]
    tags = [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, "cp311", platforms),
    ]
    return {tag: rank for rank, tag in enumerate(tags)}


class Archive(NamedTuple):
    """A wheel or a source archive."""

    name: str  # of the package
    version: str
    folder: str  # address of its folder
    file: str
    checksum: str  # SHA-256


def extensions(lock: dict[str, Any]) -> Iterator[Archive]:
    """Yields the wheel of each dependency, or its source archive if it has none.

    Args:
        lock: A file pylock.toml.
    """
    ranks = ranks_of_tags()
    target: dict[str, Any] = dict(default_environment())
    target["python_version"] = PYTHON.rpartition(".")[0]
    target["python_full_version"] = PYTHON
    target["sys_platform"] = "linux"
    target["platform_system"] = "Linux"
    target["platform_machine"] = "x86_64"
    for package in lock["packages"]:
        if "marker" in package and not Marker(package["marker"]).evaluate(target):
            continue
        wheels = []
        for wheel in package.get("wheels", ()):
            for tag in parse_wheel_filename(wheel["url"].rpartition("/")[2])[3]:
                if tag in ranks:
                    wheels.append((ranks[tag], wheel))
        archive = min(wheels, key=lambda wheel: wheel[0])[1] if wheels else package["sdist"]
        folder, _, file = archive["url"].rpartition("/")
        checksum = archive["hashes"]["sha256"]
        yield Archive(package["name"], package["version"], folder, file, checksum)


def extension_lines(archive: Archive) -> list[str]:
    """Returns the lines of a dependency in an easyconfig."""
    lines = [f"    ('{archive.name}', '{archive.version}', {{"]
    if archive.name == "namsa":
        lines.append("        'modulename': 'namsa',")
    urls = ""
    if archive.folder:
        urls = f"local_pypi + '{archive.folder.removeprefix(PYPI)}'"
    file = f"'{archive.file[:80]}'"  # style: 120 columns
    if archive.file[80:]:
        file += f"\n                    '{archive.file[80:]}'"
    return [
        *lines,
        f"        'source_urls': [{urls}],",
        f"        'sources': [{file}],",
        f"        'checksums': ['{archive.checksum}'],",
        "    }),",
    ]


def easyconfig(lock: dict[str, Any], wheel: Path) -> str:
    """Returns the easyconfig of the wheel for x86-64 and all that it needs."""
    lines = [
        "easyblock = 'PythonBundle'",
        "",
        f"name = 'namsa'\nversion = '{__version__}'",
        "",
        f"homepage = '{HOME}'",
        f'description = """\n{SUMMARY.replace(": ", ":" + chr(10))}.\n"""',
        "",
        "toolchain = SYSTEM",
        "",
        f"dependencies = [('Python', '{PYTHON}', '', {TOOLCHAIN})]",
        "",
        f"local_pypi = '{PYPI}'",
        "# The import of namsa and the commands below are checked. The wheel of namsa is beside "
        "this file.",
        "# PythonPackage takes the wheel, where NumPy and others have a block of their own that "
        "compiles.",
        "exts_default_options = {'easyblock': 'PythonPackage', 'modulename': False, "
        "'source_tmpl': None}",
        "exts_list = [",
    ]
    wheels_first = sorted(extensions(lock), key=lambda archive: not archive.file.endswith(".whl"))
    namsa_archive = Archive("namsa", __version__, "", wheel.name, sha256(wheel))
    for archive in [*wheels_first, namsa_archive]:
        lines += extension_lines(archive)
    lines += [
        "]",
        "",
        "sanity_check_paths = {",
        "    'files': ['bin/namsa', 'bin/namsa-train'],",
        "    'dirs': ['lib/python%(pyshortver)s/site-packages/namsa'],",
        "}",
        "",
        "sanity_check_commands = ['namsa --version', 'namsa-train models']",
        "",
        "moduleclass = 'phys'",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Writes both recipes into the folder of the archives."""
    folder = Path(sys.argv[1])
    recipe = yaml.safe_dump(
        conda_recipe(folder / f"namsa-{__version__}.tar.gz"), sort_keys=False, width=120
    )
    (folder / "recipe.yaml").write_text(recipe, encoding="utf-8")
    (wheel,) = folder.glob("namsa-*-manylinux*_x86_64.whl")
    lock = tomllib.loads(sys.stdin.read())
    (folder / f"namsa-{__version__}.eb").write_text(easyconfig(lock, wheel), encoding="utf-8")


if __name__ == "__main__":
    main()
