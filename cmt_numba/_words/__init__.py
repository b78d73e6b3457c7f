"""Words of texts in every script: for stores, classifiers, vectorizers, rerankers and the command line."""

from .bm25 import K1, K3, B, idf_of, query_weight, saturation_of, text_weights
from .counts import N_WORDS, check_words, count_words, hash_words, rows_of_hashes
from .splitting import ALONE
from .terms import fold_text, terms_of, words_of
from .tokenizers import Tokenizer, check_same_tokenizer, check_tokenizer, name_of_tokenizer, words_by

__all__ = [
    "ALONE",
    "K1",
    "K3",
    "N_WORDS",
    "B",
    "Tokenizer",
    "check_same_tokenizer",
    "check_tokenizer",
    "check_words",
    "count_words",
    "fold_text",
    "hash_words",
    "idf_of",
    "name_of_tokenizer",
    "query_weight",
    "rows_of_hashes",
    "saturation_of",
    "terms_of",
    "text_weights",
    "words_by",
    "words_of",
]
