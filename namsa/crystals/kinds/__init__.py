"""Specimens that are no perfect crystals: defects, interfaces, boundaries, surfaces and amorphous
matter.

`namsa.crystals.kinds.specimen` lists the kinds. Each takes the filled right-angled cell of a
crystal and returns atoms in the same cell.
"""
