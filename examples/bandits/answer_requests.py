"""Choose replies to text requests with a bandit that learns only from rewards.

    python examples/bandits/answer_requests.py

Simulated users write several kinds of requests in random words, and reward only the correct reply. The bandit learns
which reply to give. Its log is then used to estimate the reward of two other policies, and the script compares the
estimates with the true values.
"""

import argparse

import numpy as np
from sklearn.feature_extraction.text import HashingVectorizer

from cmt_numba.bandits import CMTBandit, EpsilonGreedy, LinUCB
from cmt_numba.bandits.evaluation import Log, evaluate

KINDS = (
    ("weather", "rain", "sunny", "umbrella", "forecast"),
    ("music", "song", "play", "album", "louder"),
    ("alarm", "wake", "remind", "timer", "clock"),
    ("train", "ticket", "platform", "delay", "station"),
    ("recipe", "cook", "oven", "dinner", "salt"),
    ("bank", "transfer", "account", "balance", "card"),
)
COMMON = ("please", "can", "you", "the", "a", "for", "me", "now", "what", "is", "to", "my")


def requests(n: int, rng: np.random.Generator) -> tuple[list[str], np.ndarray]:
    """Return requests and their correct replies."""
    wanted = rng.integers(0, len(KINDS), n)
    texts = []
    for kind in wanted:
        words = [*rng.choice(KINDS[kind], 2, replace=False), *rng.choice(COMMON, 4, replace=False)]
        texts.append(" ".join(rng.permutation(words)))
    return texts, wanted


def main(arguments: list[str] | None = None) -> None:
    """Run the simulation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args(arguments)
    print(f"Replying to {options.rounds:,} requests, and learning from rewards", flush=True)
    rng = np.random.default_rng(options.seed)
    words = HashingVectorizer(n_features=2**8, alternate_sign=False)
    texts, wanted = requests(options.rounds, rng)
    contexts = words.transform(texts)

    bandit = CMTBandit(len(KINDS), epsilon=0.2, random_state=options.seed)
    actions, propensities = np.empty(options.rounds, int), np.empty(options.rounds)
    rewards = np.empty(options.rounds)
    for i in range(options.rounds):
        decision = bandit.act(contexts[[i]])
        actions[i], propensities[i] = decision.actions[0], decision.propensities[0]
        rewards[i] = actions[i] == wanted[i]
        bandit.reward(decision.ids, rewards[[i]])
    for part in np.array_split(np.arange(options.rounds), 4):
        print(f"rounds {part[0] + 1:5,} to {part[-1] + 1:5,}: mean reward {rewards[part].mean():.3f}")

    # Train on the first half of the log, evaluate on the second.
    first, second = np.array_split(np.arange(options.rounds), 2)
    log = Log(actions[second], rewards[second], contexts[second], propensities[second], np.arange(len(KINDS)))
    trained = LinUCB(len(KINDS), alpha=0.0, random_state=0).learn(contexts[first], actions[first], rewards[first])
    for name, policy in (("LinUCB", trained), ("random", EpsilonGreedy(len(KINDS), epsilon=1.0, random_state=0))):
        estimate = evaluate(policy, log).estimates["snips"]
        low, high = estimate.interval("bootstrap")
        truth = policy.probabilities(contexts[second])[np.arange(second.size), wanted[second]].mean()
        print(f"{name}: estimated from the log {estimate.value:.3f} ({low:.3f} to {high:.3f}), true value {truth:.3f}")


if __name__ == "__main__":
    main()
