"""The house: no circle of modules, folders in one direction, and few names that stand for two things."""

from __future__ import annotations

import pytest

from tests.module_graph import ROOMS, circles, folder_graph, import_graph, long_functions, loose_files, shared_file_names


@pytest.mark.slow
def test_no_module_imports_its_way_back_to_itself() -> None:
    """Lazy and type-only imports count."""
    assert circles(import_graph()) == []


def test_a_circle_is_found_whatever_its_length() -> None:
    graph = {name: frozenset(targets) for name, targets in {"a": "b", "b": "cd", "c": "a", "d": "", "e": "e"}.items()}
    assert circles(graph) == [["a", "b", "c"]]


@pytest.mark.parametrize("room", ROOMS)
def test_the_folders_of_a_room_import_each_other_in_one_direction(room: str) -> None:
    assert circles(folder_graph(room)) == []


def test_a_folder_is_no_heap() -> None:
    assert {folder: count for folder, count in loose_files((*ROOMS, "benchmarks")).items() if count > 15} == {}


def test_few_file_names_are_shared() -> None:
    assert len(shared_file_names()) <= 8, shared_file_names()


def test_functions_are_short() -> None:
    assert len(long_functions()) <= 10, long_functions()
