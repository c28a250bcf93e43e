"""Planner, user, assistant, tools, observer, judge: each in a scripted form."""
