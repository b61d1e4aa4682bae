"""Words about held-out materials: whether training saw them, and which were learnt before it."""

from namsa.base.text import plural

from ..measure.results import RunFacts

MOST_NAMED = 12  # materials


def unseen(run: RunFacts) -> str:
    """Returns how materials of the dev and test splits are described: "that training never saw".

    Args:
        run: Facts of a run, as of `train.measure.results.RunFacts`.
    """
    facts = run.get("held_out")
    if facts and facts["learnt_known"]:
        return "that training never saw"
    return "held out of the last training"


def held_out_words(run: RunFacts) -> str:
    """Returns what is known of whether held-out materials were learnt, as a sentence without its
    end.
    """
    facts = run.get("held_out")
    if not facts:
        return "whether trainings before the last one learnt them is not known"
    words = []
    names = facts["left_out"]
    if names:
        dots = ", ..." if len(names) > MOST_NAMED else ""
        verb = "was" if len(names) == 1 else "were"
        words.append(
            f"{plural(len(names), 'material')} {verb} learnt in a training before the last one, "
            f"and left out: {', '.join(names[:MOST_NAMED])}{dots}"
        )
    if not facts["learnt_known"]:
        words.append("whether trainings before the last one learnt others is not known")
    return "; ".join(words) or "none was learnt, in the last training or before it"
