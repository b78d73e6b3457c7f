"""Words of texts in every script: for stores, classifiers, vectorizers, rerankers and the command line."""

from .bm25 import K1, K3, B, idf_of, query_weight, saturation_of, text_weights
from .counts import N_WORDS, check_words, count_words, hash_whole_words, hash_words, rows_of_hashes
from .edits import WORD, edits_of_word, set_bits
from .spelling import WordList
from .splitting import ALONE
from .terms import fold_text, hash_term, terms_of, whole_words_of, words_of
from .tokenizers import Tokenizer, check_same_tokenizer, check_tokenizer, name_of_tokenizer, words_by

__all__ = [
    "ALONE",
    "K1",
    "K3",
    "N_WORDS",
    "WORD",
    "B",
    "Tokenizer",
    "WordList",
    "check_same_tokenizer",
    "check_tokenizer",
    "check_words",
    "count_words",
    "edits_of_word",
    "fold_text",
    "hash_term",
    "hash_whole_words",
    "hash_words",
    "idf_of",
    "name_of_tokenizer",
    "query_weight",
    "rows_of_hashes",
    "saturation_of",
    "set_bits",
    "terms_of",
    "text_weights",
    "whole_words_of",
    "words_by",
    "words_of",
]
