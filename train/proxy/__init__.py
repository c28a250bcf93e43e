"""Proxies: tiny policies that are trained for seconds, to compare data, worlds and prices before a real training pays for them."""
