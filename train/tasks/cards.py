"""The model cards of the tasks other than the density, whose card is `train.reports.card`."""

from namsa.errors import InputError

from . import class_card, embed_card, segment_card
from .task_card import TaskCard

CARDS: dict[str, TaskCard] = {
    "classify": class_card.CARD,
    "segment": segment_card.CARD,
    "embed": embed_card.CARD,
}


def card_of(task: str) -> TaskCard:
    """Returns what a task says of a network on its card.

    Raises:
        InputError: If it says nothing.
    """
    if task not in CARDS:
        raise InputError(f"networks of training.task {task} cannot be packed: those of density, {', '.join(CARDS)} can")
    return CARDS[task]
