"""A text model with a tokenizer of its own: pieces of words, and a network that was made elsewhere and is ready.

Both stand here in full to be small. In their place: a tokenizer read from its file, and a module with its weights.
"""

import torch
from torch import nn

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
# What each piece adds to the logit of "good" less that of "bad"; the judging words are made of two pieces each.
PIECES = {
    **{"love": 1.5, "##ly": 0.5, "gre": 0.75, "##at": 0.75, "cle": 0.5, "##an": 0.5},
    **{"aw": -1.0, "##ful": -1.0, "dir": -1.25, "##ty": -0.5, "ru": -0.75, "##de": -0.5},
    **dict.fromkeys(["the", "room", "food", "staff", "street", "view", "was", "and", "very", "we", "found", "it"], 0.0),
}
VOCABULARY = [*SPECIAL, *PIECES]


def tokenizer() -> dict:
    """What the key `tokenizer` of a dataset asks for: how a text becomes ids, the id that stands for an absent token,
    and how many ids there are."""
    return {"encode": encode, "pad": VOCABULARY.index("[PAD]"), "vocabulary": VOCABULARY}


def encode(text: str) -> tuple[list[int], list[int | None]]:
    """The ids of a text, and of each the number of its word in text.split(), None for [CLS] and [SEP]."""
    ids, words = [VOCABULARY.index("[CLS]")], [None]
    for number, word in enumerate(text.lower().split()):
        for piece in pieces(word):
            ids.append(VOCABULARY.index(piece))
            words.append(number)
    return [*ids, VOCABULARY.index("[SEP]")], [*words, None]


def pieces(word: str) -> list[str]:
    """The longest known piece again and again, as WordPiece cuts; [UNK] where none fits."""
    found, rest = [], word
    while rest:
        mark = "##" if found else ""
        ends = [end for end in range(len(rest), 0, -1) if mark + rest[:end] in PIECES]
        if not ends:
            return ["[UNK]"]
        found.append(mark + rest[: ends[0]])
        rest = rest[ends[0] :]
    return found


class Bag(nn.Module):
    """Adds up what the pieces say: ids (n, length) -> logits (n, 2) of the classes bad and good."""

    def __init__(self, vocabulary: int):
        super().__init__()
        self.said = nn.Embedding(vocabulary, 1)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        good = self.said(ids).sum(1)
        return torch.cat([-good, good], 1) / 2


def network(vocabulary: int) -> nn.Module:
    """The network with its weights; in place of them, those of a file that you trust."""
    made = Bag(vocabulary)
    with torch.no_grad():
        made.said.weight[:, 0] = torch.tensor([0.0] * len(SPECIAL) + list(PIECES.values()))
    return made
