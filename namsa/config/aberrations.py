"""Names and ranges of aberration coefficients, in Krivanek's notation, and what other notations
call them.

The aberration function of Uhlemann & Haider (Ultramicroscopy 72 (1998) 109), with C1, A1, B2, ...,
R5, is ½C₁ωω̄ + ½A₁ω̄² + B₂ω²ω̄ + ⅓A₂ω̄³ + ¼C₃(ωω̄)² + S₃ω³ω̄ + ... Krivanek's is C_nm
α^(n+1)/(n+1). Magnitudes are therefore equal where the former has the factor 1/(n + 1), and
Krivanek's are n + 1 times as large where it has the factor 1.
"""

import difflib
import math

_ORDERS = tuple((n, m) for n in range(1, 6) for m in range((n + 1) % 2, n + 2, 2))
ABERRATIONS = tuple(f"C{n}{m}" for n, m in _ORDERS) + tuple(f"phi{n}{m}" for n, m in _ORDERS if m)
# Order n of an aberration Cnm, and its largest value, Å: 0.1 mm, 1 mm, 100 mm, 100 mm, 1 m.
LARGEST_ABERRATION_ANGSTROM = {1: 1e6, 2: 1e7, 3: 1e9, 4: 1e9, 5: 1e10}
LARGEST_AZIMUTH_RAD = 6.2832  # a turn, 2π, as people round it

_LONGEST_SYMBOL = 3
_DEFOCUS = "C10 = -defocus (Å; underfocus is C10 < 0)"
_SPHERICAL = "C30 (Å; 1 mm is 1e7 Å)"
_ASTIGMATISM = "C12 (Å), with its azimuth phi12 (rad)"
_COMA = "C21 = 3·B2 (Å), with its azimuth phi21 (rad)"
_CHROMATIC = "microscope.chromatic_aberration_mm with energy_spread_ev, or focal_spread_angstrom"
# Names of other notations, in small letters and without signs, and what to give in place of them.
_OTHER_NAMES = {
    **dict.fromkeys(
        ("defocus", "defocusangstrom", "underfocus", "overfocus", "df", "dz", "z"), _DEFOCUS
    ),
    "c1": "C10 (Å; -defocus)",
    **dict.fromkeys(("cs", "c3", "spherical", "sphericalaberration"), _SPHERICAL),
    **dict.fromkeys(("c5", "fifthorderspherical"), "C50 (Å; 1 mm is 1e7 Å)"),
    **dict.fromkeys(("a1", "astigmatism", "stigmatism", "twofoldastigmatism"), _ASTIGMATISM),
    **dict.fromkeys(("b2", "coma", "axialcoma"), _COMA),
    **dict.fromkeys(
        ("a2", "threefoldastigmatism", "trefoil"), "C23 (Å), with its azimuth phi23 (rad)"
    ),
    **dict.fromkeys(
        ("s3", "star", "staraberration"), "C32 = 4·S3 (Å), with its azimuth phi32 (rad)"
    ),
    **dict.fromkeys(
        ("a3", "fourfoldastigmatism", "quadrafoil"), "C34 (Å), with its azimuth phi34 (rad)"
    ),
    "b4": "C41 = 5·B4 (Å), with its azimuth phi41 (rad)",
    **dict.fromkeys(("d4", "threelobe"), "C43 = 5·D4 (Å), with its azimuth phi43 (rad)"),
    **dict.fromkeys(
        ("a4", "fivefoldastigmatism", "pentafoil"), "C45 (Å), with its azimuth phi45 (rad)"
    ),
    "s5": "C52 = 6·S5 (Å), with its azimuth phi52 (rad)",
    **dict.fromkeys(("r5", "rosette"), "C54 = 6·R5 (Å), with its azimuth phi54 (rad)"),
    **dict.fromkeys(
        ("a5", "sixfoldastigmatism", "hexafoil"), "C56 (Å), with its azimuth phi56 (rad)"
    ),
    **dict.fromkeys(("cc", "chromatic", "chromaticaberration"), _CHROMATIC),
}


def aberration_problem(name: str, value: float) -> str | None:
    """Returns what is wrong with an aberration coefficient in Krivanek's notation, Å, or rad for
    phi, if anything.
    """
    if name not in ABERRATIONS:
        known = ", ".join(ABERRATIONS)
        return f"unknown aberration {name!r}; did you mean {_advice(name)}? Known: {known}"
    unit = "rad"
    limit = LARGEST_AZIMUTH_RAD
    if not name.startswith("phi"):
        unit = "Å"
        limit = LARGEST_ABERRATION_ANGSTROM[int(name[1])]
    if not math.isfinite(value):
        return f"aberration {name} is {value}; give a finite number ({unit})"
    if abs(value) > limit:
        return f"aberration {name} is {value:g} {unit}; it must be within ±{limit:g} {unit}"
    return None


def _advice(name: str) -> str:
    """Returns what to give in place of a name that is not Krivanek's."""
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    if plain in _OTHER_NAMES:
        return _OTHER_NAMES[plain]
    words = [word for word in _OTHER_NAMES if len(word) > _LONGEST_SYMBOL]
    close = difflib.get_close_matches(plain, words, n=1, cutoff=0.8)
    if close:
        return _OTHER_NAMES[close[0]]

    def likeness(known: str) -> tuple[bool, float, int]:
        symbol = known.lower()
        ratio = difflib.SequenceMatcher(None, plain, symbol).ratio()
        return sorted(plain) == sorted(symbol), ratio, sum(map(str.__eq__, plain, symbol))

    return max(ABERRATIONS, key=likeness)
