import numpy as np

from synth.encoder import DIMENSIONS, encode

TEXTS = ["find me a cheap ramen place nearby", "有没有附近便宜的拉面馆", "cancel order o17", "what will the weather be tomorrow"]


def test_vectors_are_unit_float32_and_the_same_list_gives_the_same_bytes() -> None:
    first, second = encode(TEXTS), encode(TEXTS)

    assert first.shape == (len(TEXTS), DIMENSIONS)
    assert first.dtype == np.float32
    assert np.allclose(np.linalg.norm(first, axis=1), 1, atol=1e-5)
    assert first.tobytes() == second.tobytes()


def test_a_text_means_the_same_in_another_batch() -> None:
    assert np.allclose(encode(TEXTS)[0], encode([TEXTS[0]])[0], atol=1e-5)


def test_languages_meet_and_unlike_requests_do_not() -> None:
    vectors = encode(TEXTS)
    cosine = vectors @ vectors.T

    assert cosine[0, 1] > max(cosine[0, 2], cosine[0, 3])


def test_no_texts_give_no_vectors_and_progress_reaches_the_end() -> None:
    seen: list[tuple[str, int, int]] = []

    assert encode([]).shape == (0, DIMENSIONS)
    encode(TEXTS, progress=lambda label, done, total: seen.append((label, done, total)))
    assert seen[-1] == ("encode", 4, 4)
