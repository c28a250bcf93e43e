"""Numbers, quantities, dates, times and names in English and Chinese text: how they are read and written."""
