"""Made-up questions whose supporting sentences are known: python -m benchmarks.prompts KIND COUNT > prompts.jsonl

Every text is written by this generator, none is from a data set. KIND is "single" (one sentence of the context answers
the question) or "either" (two sentences state the answer in different words, and either suffices). A line has question,
context (a list of sentences), answer, and support, the numbers of the supporting sentences.
"""

import argparse
import json

import numpy as np

FIRST = "Mara Jonas Ilse Tarek Oona Piet Sunniva Dario Greta Milo Hanne Ruben Freya Anselm Tilda Casper".split()
LAST = "Velling Storck Amsel Quint Harrow Lindqvist Basso Ferro Nyberg Tamm Okafor Renner Salter Vance".split()
PLACES = "Lindholm Karsund Ostervik Balmoor Tarnby Elverum Morwick Sandhaven Grensted Holloway".split()
THINGS = ["Amber Tower", "Old Mill", "Glass Bridge", "Red Theatre", "North Library", "Round Chapel", "Salt Museum"]
WORKS = {
    "Who designed the {thing}?": ("{name} designed the {thing}.", "The architect of the {thing} is {name}."),
    "Who owns the {thing}?": ("{name} owns the {thing}.", "The {thing} belongs to {name}."),
    "Who painted the {thing}?": ("{name} painted the {thing}.", "The paint on the {thing} is the work of {name}."),
    "Who looks after the {thing}?": ("{name} looks after the {thing}.", "The keeper of the {thing} is {name}."),
}
FILLERS = (
    "The ferry to {place} runs every hour.",
    "Tickets for the {other} cost {number} crowns.",
    "{person} moved to {place} in {year}.",
    "The market in {place} opens at {hour}.",
    "The {other} is {number} metres tall.",
    "It rained in {place} for {hour} days.",
    "{person} sells bread near the harbour.",
    "The {other} was closed in {year}.",
    "Trains from {place} arrive in the evening.",
)


def write_prompt(kind: str, parts: int, seed: int) -> dict:
    """Return a question, its context of so many sentences, the answer, and the numbers of the supporting sentences."""
    random = np.random.default_rng(seed)

    def choose(options: tuple | list, count: int) -> list:
        return [options[place] for place in random.permutation(len(options))[:count]]

    names = [f"{first} {last}" for first, last in zip(choose(FIRST, 3), choose(LAST, 3), strict=True)]
    thing, *others = choose(THINGS, 3)
    question = choose(list(WORKS), 1)[0]
    facts = [sentence.format(name=names[0], thing=thing) for sentence in WORKS[question]]
    facts = facts if kind == "either" else choose(facts, 1)
    fillers = [
        text.format(
            place=choose(PLACES, 1)[0],
            other=choose(others, 1)[0],
            person=choose(names[1:], 1)[0],
            number=random.integers(11, 99),
            year=random.integers(1850, 1999),
            hour=random.integers(3, 12),
        )
        for text in choose(FILLERS, parts - len(facts))
    ]
    order = random.permutation(parts)
    context = [[*facts, *fillers][place] for place in order]
    support = sorted(int(place) for place in np.flatnonzero(order < len(facts)))
    return {"question": question.format(thing=thing), "context": context, "answer": f"{names[0]}.", "support": support}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("kind", choices=("single", "either"))
    options.add_argument("count", type=int)
    options.add_argument("--parts", type=int, default=8)
    chosen = options.parse_args()
    for seed in range(chosen.count):
        print(json.dumps(write_prompt(chosen.kind, chosen.parts, seed)))


if __name__ == "__main__":
    main()
