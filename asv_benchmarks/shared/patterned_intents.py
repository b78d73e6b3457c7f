"""Texts of a help desk: many intents made of patterns, and a few intents of natural sentences."""

from __future__ import annotations

import random

import numpy as np

Examples = tuple[np.ndarray, np.ndarray]

THINGS = (
    "card|debit card|bank card",
    "loan|mortgage|home loan",
    "app|mobile app|phone app",
    "router|wifi box|modem",
    "invoice|bill|statement",
    "parcel|package|delivery",
    "password|login|passcode",
    "laptop|notebook",
    "printer|office printer",
    "insurance|policy|coverage",
    "flight|plane ticket|booking",
    "hotel|hotel room",
    "subscription|membership|plan",
    "voucher|gift card|coupon",
    "email|mailbox|inbox",
    "phone line|sim card|mobile number",
)
PATTERNS = {
    "lost": "I can't find my {} any more|my {} has disappeared|I think I lost the {} yesterday|where did my {} go",
    "broken": "the {} does not work|my {} stopped working this morning|I get an error with the {}|{} is broken again",
    "cancel": "please cancel my {}|I want to get rid of the {}|how do I terminate the {}|I don't need the {}",
    "change": "I need to change something about my {}|please update the details of the {}|can I modify my {}",
    "cost": "how much does the {} cost|what is the price of a {}|are there fees for the {}|is there a cheaper {}",
    "new": "I would like to get a new {}|how can I apply for a {}|order another {} for me|I need one more {}",
}
BEFORE = ("", "hello, ", "hi there, ", "good morning. ", "dear support, ", "quick question: ", "")
AFTER = ("", " thanks", " please help", " asap", " this is urgent", " best regards", "")
NATURAL = {
    "pets": "my cat sits on the keyboard|can I bring my dog to the office|the dog barks all day|"
    "is my hamster allowed in the building|who feeds the cat at night|there is a bird in the meeting room",
    "parking": "there is no free parking space|I need a spot for my car in the garage|someone parks in my place|"
    "the barrier of the garage does not open|can visitors park here|where do I leave my bicycle",
    "lunch": "what is for lunch today|is there vegetarian food in the canteen|the soup was cold|"
    "when does the canteen open|I am allergic to nuts, what can I eat|who orders the pizza",
    "holiday": "how many days of vacation do I have left|I want to take Friday off|is the 24th of December a holiday|"
    "can I move my vacation to August|who approves my leave|my leave request is still open",
    "heating": "it is freezing in room 4|the radiator is making noises|please turn down the air conditioning|"
    "the window does not close|it is too warm on our floor|can you heat the meeting room",
    "visitors": "a guest arrives tomorrow at nine|how do I print a badge for a visitor|the visitor is at the reception|"
    "can my guest use the wifi|who picks up the guests|we expect twenty people from Spain",
    "salary": "when is the salary paid|my payslip is wrong|I have not received my wages|"
    "can I get an advance on my salary|the bonus is missing|what does the deduction on my payslip mean",
    "training": "which courses can I take|I want to learn Spanish|book me a seat in the Python training|"
    "is there a course about negotiation|my course was cancelled|where is the workshop tomorrow",
}


def _as_arrays(pairs: list[tuple[str, str]]) -> Examples:
    return np.array([text for text, _ in pairs], object), np.array([label for _, label in pairs])


def patterned_intents(n: int, seed: int) -> Examples:
    """Return ``n`` texts of each of 96 intents, some with typing errors."""
    rng, pairs = random.Random(seed), []
    for thing in THINGS:
        for action, patterns in PATTERNS.items():
            for _ in range(n):
                sentence = rng.choice(patterns.split("|")).format(rng.choice(thing.split("|")))
                text = rng.choice(BEFORE) + sentence + rng.choice(AFTER)
                if rng.random() < 0.15:
                    i = rng.randrange(1, len(text) - 1)
                    text = text[:i] + text[i + 1] + text[i] + text[i + 2 :]
                pairs.append((text, f"{thing.split('|')[0]}.{action}"))
    return _as_arrays(pairs)


def natural_intents(n: int) -> tuple[Examples, Examples]:
    """Return the first ``n`` sentences of each of 8 other intents, and the last three."""
    sentences = {label: joined.split("|") for label, joined in NATURAL.items()}
    learned = [(text, label) for label, each in sentences.items() for text in each[:n]]
    asked = [(text, label) for label, each in sentences.items() for text in each[3:]]
    return _as_arrays(learned), _as_arrays(asked)
