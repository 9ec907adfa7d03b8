"""Short labelled reviews made of a fixed list of words: synthetic, so the words that decide are known.

Every opinion speaks for the label, plainly or by negation of its opposite, so a polar word says nothing without its
negator, which neutral sentences have too. Both are ground truth.
"""

from pathlib import Path

import numpy as np

from shapeline.seeds import seed_of

N, SHORTEST, LONGEST = 3000, 4, 30
NEGATED = 0.4  # share of the opinions that are negations
OPINION = 0.35  # share of the sentences after the first that are opinions
# The example of Chen et al. (2018); it is not among the reviews, but all its words are.
EXAMPLE = "It is not heartwarming or entertaining. It just sucks."

NEGATIVE, POSITIVE = 0, 1
ADJECTIVES = (
    "dull tedious clumsy boring awful lifeless shallow predictable forgettable annoying bland messy hollow lazy "
    "painful pointless stale tiresome unfunny wooden".split(),
    "heartwarming entertaining brilliant moving funny charming delightful gripping clever superb touching wonderful "
    "witty beautiful fresh inspired lovely memorable thrilling warm".split(),
)
# Third person and base form.
VERBS = (
    (("sucks", "suck"), ("fails", "fail"), ("drags", "drag"), ("disappoints", "disappoint"), ("stumbles", "stumble")),
    (("works", "work"), ("shines", "shine"), ("delights", "delight"), ("sparkles", "sparkle"), ("soars", "soar")),
)
SUBJECTS = (
    "it",
    *(
        f"the {noun}"
        for noun in "film story acting script ending music dialogue plot pacing cast humour finale".split()
    ),
)
# A * marks a ground-truth word. {s} subject, {a} and {b} two adjectives, {v} verb, {w} its base form.
PLAIN = (
    "{s} is *{a}",
    "{s} is really *{a}",
    "{s} is *{a} and *{b}",
    "{s} is *{a} or *{b} throughout",
    "{s} feels *{a} from start to end",
    "I found {s} *{a}",
    "this is a *{a} film",
    "{s} just *{v}",
    "{s} simply *{v}",
)
NEGATION = (
    "{s} is *not *{a}",
    "{s} is *not very *{a}",
    "{s} is *not *{a} or *{b}",
    "{s} *isn't *{a}",
    "{s} is *never *{a}",
    "{s} *never feels *{a}",
    "this is *not a *{a} film",
    "{s} *never *{v}",
    "{s} *doesn't *{w}",
)
NEUTRAL = (
    "I saw it on a {day} with my {person}",
    "it runs for about {number} hours",
    "it was shot in {place}",
    "{s} is about {number} sisters and a dog",
    "{s} is based on a novel",
    "I had not read the novel before",
    "my {person} isn't fond of popcorn",
    "I never sit in the front row",
    "it doesn't have a sequel",
    "the cinema was half empty that {day}",
    "we went there by bus or on foot",
    "{s} is not the reason we went",
    "it just opened in {place}",
    "my {person} paid for the tickets",
    "the cast is from {place}",
    "this is a film from {place}",
)
FILLING = {
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "person": "brother sister mother father neighbour colleague cousin friend".split(),
    "number": "two three four".split(),
    "place": "Paris Chicago Mumbai Tokyo Lagos Madrid Cairo Toronto".split(),
}


def read(paths: dict[str, Path]) -> dict:
    """Return 3,000 different reviews of 4 to 30 words, negative and positive in turn, with ground-truth words."""
    generator = np.random.default_rng(seed_of("reviews"))
    texts: dict[str, list[bool]] = {}
    while len(texts) < N:
        text, ground_truth_words = _review(generator, len(texts) % 2)
        texts.setdefault(text, ground_truth_words)
    return {"texts": list(texts), "ground_truth_words": list(texts.values()), "labels": np.arange(N) % 2}


def _review(generator: np.random.Generator, label: int) -> tuple[str, list[bool]]:
    wanted = int(generator.integers(SHORTEST, LONGEST + 1))
    sentences = [_opinion(generator, label)]
    while sum(map(len, sentences)) < wanted:
        sentence = _opinion(generator, label) if generator.random() < OPINION else _neutral(generator)
        if sum(map(len, sentences)) + len(sentence) > LONGEST:
            break
        sentences.append(sentence)
    sentences = [sentences[place] for place in generator.permutation(len(sentences))]
    plain = [" ".join(sentence).replace("*", "") for sentence in sentences]
    text = " ".join(f"{sentence[0].upper()}{sentence[1:]}." for sentence in plain)
    return text, [word.startswith("*") for sentence in sentences for word in sentence]


def _opinion(generator: np.random.Generator, label: int) -> list[str]:
    negated = generator.random() < NEGATED
    polarity = 1 - label if negated else label
    a, b = generator.permutation(ADJECTIVES[polarity])[:2]
    v, w = _one(generator, VERBS[polarity])
    template = _one(generator, NEGATION if negated else PLAIN)
    words = template.format(s=_one(generator, SUBJECTS), a=a, b=b, v=v, w=w).split()
    # A review of three words would be shorter than the shortest.
    return words if len(words) >= SHORTEST else [*words, "here"]


def _neutral(generator: np.random.Generator) -> list[str]:
    filling = {name: _one(generator, choices) for name, choices in FILLING.items()}
    return _one(generator, NEUTRAL).format(s=_one(generator, SUBJECTS), **filling).split()


def _one(generator: np.random.Generator, choices):
    return choices[int(generator.integers(len(choices)))]
