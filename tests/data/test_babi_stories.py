"""The parser against stories made by hand, and stories as numbers."""

import numpy as np
import pytest

from nsm.checks import UserError
from nsm.data import stories
from nsm.data.stories import Line, encode, parse, vocabulary

TEXT = """\
1 Mary went to the bathroom.
2 Where is Mary? \tbathroom\t1
3 John moved to the Garden.
4 After that he went back to the office.
5 Where is John?\toffice\t3 4
1 The office is east of the hallway.
2 The kitchen is north of the office.
3 How do you go from the hallway to the kitchen?\te,n\t1 2
"""


def test_questions_may_stand_in_the_middle_of_a_story():
    first, second = parse(TEXT, "a file")
    assert [line.answer for line in first] == [(), ("bathroom",), (), (), ("office",)]
    assert first[0] == Line(("mary", "went", "to", "the", "bathroom", "."))
    assert first[1] == Line(("where", "is", "mary", "?"), ("bathroom",))
    assert len(second) == 3


def test_coreference_is_left_to_the_machine():
    assert parse(TEXT, "a file")[0][3].words == ("after", "that", "he", "went", "back", "to", "the", "office", ".")


def test_answers_of_several_words_are_split_at_commas():
    assert parse(TEXT, "a file")[1][2].answer == ("e", "n")
    (story,) = parse("1 What is Mary carrying?\tapple,milk,football\t1\n", "a file")
    assert story[0].answer == ("apple", "milk", "football")
    assert story[0].shown == ("what", "is", "mary", "carrying", "?", "-", "-", "-")


@pytest.mark.parametrize(
    "changed",
    [
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("\n", "\n\n"),
        "\n" + TEXT.rstrip("\n"),
        TEXT.replace("1 Mary", " 1  Mary"),
    ],
    ids=["Windows line ends", "blank lines", "no last line end", "more spaces"],
)
def test_what_means_nothing_changes_nothing(changed):
    assert parse(changed, "a file") == parse(TEXT, "a file")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("Mary went to the kitchen.", "line 2: it does not begin with a number"),
        ("7 Mary went to the kitchen.", "line 2: its number is 7, expected 1 or 2"),
        ("2 Where is Mary?", "line 2: it is a question without an answer"),
        ("2 Where is Mary?\t\t1", "line 2: it is a question with an empty answer"),
        ("2 Where is Mary?\toffice\t1\t1", "line 2: it has 3 tabs"),
        ("2 Mary went there.\toffice\t1", "line 2: it has an answer but is not a question"),
        ("2 Mary went to the moon.", "line 2: the word 'moon' is not one of the 159"),
        ("2 Mary went - to the office.", "line 2: the character '-' is not one of"),
        ("2 Mary went to the office!", "line 2: the character '!' is not one of"),
        ("2 ", "line 2: the line is empty after its number"),
        (f"{'9' * 400} Mary went there.", "line 2: its number has 400 digits"),
        (f"{'9' * 5000} Mary went there.", "line 2: its number has 5,000 digits"),
        (f"2 {'x' * 5000}", f"line 2: the word '{'x' * 120}…' is not one of the 159"),
    ],
)
def test_a_malformed_line_is_named_with_its_file(line, sentence):
    with pytest.raises(UserError) as raised:
        parse(f"1 Mary went to the office.\n{line}\n", "en-10k/qa1_train.txt")
    assert str(raised.value).startswith(f"en-10k/qa1_train.txt, {sentence}")


def test_a_file_holds_a_story():
    with pytest.raises(UserError, match=r"^a file contains no story"):
        parse("\n", "a file")


def test_a_file_must_begin_with_the_first_line_of_a_story():
    with pytest.raises(UserError, match="its number is 2, expected 1"):
        parse("2 Mary went to the office.\n", "a file")


def test_the_vocabulary_is_156_words_and_three_signs():
    words = list(vocabulary())
    assert len(words) == 159
    assert words[:3] == ["-", ".", "?"]
    assert all(word.isalpha() and word.islower() for word in words[3:])
    assert words[3:] == sorted(words[3:])


def in_words(numbers):
    words = list(vocabulary())
    return " ".join(words[number] if number >= 0 else "_" for number in numbers)


def test_encoded_stories_show_blanks_where_answers_are_asked_for():
    encoded = encode((task, story) for task, story in zip((1, 19), parse(TEXT, "a file"), strict=True))
    start, middle, end = encoded.starts
    assert in_words(encoded.shown[start:middle]) == (
        "mary went to the bathroom . where is mary ? - "
        "john moved to the garden . after that he went back to the office . where is john ? -"
    )
    assert in_words(encoded.answers[start:middle]) == "_ " * 10 + "bathroom" + " _" * 19 + " office"
    assert in_words(encoded.answers[middle:end]).split()[-3:] == ["_", "e", "n"]
    assert in_words(encoded.shown[middle:end]).split()[-3:] == ["?", "-", "-"]
    assert encoded.lengths.tolist() == [31, 29]
    assert encoded.task.tolist() == [1, 19]
    assert encoded.questions == 3


def test_stories_can_be_selected():
    encoded = encode((task, story) for task, story in zip((1, 19), parse(TEXT, "a file"), strict=True))
    second = encoded.select(np.array([False, True]))
    assert in_words(second.shown) == in_words(encoded.shown[encoded.starts[1] :])
    assert second.starts.tolist() == [0, int(encoded.lengths[1])]
    assert len(second) == 1
    assert second.questions == 1
    assert second.task.tolist() == [19]


def test_lines_that_repeat_the_one_before_can_be_left_out():
    text = "1 Mary went there.\n2 Where is Mary?\toffice\t1\n3 Where is Mary?\toffice\t1 2\n4 Mary went there.\n"
    (story,) = parse(text, "a file")
    assert stories.without_repetitions(story) == [story[0], story[1], story[3]]
    assert stories.without_repetitions([]) == []
    assert stories.length(story) == 4 + 5 + 5 + 4
