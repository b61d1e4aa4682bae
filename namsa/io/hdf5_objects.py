"""The objects of an HDF5 file and of files beside it, by their paths, for `namsa.io.hdf5_process`.

Links are followed here, never by the library: soft ones in the file, external ones to files beside
it, as detectors write them, and no other.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py

from namsa.io.confined_process import Changed, Refused
from namsa.io.hdf5_values import encoded, path_parts

LINKS_FOLLOWED = 16  # in one name; more are a circle
FILES = 10_000  # that external links lead to
NAME_PARTS = 64


class Hdf5Objects:
    """An open HDF5 file and the files beside it that its external links lead to.

    The path of an object in a file beside it begins with that file's name and a colon:
    "data_1.h5:/entry/data".

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self._folder = os.path.dirname(os.path.realpath(path))
        try:
            self._file = h5py.File(path, "r")
        except OSError:
            if not h5py.is_hdf5(path) or _is_closed(path):
                raise
            # Another program is writing it, so that it can be read while it grows.
            self._file = h5py.File(path, "r", swmr=True)
        self._others: dict[str, h5py.File] = {}
        self._sizes = {"": _size(self._file)}  # bytes of each file as it was opened

    def close(self) -> None:
        """Closes the file and those beside it."""
        for file in (self._file, *self._others.values()):
            file.close()

    def check_sizes(self) -> None:
        """Raises Changed if a file is shorter than when it was opened: HDF5 reads zeros then."""
        for name, size in self._sizes.items():
            file = self._others[name] if name else self._file
            if _size(file) < size:
                place = f"{name}: " if name else ""
                raise Changed(f"{place}it has become shorter since it was opened")

    def leads_nowhere(self, path: str, name: str) -> bool:
        """Returns whether a name in a group is an external link to a file beside the first one that
        does not exist.
        """
        group = self._group(path)  # whose links end with it
        links = group.id.links
        if not links.exists(encoded(name)):
            return False
        if links.get_info(encoded(name)).type != h5py.h5l.TYPE_EXTERNAL:
            return False
        target = links.get_val(encoded(name))[0].decode(errors="replace")
        if target != os.path.basename(target):
            return False
        return not os.path.lexists(os.path.join(self._folder, target))

    def _resolve(self, name: str) -> str | None:
        """Returns the path of an object without links; `None` if there is no such object."""
        file, inner = self._split(name)
        pending = list(reversed(path_parts(inner)))
        path = file and f"{file}:"
        links = 0
        while pending:
            name_of_link = pending.pop()
            group = self._open(path or "/")
            if not isinstance(group, h5py.h5g.GroupID) or not group.links.exists(
                encoded(name_of_link)
            ):
                return None
            kind = group.links.get_info(encoded(name_of_link)).type
            if kind == h5py.h5l.TYPE_HARD:
                path = f"{path}/{name_of_link}"
            elif kind == h5py.h5l.TYPE_SOFT:
                links += 1
                target = group.links.get_val(encoded(name_of_link)).decode(errors="replace")
                if target.startswith("/"):
                    file = self._split(path)[0]
                    path = file and f"{file}:"
                pending += reversed(path_parts(target))
            elif kind == h5py.h5l.TYPE_EXTERNAL:
                links += 1
                stored_file, stored_target = group.links.get_val(encoded(name_of_link))
                file = stored_file.decode(errors="replace")
                self._open_beside(file, f"{path}/{name_of_link}")
                path = f"{file}:"
                pending += reversed(path_parts(stored_target.decode(errors="replace")))
            else:
                raise Refused(
                    f"{path}/{name_of_link} is a link of an unknown kind, which is not followed"
                )
            if links > LINKS_FOLLOWED or path.count("/") + len(pending) > NAME_PARTS:
                raise Refused(
                    f"{name} leads through more than {LINKS_FOLLOWED} links, perhaps in a circle"
                )
        return path or "/"

    def _open_beside(self, name: str, link: str) -> None:
        """Opens the file that an external link leads to; it lies beside the first one, and is a
        regular file.
        """
        path = os.path.realpath(os.path.join(self._folder, name))
        is_beside = name == os.path.basename(name) and os.path.dirname(path) == self._folder
        if not is_beside or not os.path.isfile(path):
            raise Refused(
                f"{link} is an external link to {name}, which is no file beside it: copy that file "
                "there, or name it"
            )
        if name in self._others:
            return
        if len(self._others) >= FILES:
            raise Refused(f"its external links lead to more than {FILES} files")
        with self._may_open():
            self._others[name] = h5py.File(path, "r")
        self._sizes[name] = _size(self._others[name])

    @contextmanager
    def _may_open(self) -> Iterator[None]:
        """Lets the process open files, if something keeps it from that. No data are read
        meanwhile.
        """
        yield

    def _open(self, path: str) -> Any:
        """Opens the object at a path without links."""
        file, inner = self._split(path)
        opened = self._others[file] if file else self._file
        return h5py.h5o.open(opened.id, encoded(inner))

    def _split(self, path: str) -> tuple[str, str]:
        """Returns the name of the file beside the first one, empty for the first one itself, and
        the path in it.
        """
        file, _, inner = f"{path}/".partition(":/")
        if file not in self._others:
            return "", path
        return file, f"/{inner.rstrip('/')}"

    def _object(self, path: str) -> Any:
        """Returns the group or the dataset at a path without links."""
        file, inner = self._split(path)
        opened = self._others[file] if file else self._file
        return opened[inner]

    def _group(self, path: str) -> h5py.Group:
        """Returns a group by its path without links."""
        group = self._object(path)
        if not isinstance(group, h5py.Group):
            raise Refused(f"{path} is no group")
        return group


def _size(file: h5py.File) -> int:
    """Returns the bytes of an open file."""
    return os.fstat(file.id.get_vfd_handle()).st_size


def _is_closed(path: str) -> bool:
    """Returns whether the file's first bytes say that its writer has closed it, so that it does not
    grow.
    """
    with open(path, "rb") as file:
        # signature, version of the superblock, two sizes, flags (version 3: of the writer)
        start = file.read(12)
    return start[:8] == b"\x89HDF\r\n\x1a\n" and (start[8] < 3 or not start[11])
