"""One file an ecosystem: what a package of it holds, and how it is used."""
