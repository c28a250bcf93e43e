"""Reads and writes values in English and Chinese text: numbers, quantities, dates, times, names and kinds of slot values."""
