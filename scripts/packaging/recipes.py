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
from typing import Any

import yaml
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.tags import compatible_tags, cpython_tags
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
    least, above = sorted(PROJECT["project"]["requires-python"].split(","), reverse=True)
    about = {"homepage": HOME, "license": "MIT", "license_file": "LICENSE", "summary": SUMMARY}
    simulator = {
        "package": {"name": "namsa"},
        "build": {  # fused.c is loaded with ctypes: one package serves every Python
            "script": "${{ PYTHON }} -m pip install . -vv --no-deps --no-build-isolation",
            "python": {
                "version_independent": True,
                "entry_points": [
                    f"{name} = {place}" for name, place in PROJECT["project"]["scripts"].items()
                ],
            },
        },
        "requirements": {
            "build": [{"if": "linux", "then": ["${{ compiler('c') }}", "${{ stdlib('c') }}"]}],
            "host": ["python", "pip", *conda_requirements(PROJECT["build-system"]["requires"])],
            "run": [
                f"python {least},{above}",
                *conda_requirements(PROJECT["project"]["dependencies"]),
            ],
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
        "about": about,
    }
    extras = []
    for extra, what in OUTPUTS.items():
        extras.append(
            {
                "package": {"name": f"namsa-{extra}"},
                "build": {"noarch": "generic"},
                "requirements": {
                    "run": [
                        "namsa ==${{ version }}",
                        *conda_requirements(PROJECT["project"]["optional-dependencies"][extra]),
                    ]
                },
                "tests": [
                    {"script": ["namsa-train models" if extra != "formats" else "namsa --version"]}
                ],
                "about": about | {"summary": f"namsa with what it needs for {what}"},
            }
        )
    return {
        "schema_version": 1,
        "context": {"version": __version__},
        "recipe": {"name": "namsa", "version": "${{ version }}"},
        "source": {
            "url": "https://pypi.org/packages/source/n/namsa/namsa-${{ version }}.tar.gz",
            "sha256": sha256(source),
        },
        "build": {"number": 0},
        "outputs": [simulator, *extras],
    }


# ---- EasyBuild


def ranks_of_tags() -> dict[Any, int]:
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


def extensions(lock: dict[str, Any]) -> Iterator[tuple[str, str, str, str, str]]:
    """Yields name, version, folder, file and checksum of each dependency's wheel, or source archive
    if it has none.

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
        yield package["name"], package["version"], folder, file, archive["hashes"]["sha256"]


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
    archives = [
        *sorted(extensions(lock), key=lambda wheel: not wheel[3].endswith(".whl")),
        ("namsa", __version__, "", wheel.name, sha256(wheel)),
    ]
    for name, version, folder, file, checksum in archives:
        lines += [f"    ('{name}', '{version}', {{"]
        lines += ["        'modulename': 'namsa',"] if name == "namsa" else []
        urls = f"local_pypi + '{folder.removeprefix(PYPI)}'" if folder else ""
        lines += [f"        'source_urls': [{urls}],"]
        halves = f"'{file[:80]}'" + (
            f"\n                    '{file[80:]}'" if file[80:] else ""
        )  # style: 120 columns
        lines += [
            f"        'sources': [{halves}],",
            f"        'checksums': ['{checksum}'],",
            "    }),",
        ]
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
