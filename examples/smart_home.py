"""Classify smart-home requests in eight languages, and learn new intents.

    python examples/smart_home.py mach bitte das Licht im Büro an
    python examples/smart_home.py --means "start the dishwasher" run the dishwasher tonight
    python examples/smart_home.py --compare

The first run learns 7,200 sentence templates of the voice assistant Home Assistant, such as "turn on [the] {name}",
from the package ``home-assistant-intents``, 4,200 sentences as people say them (``smart_home_sentences.txt``), and
3,800 sentences that say not to do something (``smart_home_negations.txt``). Each template is filled with random names
of rooms and devices. The run then classifies your request, learns a new intent from two sentences, accepts a
correction, and forgets the intent. The classifier is kept in your cache folder (or ``--folder``), so later runs take a
few seconds.

``--means`` teaches the intent of a request. ``--compare`` compares error, training time and query time with other
classifiers on unseen templates.

Needs hassil, home-assistant-intents and platformdirs (the extra ``demo``), and tabulate to compare.
"""

import argparse
import json
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hassil.expression import Alternative, Expression, Group, ListReference, Permutation, RuleReference, TextChunk
from hassil.parse_expression import parse_sentence
from platformdirs import user_cache_path

from cmt_numba import FileFormatError
from cmt_numba.text import FastTextClassifier, TextClassifier

NAMES = {
    "en": {
        "area": "kitchen|living room|bedroom|office|hallway|bathroom",
        "floor": "ground|first|top",
        "item": "milk|bread|batteries|coffee",
        "message": "dinner is ready|the taxi is here|we are leaving",
        "name": "desk lamp|heater|television|radio|Rosie",
        "search_query": "the Beatles|Thriller|some jazz",
        "timer_name": "pizza|eggs|laundry",
    },
    "de": {
        "area": "Küche|Wohnzimmer|Schlafzimmer|Büro|Flur|Bad",
        "floor": "Erdgeschoss|Keller|Dachgeschoss",
        "item": "Milch|Brot|Batterien|Kaffee",
        "message": "das Essen ist fertig|das Taxi ist da|wir gehen los",
        "name": "Schreibtischlampe|Heizung|Fernseher|Radio|Rosie",
        "search_query": "die Ärzte|Thriller|etwas Jazz",
        "timer_name": "Pizza|Eier|Wäsche",
    },
    "es": {
        "area": "cocina|salón|dormitorio|despacho|pasillo|baño",
        "floor": "planta baja|sótano|primera planta",
        "item": "leche|pan|pilas|café",
        "message": "la cena está lista|ha llegado el taxi|nos vamos",
        "name": "lámpara del escritorio|calefactor|televisor|radio|Rosie",
        "search_query": "Rosalía|Thriller|algo de jazz",
        "timer_name": "pizza|huevos|colada",
    },
    "fr": {
        "area": "cuisine|salon|chambre|bureau|couloir|salle de bain",
        "floor": "rez-de-chaussée|sous-sol|étage",
        "item": "lait|pain|piles|café",
        "message": "le dîner est prêt|le taxi est là|on y va",
        "name": "lampe de bureau|radiateur|télévision|radio|Rosie",
        "search_query": "Édith Piaf|Thriller|du jazz",
        "timer_name": "pizza|œufs|lessive",
    },
    "it": {
        "area": "cucina|soggiorno|camera da letto|ufficio|corridoio|bagno",
        "floor": "piano terra|cantina|primo piano",
        "item": "latte|pane|batterie|caffè",
        "message": "la cena è pronta|il taxi è arrivato|usciamo",
        "name": "lampada della scrivania|stufa|televisore|radio|Rosie",
        "search_query": "Lucio Dalla|Thriller|un po' di jazz",
        "timer_name": "pizza|uova|bucato",
    },
    "nl": {
        "area": "keuken|woonkamer|slaapkamer|kantoor|gang|badkamer",
        "floor": "begane grond|kelder|zolder",
        "item": "melk|brood|batterijen|koffie",
        "message": "het eten is klaar|de taxi is er|we gaan weg",
        "name": "bureaulamp|kachel|televisie|radio|Rosie",
        "search_query": "de Dijk|Thriller|wat jazz",
        "timer_name": "pizza|eieren|was",
    },
    "pl": {
        "area": "kuchnia|salon|sypialnia|biuro|korytarz|łazienka",
        "floor": "parter|piwnica|piętro",
        "item": "mleko|chleb|baterie|kawa",
        "message": "obiad gotowy|taksówka przyjechała|wychodzimy",
        "name": "lampka na biurku|grzejnik|telewizor|radio|Rosie",
        "search_query": "Maanam|Thriller|trochę jazzu",
        "timer_name": "pizza|jajka|pranie",
    },
    "zh-CN": {
        "area": "厨房|客厅|卧室|书房|走廊|浴室",
        "floor": "一楼|地下室|顶楼",
        "item": "牛奶|面包|电池|咖啡",
        "message": "晚饭好了|出租车到了|我们出发了",
        "name": "台灯|暖气|电视|收音机|小玫",
        "search_query": "邓丽君|颤栗|爵士乐",
        "timer_name": "披萨|鸡蛋|洗衣服",
    },
}
"""Names of rooms and devices by language, for the slots of templates."""

SAME_NAMES = {"shopping_list_item": "item", "todo_list_item": "item", "timer_command": "message", "zone": "area"}
BY_DEVICE = {"HassGetState", "HassSetPosition", "HassTurnOff", "HassTurnOn"}  # one class per kind of device

N_NATURAL = 8
"""Maximum number of sentences that are made from each natural template."""

NO_INTENT, UNWANTED = "something else", "do nothing"

SURE = 0.75
"""Least probability of a clear answer. With 0.5, five times as many answers to held-out templates are wrong."""

NEW_INTENT = "start the dishwasher"
NEW_REQUESTS = ("run the dishwasher", "the dishwasher is full")
NEW_QUESTIONS = ("please run the dishwasher now", "could you wash the dishes")


class Request(NamedTuple):
    """A sentence, its intent, and its template."""

    text: str
    intent: str
    template: str


# Data


class Language:
    """The sentence templates of one language."""

    def __init__(self, code: str, rng: random.Random) -> None:
        path = files("home_assistant_intents") / "data" / f"{code}.json"
        self.templates: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        self.names = {slot: names.split("|") for slot, names in NAMES[code].items()}
        self.rng = rng
        self._parsed: dict[str, Expression] = {}

    def requests(self) -> Iterator[Request]:
        """Yield a sentence for each template."""
        for intent, entry in self.templates["intents"].items():
            for block in entry["data"]:
                for template in block["sentences"]:
                    yield Request(self.sentence(template), intent_name(intent, block), template)

    def sentence(self, template: str) -> str:
        """Return a sentence with random choices for the open parts of a template."""
        return " ".join(self._fill_in(self._parse(template)).split())

    def _parse(self, template: str) -> Expression:
        if template not in self._parsed:
            self._parsed[template] = parse_sentence(template).expression
        return self._parsed[template]

    def _fill_in(self, part: Expression) -> str:
        match part:
            case TextChunk():
                return part.original_text
            case Alternative():
                return self._fill_in(self.rng.choice(part.items))
            case Permutation():
                return " ".join(map(self._fill_in, self.rng.sample(part.items, len(part.items))))
            case Group():
                return "".join(map(self._fill_in, part.items))
            case RuleReference():
                return self._fill_in(self._parse(self.templates["expansion_rules"][part.rule_name]))
            case ListReference():
                return self._name(part.list_name)
        raise TypeError(f"a template cannot contain {part!r}")

    def _name(self, slot: str) -> str:
        names = self.names.get(SAME_NAMES.get(slot, slot))
        if names is not None:
            return self.rng.choice(names)
        values = self.templates["lists"][slot]
        if "range" in values:
            return str(self.rng.randint(values["range"]["from"], values["range"]["to"]))
        value = self.rng.choice(values["values"])
        return self._fill_in(self._parse(value["in"] if isinstance(value, dict) else value))


def intent_name(intent: str, block: dict[str, Any]) -> str:
    """Return an intent as words, with the kind of device if the intent applies to several kinds.

    >>> intent_name("HassTurnOn", {"slots": {"domain": "light"}})
    'turn on: light'
    >>> intent_name("HassStartTimer", {})
    'start timer'
    """
    words = " ".join(re.findall("[A-Z][a-z]+", intent.removeprefix("Hass"))).lower()
    if intent not in BY_DEVICE:
        return words
    device = block.get("slots", {}).get("domain") or block.get("requires_context", {}).get("domain")
    return f"{words}: {device.replace('_', ' ') if isinstance(device, str) else 'device'}"


def read_requests(seed: int = 0) -> list[Request]:
    """Return a request for each template of each language, and negations of them, in random order."""
    rng = random.Random(seed)
    natural, negations = list(natural_templates()), Negations()
    requests = []
    for code in NAMES:
        language = Language(code, rng)
        asked = list(language.requests())
        for intent, template in (line[1:] for line in natural if line[0] == code):
            texts = {language.sentence(template) for _ in range(N_NATURAL)}
            asked += [Request(text, intent, template) for text in sorted(texts)]
        requests += asked
        requests += negations.of(code, asked, rng)
    rng.shuffle(requests)
    return requests


class Negations:
    """Rules that turn a request into one that says not to do it."""

    def __init__(self) -> None:
        self._rules: dict[str, list[tuple[re.Pattern[str], list[str]]]] = {code: [] for code in NAMES}
        for line in read_lines("smart_home_negations.txt"):
            code, _, rule = line.partition(": ")
            pattern, _, sentences = rule.partition(" => ")
            self._rules[code].append((re.compile(pattern, re.IGNORECASE), sentences.split("; ")))

    def of(self, code: str, requests: list[Request], rng: random.Random) -> Iterator[Request]:
        """Yield negations of the requests to which a rule applies, each with a template of its own."""
        for request in requests:
            rules = [rule for rule in self._rules[code] if rule[0].search(request.text)]
            if rules:
                pattern, sentences = rng.choice(rules)
                text = pattern.sub(rng.choice(sentences), request.text)
                yield Request(text, UNWANTED, f"not: {request.template}")


def natural_templates() -> Iterator[tuple[str, str, str]]:
    """Yield language, intent and template of the natural requests."""
    intent = ""
    for line in read_lines("smart_home_sentences.txt"):
        if line.startswith("["):
            intent = line[1:-1]
        else:
            code, _, templates = line.partition(": ")
            yield from ((code, intent, template.strip()) for template in templates.split(";"))


def read_lines(name: str) -> Iterator[str]:
    """Yield the lines of a file in this folder except comments."""
    for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def split_by_template(requests: list[Request]) -> tuple[list[Request], list[Request]]:
    """Split requests into training and test requests with different templates."""
    held_out = set(random.Random(1).sample(templates := sorted({r.template for r in requests}), len(templates) // 5))
    return [r for r in requests if r.template not in held_out], [r for r in requests if r.template in held_out]


# The classifier


def open_classifier(folder: Path) -> tuple[TextClassifier, bool]:
    """Open the classifier in a folder and return it with a flag that is True if it is new."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    try:
        classifier = TextClassifier.open(folder, random_state=0)
    except FileFormatError:
        print(f"The classifier in {folder} was saved by another version: learning again")
        shutil.rmtree(folder)
        classifier = TextClassifier.open(folder, random_state=0)
    if is_new := not hasattr(classifier, "classes_"):
        with waiting("Compiling, once on this computer, and learning from the templates of Home Assistant"):
            requests = read_requests()
            learn(classifier, requests)
        print(f"Learned {len(requests):,} requests with {classifier.classes_.size} intents ", end="")
        print(f"in {time.perf_counter() - started:.1f} s; they stay in {folder}", flush=True)
    return classifier, is_new


def learn(classifier: TextClassifier, requests: list[Request]) -> None:
    """Learn requests, and how probable its answers to requests from other templates are.

    ``fit`` holds out texts to learn this. Here they would have the same templates as others.
    """
    known, others = split_by_template(requests)
    classifier.fit([r.text for r in known], [r.intent for r in known])
    asked = [r for r in others if r.intent in classifier.classes_]
    classifier.calibrate([r.text for r in asked], [r.intent for r in asked])
    classifier.partial_fit([r.text for r in others], [r.intent for r in others])


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Print a message, and a dot for each second until the block ends."""
    print(what, end=" ", flush=True)
    has_ended = threading.Event()

    def count_seconds() -> None:
        while not has_ended.wait(1.0):
            print(".", end="", flush=True)

    thread = threading.Thread(target=count_seconds)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()
        print(flush=True)


def show_answer(classifier: TextClassifier, text: str) -> None:
    """Print the best intents of a request with their probabilities, and the words that favour the first one."""
    intents, probabilities = classifier.top_classes([text], k=3)
    print(f"\n  {text!r} {'means' if is_sure(classifier, text) else 'is not clear; it may mean'}")
    for intent, probability in zip(classifier.classes_[intents[0]], probabilities[0], strict=True):
        print(f"    {probability:5.0%}  {intent}")
    words = ", ".join(word for word, weight in classifier.explain([text], 3)[0].words if weight > 0)
    print(f"    because of: {words}")


def is_sure(classifier: TextClassifier, text: str) -> bool:
    """Return whether a request has a probable intent."""
    intents, probabilities = classifier.top_classes([text], k=1)
    return bool(probabilities[0, 0] >= SURE and classifier.classes_[intents[0, 0]] not in (NO_INTENT, UNWANTED))


def show_learning(classifier: TextClassifier) -> None:
    """Show how the classifier learns a new intent, a correction, and a removal."""
    started = time.perf_counter()
    classifier.partial_fit(NEW_REQUESTS, [NEW_INTENT] * len(NEW_REQUESTS))
    print(
        f"\nLearned a new intent from {len(NEW_REQUESTS)} sentences in {1e3 * (time.perf_counter() - started):.0f} ms:"
    )
    for question in NEW_QUESTIONS:
        show_answer(classifier, question)
    classifier.partial_fit(NEW_QUESTIONS[1:], [NEW_INTENT])
    print(f"\nCorrected: {NEW_QUESTIONS[1]!r} means {NEW_INTENT!r}.")
    show_answer(classifier, NEW_QUESTIONS[1])
    classifier.remove_classes([NEW_INTENT])
    print(f"\nForgot {NEW_INTENT!r}.")
    show_answer(classifier, NEW_QUESTIONS[1])


# Other classifiers


def compare(seed: int = 0) -> list[dict[str, Any]]:
    """Return a table row for each classifier: error, training time and query time."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline, make_union
    from sklearn.svm import LinearSVC

    def words_and_characters() -> Any:
        return make_union(
            TfidfVectorizer(sublinear_tf=True),
            TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), sublinear_tf=True),
        )

    learners: dict[str, Callable[[], Any]] = {
        "LinearSVC, words": lambda: make_pipeline(TfidfVectorizer(sublinear_tf=True), LinearSVC()),
        "LinearSVC, words and characters": lambda: make_pipeline(words_and_characters(), LinearSVC()),
        "logistic regression, words and characters": lambda: make_pipeline(
            words_and_characters(), LogisticRegression(C=10, max_iter=500)
        ),
        "FastTextClassifier": lambda: FastTextClassifier(random_state=seed),
        "TextClassifier": lambda: TextClassifier(random_state=seed),
    }
    known, asked = split_by_template(read_requests(seed))
    rows = []
    for name, new in learners.items():
        print(f"... {name}", flush=True)
        new().fit([r.text for r in known[:500]], [r.intent for r in known[:500]])  # compiles
        started = time.process_time()
        learner = new().fit([r.text for r in known], [r.intent for r in known])
        learned = time.process_time()
        answers = learner.predict([r.text for r in asked])
        answered = time.process_time()
        rows.append(
            {
                "classifier": name,
                "error": np.mean(answers != np.array([r.intent for r in asked])),
                "seconds to learn": learned - started,
                "microseconds per query": 1e6 * (answered - learned) / len(asked),
            }
        )
    return rows


def main(arguments: list[str] | None = None) -> None:
    """Classify a request, teach an intent, or compare classifiers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("request", nargs="*", help="a request to the smart home")
    parser.add_argument("--means", metavar="INTENT", help="the intent of the request, to learn")
    parser.add_argument("--folder", type=Path, default=user_cache_path("cmt_numba") / "smart_home")
    parser.add_argument("--compare", action="store_true", help="compare with other classifiers")
    given = parser.parse_args(arguments)
    text = " ".join(given.request)
    if given.compare:
        from tabulate import tabulate

        print(tabulate(compare(), headers="keys", floatfmt=("", ".3f", ".1f", ".0f")))
        return
    if not text:
        parser.error("give a request, such as: dim the lights in the kitchen")
    classifier, is_new = open_classifier(given.folder)
    with classifier:
        if given.means is not None:
            classifier.partial_fit([text], [given.means])
        show_answer(classifier, text)
        if is_new:
            show_learning(classifier)


if __name__ == "__main__":
    main()
