"""Learn from logs without propensities: the two experiments of Strehl et al. (2010) on simulated logs.

    python examples/bandits/logged_exploration.py tau
    python examples/bandits/logged_exploration.py ads --data path/to/folder

- tau: A deterministic LinUCB shows one of 20 articles to each user and learns; it restarts every day. From this log,
  the script estimates the value of a policy that ignores users, with propensities by ridge regression and several
  values of ``tau``. It also prints the true value, the estimate from a log of uniform choices, and the estimate if all
  propensities are assumed to be 1 / 20.
- ads: Pages are paragraphs of an encyclopedia (``wikipara1k/train.jsonl.gz``) and ads are summaries of software
  packages (``packages/summaries.jsonl.gz``), as JSON lines with a ``text`` or a ``summary``. A page shows one of ten
  ads that share words with it. Clicks depend on these words and on the ad. Policies are learned from one half of the
  log and evaluated on the other half. "Learned" chooses the ad with the highest estimate of a weighted regression among
  ads shown on the page, "random" chooses one of these ads at random, and "naive" chooses the ad with the highest
  estimate of an unweighted regression among all ads. As in the paper, propensities are counts.
"""

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize
from tabulate import tabulate

from cmt_numba.bandits import ArgmaxRegressor, EpsilonGreedy, LinUCB
from cmt_numba.bandits.evaluation import Log, estimate_propensities, evaluate, inverse_propensity

N_ARTICLES, N_FEATURES, N_DAYS = 20, 6, 40
TAUS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


# Estimates by tau


def by_tau(n_events: int, seed: int, batch: int = 50) -> list[list[str]]:
    """Return a table row for each ``tau``."""
    rng = np.random.default_rng(seed)
    users = np.column_stack([rng.dirichlet(np.full(N_FEATURES - 1, 0.5), n_events), np.ones(n_events)])
    taste = rng.normal(size=(N_FEATURES, N_ARTICLES))
    clicked = 1 / (1 + np.exp(2.5 - users @ taste))  # click probability, shape (n_events, N_ARTICLES)
    rows, allowed = np.arange(n_events), np.arange(N_ARTICLES)

    def log_of(actions: np.ndarray) -> Log:
        return Log(actions, (rng.random(n_events) < clicked[rows, actions]).astype(float), users, allowed=allowed)

    uniform = log_of(rng.integers(0, N_ARTICLES, n_events))
    policy = EpsilonGreedy(epsilon=0.0, random_state=seed).learn(None, uniform.actions, uniform.rewards)
    truth = float(clicked[:, policy.act(None, allowed).actions[0]].mean())

    actions, rewards = np.empty(n_events, int), []
    for first in range(0, n_events, batch):
        if first % -(-n_events // N_DAYS // batch * batch) == 0:  # a new day
            logger = LinUCB(N_ARTICLES, alpha=1.0, random_state=seed + first)
        span = slice(first, first + batch)
        actions[span] = logger.act(users[span]).actions
        rewards.append((rng.random(actions[span].size) < clicked[rows[span], actions[span]]).astype(float))
        logger.learn(users[span], actions[span], rewards[-1])
    log = Log(actions, np.concatenate(rewards), users, allowed=allowed)

    propensities, table = estimate_propensities(log, "ridge"), []
    flat = np.full(n_events, 1 / N_ARTICLES)
    exact = evaluate(policy, uniform, propensities=flat).estimates["ips"].value
    naive = evaluate(policy, log, propensities=flat).estimates["ips"].value
    for tau in TAUS:
        estimate = evaluate(policy, log, propensities=propensities, tau=tau).estimates["ips"]
        low, high = estimate.interval("bootstrap", n_resamples=200)
        table.append([tau, f"{estimate.value:.4f}", f"{low:.4f} to {high:.4f}", truth, exact, naive])
    return table


# Pages and ads


def read(path: Path, name: str, n: int) -> list[str]:
    """Return the first ``n`` texts of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line)[name] for line, _ in zip(file, range(n), strict=False)]


def pages_and_ads(folder: Path, n_pages: int, n_ads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vectors of pages and ads in one space, and the cosine similarities of their words."""
    texts = read(folder / "wikipara1k" / "train.jsonl.gz", "text", n_pages)
    ads = read(folder / "packages" / "summaries.jsonl.gz", "summary", n_ads)
    words = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2).fit([*texts, *ads])
    X, Y = words.transform(texts), words.transform(ads)
    components = TruncatedSVD(24, random_state=0).fit(Y)
    return normalize(components.transform(X)), normalize(components.transform(Y)), (X @ Y.T).toarray()


def of_ads(folder: Path, n_events: int, n_pages: int, n_ads: int, seed: int) -> list[list[str]]:
    """Return a table row for each policy and ``tau``."""
    rng = np.random.default_rng(seed)
    pages, ads, alike = pages_and_ads(folder, n_pages, n_ads)
    likely = np.argsort(-alike, axis=1)[:, :60]
    visited = rng.zipf(1.3, n_events) % n_pages  # Zipf-distributed page visits
    shown = likely[np.arange(n_pages)[:, None], np.argsort(rng.random(likely.shape), axis=1)[:, :10]]
    chances = rng.dirichlet(np.full(10, 0.7), n_pages)  # display probabilities, shape (n_pages, 10)
    place = (rng.random(n_events)[:, None] > chances[visited].cumsum(axis=1)).sum(axis=1)
    actions = shown[visited, np.minimum(place, 9)]
    appeal = 0.8 * ads @ rng.normal(size=ads.shape[1]) + rng.normal(size=n_ads) * 0.3

    def clicked(of: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        return np.asarray(1 / (1 + np.exp(6.0 - 24.0 * alike[of, chosen] - appeal[chosen])))

    rewards = (rng.random(n_events) < clicked(visited, actions)).astype(float)
    half = n_events // 2
    propensities = []
    for span in (slice(0, half), slice(half, None)):  # propensities from the counts of each half
        _, pairs, of_pairs = np.unique(visited[span] * n_ads + actions[span], return_inverse=True, return_counts=True)
        propensities.append(of_pairs[pairs] / np.bincount(visited[span])[visited[span]])
    log = Log(actions[:half], rewards[:half], pages[visited[:half]], propensities[0])
    pair = lambda X, a: np.column_stack([X * ads[a], ads[a], np.ones(a.size)])  # noqa: E731

    later, later_actions = visited[half:], actions[half:]
    of_pages = np.unique(later)
    table = []
    for tau in (0.01, 0.05):
        learned = ArgmaxRegressor(tau=tau, support="contexts", pair_features=pair, random_state=0).fit(log)
        naive = ArgmaxRegressor(tau=1.0, support="all", pair_features=pair, random_state=0).fit(log)
        best = {"learned": np.full(n_pages, -1), "naive": np.full(n_pages, -1)}
        sizes = np.ones(n_pages)
        seen: dict[int, np.ndarray] = {}
        for page in of_pages:
            context = pages[page][None]
            before = np.unique(actions[:half][visited[:half] == page])
            seen[page] = before if before.size else np.arange(n_ads)
            sizes[page] = seen[page].size
            best["learned"][page] = learned.act(context, seen[page]).actions[0]
            best["naive"][page] = naive.act(context, np.arange(n_ads)).actions[0]
        target = {name: (chosen[later] == later_actions).astype(float) for name, chosen in best.items()}
        target["random"] = np.array([a in seen[p] for p, a in zip(later, later_actions, strict=True)]) / sizes[later]
        for name in ("learned", "random", "naive"):
            estimate = inverse_propensity(rewards[half:], propensities[1], target[name], tau=tau)
            low, high = estimate.interval("bootstrap", n_resamples=200)
            if name == "random":
                truth = np.mean([clicked(np.full(seen[p].size, p), seen[p]).mean() for p in of_pages[:500]])
            else:
                truth = clicked(later, best[name][later]).mean()
            table.append([tau, name, f"{estimate.value:.4f}", f"{low:.4f} to {high:.4f}", f"{truth:.4f}"])
    return table


def main(arguments: list[str] | None = None) -> None:
    """Run an experiment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("experiment", choices=("tau", "ads"))
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="data folder with pages and ads")
    parser.add_argument("--events", type=int, default=40_000, metavar="N")
    parser.add_argument("--pages", type=int, default=2_000, metavar="N")
    parser.add_argument("--ads", type=int, default=10_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args(arguments)
    print(f"Estimating values from {options.events:,} events without propensities", flush=True)
    if options.experiment == "tau":
        headers = ["tau", "estimate", "95 %", "truth", "uniform log", "1/20"]
        print(tabulate(by_tau(options.events, options.seed), headers=headers, floatfmt=".4f", disable_numparse=[1, 2]))
        return
    if options.data is None:
        parser.error("ads needs --data")
    table = of_ads(options.data, options.events, options.pages, options.ads, options.seed)
    print(tabulate(table, headers=["tau", "policy", "estimate", "95 %", "truth"], disable_numparse=[2, 3, 4]))


if __name__ == "__main__":
    main()
