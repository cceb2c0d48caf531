"""Reading a sequence as a person would: the answers worked out from the inputs alone, step by step.

Nothing here shares code with the generators. A reader gets the input rows of one sequence as lists of floats, the step
its task begins at and the step its encoding phase ends at; it returns the rows of answers.
"""

from statistics import pstdev

from nsm.tasks import AssociativeRecall, Batch, Copy, PrioritySort, RepeatCopy, Sequencing, Task

Row = list[float]


def one_hot(channel: int, size: int) -> Row:
    return [1.0 if index == channel else 0.0 for index in range(size)]


def read_copy(task: Copy, rows: list[Row], start: int) -> tuple[list[Row], int]:
    width, size = task.width, len(rows[0])
    assert rows[start] == one_hot(width, size)
    vectors = []
    step = start + 1
    while rows[step][width + 1] == 0.0:
        assert set(rows[step][:width]) <= {0.0, 1.0}
        assert not any(rows[step][width:])
        vectors.append(rows[step][:width])
        step += 1
    assert rows[step] == one_hot(width + 1, size)
    return vectors, step + 1


def read_repeat_copy(task: RepeatCopy, rows: list[Row], start: int, end: int) -> tuple[list[Row], int]:
    """`end` is needed because a count in the middle of an odd range is shown as 0, like a blank vector."""
    width, size = task.width, len(rows[0])
    assert rows[start] == one_hot(width, size)
    vectors = [row[:width] for row in rows[start + 1 : end - 1]]
    for row in rows[start + 1 : end - 1]:
        assert not any(row[width:])
    count = rows[end - 1][width + 1]
    assert rows[end - 1] == [count if channel == width + 1 else 0.0 for channel in range(size)]
    low, high = task.normalise
    spread = pstdev(range(low, high + 1)) or 1.0
    middle = (low + high) / 2 if task.count_mean == "centre" else (high - low) / 2
    exact = count * spread + middle
    assert abs(exact - round(exact)) < 1e-4
    answers = []
    for _ in range(round(exact)):
        for vector in vectors:
            answers.append(vector + [0.0] * task.end_marker)
    if task.end_marker:
        answers.append(one_hot(width, width + 1))
    return answers, end


def read_associative_recall(task: AssociativeRecall, rows: list[Row], start: int) -> tuple[list[list[Row]], int]:
    """All admissible answers: more than one if the query happens to equal several items."""
    width, size = task.width, len(rows[0])
    step = start
    items = []
    while rows[step][width + 1] == 0.0:
        assert rows[step] == one_hot(width, size)
        items.append([row[:width] for row in rows[step + 1 : step + 1 + task.item_length]])
        step += 1 + task.item_length
    assert task.items[0] <= len(items) <= task.items[1]
    assert rows[step] == one_hot(width + 1, size)
    query = [row[:width] for row in rows[step + 1 : step + 1 + task.item_length]]
    step += 1 + task.item_length
    assert rows[step] == one_hot(width + 1, size)
    answers = [items[index + 1] for index in range(len(items) - 1) if items[index] == query]
    assert answers, "the query is the last item, or none"
    return answers, step + 1


def read_priority_sort(task: PrioritySort, rows: list[Row], start: int) -> tuple[list[Row], int]:
    shown = rows[start : start + task.items]
    for row in shown:
        assert -1.0 <= row[task.width] < 1.0
        assert not any(row[task.width + 1 :])
    ranked = sorted(shown, key=lambda row: row[task.width], reverse=True)
    return [row[: task.width] for row in ranked[: task.sorted_items]], start + task.items


def read_order(subtasks: int, row: Row) -> list[int]:
    """The subtasks in the order of their turns."""
    channels = [round(index * (len(row) - 1) / (subtasks - 1)) for index in range(subtasks)]
    turns = {round((1.0 - row[channel]) * (subtasks - 1), 4): index for index, channel in enumerate(channels)}
    assert not any(value for channel, value in enumerate(row) if channel not in channels)
    return [turns[turn] for turn in range(subtasks)]


def admissible_answers(task: Task, rows: list[Row], start: int, end: int) -> tuple[list[list[Row]], int]:
    """The answers a single task admits, almost always one, and where its encoding phase ends."""
    if isinstance(task, AssociativeRecall):
        return read_associative_recall(task, rows, start)
    if isinstance(task, RepeatCopy):
        answers, stop = read_repeat_copy(task, rows, start, end)
    elif isinstance(task, Copy):
        answers, stop = read_copy(task, rows, start)
    elif isinstance(task, PrioritySort):
        answers, stop = read_priority_sort(task, rows, start)
    else:
        raise AssertionError(f"no oracle reads {type(task).__name__}")
    return [answers], stop


def check_sequence(task: Task, batch: Batch, index: int) -> list[int]:
    """Check every array of one sequence against what its inputs say; returns the subtasks in their order."""
    length, decoding = int(batch.lengths[index]), int(batch.decoding[index])
    rows = batch.inputs[:length, index].tolist()
    labels = batch.subtask[:length, index].tolist()
    if isinstance(task, Sequencing):
        order, subtasks, step = read_order(len(task.subtasks), rows[0]), task.subtasks, 1
        expected_labels = [-1]
    else:
        order, subtasks, step = [0], (task,), 0
        expected_labels = []
    admissible = []
    for subtask in order:
        end = step + sum(1 for label in labels[step:decoding] if label == subtask)
        answers, stop = admissible_answers(subtasks[subtask], rows, step, end)
        assert stop == end
        expected_labels += [subtask] * (stop - step)
        admissible.append(answers)
        step = stop
    assert step == decoding
    assert not any(any(row) for row in rows[decoding:])
    for subtask, answers in zip(order, admissible, strict=True):
        asked = len(answers[0])
        given = batch.targets[step : step + asked, index].tolist()
        assert given in [[row + [0.0] * (len(given[0]) - len(row)) for row in answer] for answer in answers]
        expected_labels += [subtask] * asked
        step += asked
    assert step == length
    assert labels == expected_labels
    assert batch.mask[:, index].tolist() == [float(decoding <= at < length) for at in range(batch.mask.shape[0])]
    assert not batch.targets[:decoding, index].any()
    return order
