r"""Compare memory trees with their peers: other memory trees, and indexes of nearest neighbours.

One process for each peer and build, all on the same rows and queries and on one thread, measured in rounds; times are
medians over the rounds, microseconds a query are of all queries in one call, unless said otherwise::

    python asv_benchmarks/compare_peers.py --data path/to/folder --sets "synthetic" "coil100"
    python asv_benchmarks/compare_peers.py --data path/to/folder --sets "bible, 1 shot, ASV" --peers trees "nmslib HNSW"
    python asv_benchmarks/compare_peers.py --data path/to/folder --quick

Vowpal Wabbit's memory trees take minutes to build; five runs of each of them need ``--build-limit 1000``::

    python asv_benchmarks/compare_peers.py --data folder --sets synthetic --peers "VW CMT" "paper tree" CMTClassifier \
        --build-limit 1000 --no-stream --out trees.json

Prints for each set: what building takes (time, CPUs in use, memory on top of the data); error and recall against time;
for each peer and each level that it reaches whether we take longer; how soon we do as well as exact search; Vowpal
Wabbit's memory tree beside ours of equal settings; and how fast rows can be inserted while others ask. ``--out`` writes
every run's figures to a file. The sets: ``shared/labelled_sets.py``. The peers: the package ``peers`` beside this
script; it needs the extra ``peers``, and leaves out what is not installed.
"""

from peers.command import main

if __name__ == "__main__":
    main()
